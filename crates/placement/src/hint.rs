//! [`Hint`]: the NUMA nodes that a request may use (KEP-693); [`NumaNodes`] and [`Distances`]: those
//! of the machine, and what it costs to use several of them.

use super::topology_manager::TopologyManager;
use cpuset::NodeSet;
use topology::Topology;

/// A set of NUMA nodes that can hold a request of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The nodes; `None` if any will do.
    pub nodes: Option<NodeSet>,
    /// Whether no other set could hold the request better.
    pub preferred: bool,
}

impl Hint {
    /// No affinity, and none better: the hint of a resource for which any node will do.
    pub const ANY: Hint = Hint { nodes: None, preferred: true };
}

/// The NUMA nodes of a machine as the topology manager sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNodes {
    /// All nodes, memory-only ones too.
    pub all: NodeSet,
    /// Distances, if nearness decides between equally many nodes (option
    /// `prefer-closest-numa-nodes`).
    pub distances: Option<Distances>,
}

impl NumaNodes {
    /// The nodes of `topology`, with their distances if `manager` wants the nearest.
    pub fn of(topology: &Topology, manager: &TopologyManager) -> NumaNodes {
        let nodes = topology.nodes();
        let all = nodes.iter().map(|node| node.id).collect();
        let rows = nodes.iter().map(|node| (node.id, node.distances.as_slice()));
        let distances = manager.prefer_closest_numa_nodes.then(|| Distances::new(rows));
        NumaNodes { all, distances }
    }
}

/// What it costs a node to reach another's memory (ACPI SLIT: 10 is local).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distances {
    /// Node numbers, ascending.
    nodes: Vec<usize>,
    /// One row a node, one column for each in the same order.
    rows: Vec<Vec<u32>>,
}

/// SLIT's value for nodes that cannot reach each other; also for rows that are too short.
const UNREACHABLE: u32 = 255;

impl Distances {
    /// From nodes in ascending order, each with its distances to all of them in the same order.
    pub fn new<'a>(nodes: impl IntoIterator<Item = (usize, &'a [u32])>) -> Distances {
        let (nodes, rows) = nodes.into_iter().map(|(node, row)| (node, row.to_vec())).unzip();
        Distances { nodes, rows }
    }

    /// The distance from one node to another, by their numbers.
    pub fn between(&self, from: usize, to: usize) -> u32 {
        let at = |node: usize| self.nodes.binary_search(&node).ok();
        let distance = || self.rows.get(at(from)?)?.get(at(to)?).copied();
        distance().unwrap_or(UNREACHABLE)
    }

    /// The distances over all ordered pairs of a set's nodes, each with itself too.
    pub fn total(&self, nodes: NodeSet) -> u64 {
        let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)));
        pairs.map(|(from, to)| u64::from(self.between(from, to))).sum()
    }

    /// The average distance in a set as KEP-3545 defines it; of sets of one size, the one with the
    /// lower [`total`](Distances::total) has the lower average.
    pub fn average(&self, nodes: NodeSet) -> f64 {
        self.total(nodes) as f64 / (nodes.len() * nodes.len()).max(1) as f64
    }
}
