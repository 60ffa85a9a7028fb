//! [`Settings`]: the node's configuration of placement.

use super::options::Options;
use super::topology_manager::TopologyManager;
use crate::cpuset::CpuSet;

/// A configuration that the kubelet's checks passed ([`Wanted::check`](super::Wanted::check)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    pub engine: EngineKind,
    /// The CPU manager's policy options.
    pub options: Options,
    /// The topology manager's policy, scope and options.
    pub topology_manager: TopologyManager,
    /// CPUs that are never exclusive.
    pub reserved: CpuSet,
}

/// Which engine answers requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The kubelet's answers ([`kubelet`](super::kubelet)).
    #[default]
    Kubelet,
    /// The fewest NUMA nodes and uncore caches ([`compact`](super::compact)).
    Compact,
    /// An engine that only tests choose.
    #[cfg(test)]
    FirstFree,
}
