//! [`Cost`]: compares choices of CPUs. The choice with the lowest cost is taken.

use std::fmt;

/// The order of the fields is the order of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost {
    pub(super) nodes: usize,
    pub(super) sockets: u32,
    /// The sum over all pairs of nodes, and from each node to those of the container's devices.
    pub(super) distance: u64,
    /// If requests must fit one node: how many requests of one eighth of a node, two eighths, and
    /// so on up to a whole node no longer fit this node then; and the node's position.
    pub(super) room: (usize, usize),
    pub(super) caches: usize,
    /// The number of cores on which other containers run or could run.
    pub(super) shared_cores: usize,
    /// The number of CPUs that are not reused from ended containers of the pod. The pod holds
    /// reused CPUs anyway.
    pub(super) not_reused: usize,
    /// How many whole cores are used in part, because no core that is shared anyway has enough free
    /// CPUs in the chosen caches.
    pub(super) broken_cores: usize,
    /// The CPUs left over in the chosen caches count 20 each, the free CPUs of the nodes 1 each: the
    /// less, the more large pieces stay free for later requests (best fit). On the churn benchmark
    /// this weight aligned slightly more containers than others.
    pub(super) potential: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let Cost { nodes, caches, shared_cores, .. } = *self;
        write!(f, "{nodes} NUMA node{}, ", plural(nodes))?;
        write!(f, "{caches} uncore cache{}, ", plural(caches))?;
        write!(f, "{shared_cores} shared core{}", plural(shared_cores))
    }
}

impl Cost {
    /// Why this choice is better than `other`, as a clause about `other`.
    pub(super) fn advantage(&self, other: &Cost) -> &'static str {
        if self.nodes < other.nodes {
            "it has more NUMA nodes"
        } else if self.sockets < other.sockets {
            "it is on more sockets"
        } else if self.distance < other.distance {
            "its NUMA nodes are farther from each other or from the devices"
        } else if self.room < other.room {
            "it leaves less room for large requests in one NUMA node"
        } else if self.caches < other.caches {
            "it has more uncore caches"
        } else if self.shared_cores < other.shared_cores {
            "it shares more cores"
        } else if self.not_reused < other.not_reused {
            "it uses fewer CPUs of the pod's ended containers again"
        } else if self.broken_cores < other.broken_cores {
            "it breaks more whole cores"
        } else if self.potential < other.potential {
            "it leaves larger remainders or uses emptier NUMA nodes"
        } else {
            "equally good, but later in order"
        }
    }
}
