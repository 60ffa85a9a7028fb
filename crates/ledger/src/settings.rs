//! [`Settings`]: the ledger's part of the configuration.

use super::model::{Container, LeftAlone, Pod, PoolKind};
use super::namespaces::Namespaces;
use super::pattern::Patterns;
use super::policy::Policy;
use core::time::Duration;
use cpuset::{CpuSet, NodeSet};
use placement::memory_manager::Capacity;
use quiet::InterruptMode;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub policy: Policy,
    /// The engine, its options, and the reserved CPUs.
    pub placement: placement::PlacementSettings,
    pub expose_cpus: Exposure,
    pub pod_level_resources: PodLevelResources,
    /// How many seconds before a planned loss of CPUs a container's files name them.
    pub notice_seconds: u32,
    /// Whether the memory of a container with exclusive CPUs is bound to their NUMA nodes.
    pub mems_follow_cpus: bool,
    /// NUMA nodes without CPUs that such a container may use as well, if they are near its CPUs.
    pub memory_only_nodes: NodeSet,
    /// What containers can be given of each NUMA node's memory; `None` if memory is not counted.
    pub memory: Option<Capacity>,
    pub namespaces: Namespaces,
    /// The namespaces whose containers run on the reserved CPUs.
    pub reserved_namespaces: Patterns,
    /// Moves of running containers to better CPUs; `None` for no moves.
    pub rebalance: Option<Rebalance>,
    /// For exclusive CPUs of containers without a pod option or a default of their namespace.
    pub interrupts: InterruptMode,
    /// Whether annotations for CRI-O's high-performance handlers count (`compatibility: [crio]`).
    pub reads_crio: bool,
}

impl Settings {
    /// How long a running container keeps CPUs that a resize takes away.
    pub fn shrink_notice(&self) -> Duration {
        let notice = Duration::from_secs(self.notice_seconds.into());
        self.placement.options.scale_delay.unwrap_or(notice)
    }

    /// Why another program than the kubelet's CPU manager has set these CPUs for a container; `None`
    /// if nothing explains them.
    pub fn explains(&self, pod: &Pod, container: &Container, cpus: &CpuSet) -> Option<LeftAlone> {
        if container.in_workload {
            Some(LeftAlone::Workload)
        } else if self.reserved_namespaces.match_name(&pod.namespace) {
            Some(LeftAlone::Namespace)
        } else if cpus.is_subset(&self.placement.reserved) {
            Some(LeftAlone::Reserved)
        } else {
            None
        }
    }

    /// Which CPUs a pod's containers share, by its namespace and its cgroup.
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

/// How the program in a container with exclusive CPUs learns their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    #[default]
    None,
    /// From its [`environment`](super::environment), which cannot follow changes.
    Environment,
    /// From files that follow changes.
    File,
}

impl Exposure {
    pub const ALL: [Exposure; 3] = [Exposure::None, Exposure::Environment, Exposure::File];

    /// The value of `exposeCPUs` in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Exposure::None => "none",
            Exposure::Environment => "environment",
            Exposure::File => "file",
        }
    }
}

/// What the containers without whole CPUs of a pod share whose CPUs are a whole number (KEP-5526).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodLevelResources {
    /// The node's shared pool.
    #[default]
    Shared,
    /// What the pod's exclusive containers leave of the pod's CPUs. It needs the topology manager's
    /// scope `pod`.
    OwnPool,
}

impl PodLevelResources {
    pub const ALL: [PodLevelResources; 2] = [PodLevelResources::Shared, PodLevelResources::OwnPool];

    /// The value of `podLevelResources` in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PodLevelResources::Shared => "shared",
            PodLevelResources::OwnPool => "own-pool",
        }
    }
}

/// How running containers move to better CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    pub mode: RebalanceMode,
    /// How many containers may move for every 100 containers with exclusive CPUs that start. A
    /// fifth of this number may move at once.
    pub moves_per_100_starts: u32,
    /// Whether a container may move to a NUMA node where it has no CPU.
    pub across_numa_nodes: bool,
    /// How long a container stays after its start and after each move.
    pub min_stay: Duration,
}

/// Whether running containers move to better CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RebalanceMode {
    Move,
    /// Only logs the moves that it would make.
    Suggest,
}
