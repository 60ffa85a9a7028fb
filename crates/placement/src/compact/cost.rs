//! [`Cost`]: what makes one choice of CPUs better than another.

use std::fmt;

/// Compared field by field, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost {
    pub(super) nodes: usize,
    /// Of all pairs of nodes, and from them to the container's devices.
    pub(super) distance: u64,
    /// Where requests must fit into one node: how many requests of an eighth of a node, two, and so
    /// on up to a whole one it makes impossible there, and the node's position.
    pub(super) room: (usize, usize),
    /// Uncore caches.
    pub(super) caches: usize,
    /// On how many cores others run, or could.
    pub(super) shared_cores: usize,
    /// CPUs that are not those of the pod's ended containers, which it holds anyway.
    pub(super) not_reused: usize,
    /// How many cores of which nobody has a CPU are broken although others were.
    pub(super) broken_cores: usize,
    /// What the choice takes from requests to come: best fit.
    pub(super) potential: usize,
}

impl Cost {
    pub(super) fn at_least(
        nodes: usize,
        distance: u64,
        room: (usize, usize),
        caches: usize,
    ) -> Cost {
        Cost { nodes, distance, room, caches, ..Cost::default() }
    }
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
    /// What made this choice better than one that costs more.
    pub(super) fn advantage(&self, other: &Cost) -> &'static str {
        if self.nodes < other.nodes {
            "it has more NUMA nodes"
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
