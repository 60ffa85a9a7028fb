//! [`Demand`]: the sets of NUMA nodes that can hold a request, and which of them are preferred
//! (KEP-693).
//!
//! A set can hold a request if its nodes have enough free CPUs together, and all nodes with CPUs
//! the pod may use again are in it. It is preferred if it has no more nodes than the request would
//! need on the empty machine, or, with `align-by-socket` (KEP-3327), if it touches no more sockets
//! than those nodes would fill.
//!
//! Only nodes with CPUs take part; memory-only ones never count.

use crate::combinations::next_combination;
use crate::hint::Hint;
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use topology::Topology;

/// What one request asks of the machine's NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub(super) n: usize,
    /// Nodes with CPUs, ascending by number.
    pub(super) nodes: Vec<CandidateNode>,
    /// How many nodes the request would need on the empty machine; all, if they are too few.
    pub(super) width: usize,
    /// With `align-by-socket`: how many sockets a preferred set touches.
    pub(super) sockets: Option<usize>,
}

/// A NUMA node, as one request sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateNode {
    pub(super) number: usize,
    /// CPUs the request could have.
    pub(super) free: usize,
    /// Whether it has CPUs to be used again.
    pub(super) must: bool,
    /// The sockets its CPUs are in, by position, one bit each.
    pub(super) sockets: u128,
}

impl Demand {
    /// A request for `n` CPUs of `available` and of `reusable`, those the pod's init containers
    /// leave behind.
    pub fn new(
        topology: &Topology,
        available: &CpuSet,
        reusable: &CpuSet,
        n: usize,
        align_by_socket: bool,
    ) -> Demand {
        let available = topology.tally(available).nodes;
        let reusable = topology.tally(reusable).nodes;
        let sizes = &topology.sizes().nodes;
        let mut nodes = Vec::new();
        let mut totals = Vec::new();
        for (at, (node, &size)) in topology.nodes().iter().zip(sizes).enumerate() {
            if size == 0 || MAX_NODES <= node.id {
                continue;
            }
            totals.push(size);
            nodes.push(CandidateNode {
                number: node.id,
                free: available[at] + reusable[at],
                must: reusable[at] > 0,
                sockets: if align_by_socket { sockets_of(topology, &node.cpus) } else { 0 },
            });
        }
        totals.sort_unstable_by(|one, other| other.cmp(one));
        let sums = totals.iter().scan(0, |sum, total| {
            *sum += total;
            Some(*sum)
        });
        let width = sums.take_while(|&sum| sum < n).count() + 1;
        let width = width.min(nodes.len());
        // The kubelet divides whole numbers here: with more sockets than nodes nothing is aligned.
        let per_socket = topology.cpu_nodes() / topology.sockets().len().max(1);
        let sockets = (align_by_socket && per_socket > 0).then(|| width.div_ceil(per_socket));
        Demand { n, nodes, width, sockets }
    }

    /// All sets that can hold the request, as the kubelet lists them: small sets first, then
    /// lexicographically.
    ///
    /// Their number doubles with each node. Admission needs it neither for CPUs alone
    /// ([`Demand::best`]) nor beside devices; it is what both are proved against.
    pub fn enumerate(&self) -> Vec<Hint> {
        let mut hints = Vec::new();
        for size in 1..=self.nodes.len() {
            let mut chosen: Vec<usize> = (0..size).collect();
            loop {
                hints.extend(self.hint(&chosen));
                if !next_combination(&mut chosen, self.nodes.len()) {
                    break;
                }
            }
        }
        hints
    }

    /// The same request, for sets only that have all of these nodes in them.
    pub(super) fn including(mut self, nodes: NodeSet) -> Demand {
        for node in &mut self.nodes {
            node.must |= nodes.contains(node.number);
        }
        self
    }

    /// The hint of this set of nodes, if it can hold the request.
    pub(super) fn of(&self, set: NodeSet) -> Option<Hint> {
        let chosen = self.nodes.iter().enumerate().filter(|(_, node)| set.contains(node.number));
        self.hint(&chosen.map(|(at, _)| at).collect::<Vec<_>>())
    }

    /// The hint of a set of nodes by index, if it can hold the request.
    fn hint(&self, chosen: &[usize]) -> Option<Hint> {
        let (mut free, mut must, mut sockets, mut set) = (0, 0, 0u128, NodeSet::EMPTY);
        for node in chosen.iter().map(|&index| &self.nodes[index]) {
            free += node.free;
            must += usize::from(node.must);
            sockets |= node.sockets;
            set = set.union(NodeSet::of(node.number));
        }
        let all_must = self.nodes.iter().filter(|node| node.must).count();
        let aligned = self.sockets == Some(sockets.count_ones() as usize);
        let preferred = chosen.len() == self.width || aligned;
        (self.n <= free && must == all_must).then_some(Hint { nodes: Some(set), preferred })
    }
}

/// The sockets of a set of CPUs, one bit each by position; sockets past the width of the number
/// count as none.
fn sockets_of(topology: &Topology, cpus: &CpuSet) -> u128 {
    let bit = |cpu| 1u128.checked_shl(topology.place(cpu)?.socket() as u32);
    cpus.iter().filter_map(bit).fold(0, |sockets, bit| sockets | bit)
}
