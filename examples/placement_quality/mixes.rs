//! Which sizes containers have, and what the node demands of their placement.

use super::machines::NamedMachine;
use placement::TopologyPolicy;

/// A mix of sizes under a configuration of the node.
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    sizes: Sizes,
    pub(super) full_pcpus_only: bool,
    /// `None`: the [`EngineConfig`](super::EngineConfig) sets it.
    pub(crate) policy: Option<TopologyPolicy>,
}

#[derive(Clone, Copy)]
enum Sizes {
    Mixed,
    Even,
    Cache,
    Node,
}

/// The benchmark's last line sums up the first one.
pub(crate) const MIXES: [Mix; 5] = [
    Mix { name: "mixed", sizes: Sizes::Mixed, full_pcpus_only: false, policy: None },
    Mix { name: "even", sizes: Sizes::Even, full_pcpus_only: true, policy: None },
    Mix { name: "cache", sizes: Sizes::Cache, full_pcpus_only: false, policy: None },
    Mix { name: "node", sizes: Sizes::Node, full_pcpus_only: false, policy: None },
    Mix {
        name: "node-single-numa-node",
        sizes: Sizes::Node,
        full_pcpus_only: false,
        policy: Some(TopologyPolicy::SingleNumaNode),
    },
];

/// A number of CPUs, and how often containers have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) cpus: usize,
    pub(super) weight: u64,
}

impl Mix {
    /// The sizes on a machine, at most half of it each.
    pub(super) fn sizes(&self, machine: &NamedMachine) -> Vec<Size> {
        let threads = machine.topology.threads_per_core();
        let l = machine.cache_size();
        let v = machine.node_size();
        let mut sizes = match self.sizes {
            Sizes::Mixed => {
                pairs([1, 2, 3, 4, 6, 8, 12, 16, 24, 32], [10, 20, 5, 20, 8, 15, 6, 8, 4, 4])
            }
            Sizes::Even => pairs([2, 4, 6, 8, 12, 16, 24, 32], [25, 25, 8, 18, 8, 8, 4, 4]),
            Sizes::Cache => pairs([2, l / 4, l / 2, 3 * l / 4, l, 2 * l], [20, 20, 25, 10, 20, 5]),
            Sizes::Node => pairs(
                [2, 4, 8, v / 4, v / 2, 3 * v / 4, v.saturating_sub(2 * threads)],
                [20, 20, 20, 15, 15, 5, 5],
            ),
        };
        sizes.retain(|size| (1..=machine.capacity() / 2).contains(&size.cpus));
        match self.sizes {
            Sizes::Even => sizes.retain(|size| size.cpus.is_multiple_of(threads)),
            Sizes::Node => sizes.retain(|size| size.cpus <= v),
            Sizes::Mixed | Sizes::Cache => {}
        }
        sizes
    }
}

fn pairs<const N: usize>(cpus: [usize; N], weights: [u64; N]) -> Vec<Size> {
    cpus.into_iter().zip(weights).map(|(cpus, weight)| Size { cpus, weight }).collect()
}
