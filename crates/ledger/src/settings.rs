//! [`Settings`]: the ledger's part of the configuration.

use super::model::{Pod, PoolKind};
use super::namespaces::Namespaces;
use super::pattern::Patterns;
use super::policy::Policy;
use core::time::Duration;
use cpuset::NodeSet;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub policy: Policy,
    /// Which engine chooses their CPUs and how, and which ones are reserved.
    pub placement: placement::Settings,
    pub expose_cpus: Exposure,
    /// How many seconds before a planned loss of CPUs a container's file names these; 0 where
    /// nothing waits for that.
    pub notice_seconds: u32,
    /// Whether the memory of a container with exclusive CPUs is bound to their NUMA nodes.
    pub mems_follow_cpus: bool,
    /// The nodes without CPUs that may be among them.
    pub memory_only_nodes: NodeSet,
    pub namespaces: Namespaces,
    /// The containers of these run on the reserved CPUs.
    pub reserved_namespaces: Patterns,
    /// Moves of running containers to better CPUs; `None` if they stay where they are.
    pub rebalance: Option<Rebalance>,
}

impl Settings {
    /// How long a running container keeps CPUs that a resize takes away. Its files name them, if it has
    /// any.
    pub(super) fn shrink_notice(&self) -> Duration {
        let notice = Duration::from_secs(self.notice_seconds.into());
        self.placement.options.scale_delay.unwrap_or(notice)
    }

    /// Which CPUs a pod's containers share: its cgroup or its namespace can make these the reserved
    /// ones.
    pub(super) fn pool_of(&self, pod: &Pod) -> PoolKind {
        match self.policy {
            Policy::None => PoolKind::General,
            Policy::Static if self.reserved_namespaces.match_name(&pod.namespace) => {
                PoolKind::Reserved
            }
            Policy::Static => pod.pool,
        }
    }
}

/// How a container with exclusive CPUs learns their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    #[default]
    None,
    /// By its [`environment`](super::environment), which cannot follow changes.
    Environment,
    /// By files that follow changes.
    File,
}

impl Exposure {
    pub const ALL: [Exposure; 3] = [Exposure::None, Exposure::Environment, Exposure::File];

    /// The value of `exposeCpus` in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Exposure::None => "false",
            Exposure::Environment => "true",
            Exposure::File => "file",
        }
    }
}

/// How running containers move to better CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    pub mode: RebalanceMode,
    /// How many containers may move while 100 with exclusive CPUs start. A fifth of that may move
    /// at once.
    pub moves_per_100_starts: u32,
    /// Whether a container may move to a NUMA node where it has no CPU.
    pub across_numa_nodes: bool,
    /// How long a container stays after its start and after a move.
    pub min_stay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceMode {
    Move,
    /// Only notes what it would do.
    Suggest,
}
