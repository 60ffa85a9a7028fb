//! [`Demand`]: the sets of NUMA nodes that can hold a request, and which of them are preferred
//! (KEP-693).
//!
//! A set can hold a request if its nodes together have enough free CPUs, and if it includes all
//! nodes with CPUs that the pod may use again. It is preferred if it has no more nodes than the
//! request would need on the empty machine, or, with `align-by-socket` (KEP-3327), if it touches as
//! many sockets as those nodes would fill.
//!
//! Memory-only nodes are ignored.

use crate::combinations::next_combination;
use crate::cores::{CoreSizes, Domains};
use crate::hint::Hint;
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use topology::Topology;

/// A request for CPUs, and what each NUMA node has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub(super) n: usize,
    /// Nodes with CPUs, ascending by number.
    pub(super) nodes: Vec<CandidateNode>,
    /// How many nodes the request would need on the empty machine; all nodes if even these are too
    /// small.
    pub(super) width: usize,
    /// With `align-by-socket`, the number of sockets that a preferred set touches.
    pub(super) sockets: Option<usize>,
    /// Where the request takes whole cores and these have several sizes: the free cores of each
    /// node. Empty where the number of free CPUs says what a node can give.
    pub(super) cores: Vec<CoreSizes>,
}

/// What a NUMA node has for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateNode {
    pub(super) number: usize,
    /// The number of CPUs that the request could get.
    pub(super) free: usize,
    /// Whether every set must include this node, because it has CPUs to be used again.
    pub(super) must: bool,
    /// The sockets of its CPUs, one bit each by position.
    pub(super) sockets: u128,
}

impl Demand {
    /// A request for `n` CPUs of `available` and `reusable`. The latter are the CPUs of the pod's
    /// ended init containers.
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
        // As in the kubelet, an integer division: with more sockets than nodes, no set is aligned.
        let per_socket = topology.cpu_nodes() / topology.sockets().len().max(1);
        let aligns = align_by_socket && per_socket > 0;
        let sockets = if aligns { Some(width.div_ceil(per_socket)) } else { None };
        Demand { n, nodes, width, sockets, cores: Vec::new() }
    }

    /// This request for whole cores of several sizes; `usable` has no other CPUs.
    pub(super) fn in_whole_cores(mut self, topology: &Topology, usable: &CpuSet) -> Demand {
        let cores_in = |cpus: &CpuSet| -> Vec<CoreSizes> {
            let counted = |node: &&topology::NumaNode| {
                self.nodes.binary_search_by_key(&node.id, |node| node.number).is_ok()
            };
            let nodes = topology.nodes().iter().filter(counted);
            nodes.map(|node| CoreSizes::of(topology, &(node.cpus & *cpus))).collect()
        };
        let empty = cores_in(&topology.online());
        let cores = cores_in(usable);
        self.width = Domains { sizes: &empty, n: self.n }.fewest();
        self.cores = cores;
        self
    }

    /// Whether the cores of these nodes, given by index, can add up to the request.
    pub(super) fn adds_up(&self, nodes: impl IntoIterator<Item = usize>) -> bool {
        self.cores.is_empty() || Domains { sizes: &self.cores, n: self.n }.add_up(nodes, [])
    }

    /// All sets that can hold the request, in the kubelet's order: small sets first, then
    /// lexicographically.
    ///
    /// Their number doubles with each node. Admission never lists them, for CPUs alone
    /// ([`Demand::best`]) or with devices: tests and explanations do.
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

    /// This request, for sets that include all of these nodes.
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
        let mut free = 0;
        let mut must = 0;
        let mut sockets = 0u128;
        let mut set = NodeSet::EMPTY;
        for node in chosen.iter().map(|&index| &self.nodes[index]) {
            free += node.free;
            must += usize::from(node.must);
            sockets |= node.sockets;
            set = set.union(NodeSet::of(node.number));
        }
        let all_must = self.nodes.iter().filter(|node| node.must).count();
        let aligned = self.sockets == Some(sockets.count_ones() as usize);
        let preferred = chosen.len() == self.width || aligned;
        let holds = self.n <= free && must == all_must && self.adds_up(chosen.iter().copied());
        if holds { Some(Hint { nodes: Some(set), preferred }) } else { None }
    }
}

/// The sockets of a set of CPUs, one bit each by position. Sockets from position 128 on are
/// ignored.
fn sockets_of(topology: &Topology, cpus: &CpuSet) -> u128 {
    let bit = |cpu| 1u128.checked_shl(topology.place(cpu)?.socket() as u32);
    cpus.iter().filter_map(bit).fold(0, |sockets, bit| sockets | bit)
}
