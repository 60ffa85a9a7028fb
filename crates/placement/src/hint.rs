//! [`Hint`]: the NUMA nodes that a request may use (KEP-693). [`NumaNodes`]: the nodes of the
//! machine. [`Distances`]: what it costs to use several of them.

use super::topology_manager::TopologyManager;
use cpuset::NodeSet;
use topology::Topology;

/// A set of NUMA nodes that can hold a request for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The nodes; `None` if any will do.
    pub nodes: Option<NodeSet>,
    /// Whether no other set could hold the request better.
    pub preferred: bool,
}

impl Hint {
    /// Any node will do, and no set of nodes is better than another.
    pub const ANY: Hint = Hint { nodes: None, preferred: true };
}

/// The NUMA nodes of a machine as the topology manager sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNodes {
    /// All nodes, including memory-only ones.
    pub all: NodeSet,
    /// Set if the nearest of equally many nodes come first (option `prefer-closest-numa-nodes`).
    pub distances: Option<Distances>,
}

impl NumaNodes {
    pub fn of(topology: &Topology, manager: &TopologyManager) -> NumaNodes {
        let nodes = topology.nodes();
        let all = nodes.iter().map(|node| node.id).collect();
        let rows = nodes.iter().map(|node| (node.id, node.distances.as_slice()));
        let closest = manager.prefer_closest_numa_nodes;
        NumaNodes { all, distances: if closest { Some(Distances::new(rows)) } else { None } }
    }
}

/// What it costs one node to reach the memory of another (ACPI SLIT: 10 is local).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distances {
    /// Node numbers, ascending.
    nodes: Vec<usize>,
    /// A row for each node, with a column for each node in the same order.
    rows: Vec<Vec<u32>>,
}

/// SLIT's value for nodes that cannot reach each other; also for rows that are too short.
const UNREACHABLE: u32 = 255;

impl Distances {
    /// `nodes` must be ascending, each with its distances to all of them in the same order.
    pub fn new<'a>(nodes: impl IntoIterator<Item = (usize, &'a [u32])>) -> Distances {
        let (nodes, rows) = nodes.into_iter().map(|(node, row)| (node, row.to_vec())).unzip();
        Distances { nodes, rows }
    }

    /// The distance between two nodes, given by number.
    pub fn between(&self, from: usize, to: usize) -> u32 {
        let at = |node: usize| self.nodes.binary_search(&node).ok();
        let distance = || self.rows.get(at(from)?)?.get(at(to)?).copied();
        distance().unwrap_or(UNREACHABLE)
    }

    /// The sum of distances over all ordered pairs of nodes of a set, including each node with
    /// itself.
    pub fn total(&self, nodes: NodeSet) -> u64 {
        let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)));
        pairs.map(|(from, to)| u64::from(self.between(from, to))).sum()
    }
}
