//! [`Settings`]: the node's configuration of placement.

use super::options::{ACROSS_CORES, ACROSS_NUMA, ALIGN_BY_SOCKET, Options};
use super::strategy::UncoreOrder;
use super::topology_manager::TopologyManager;
use cpuset::CpuSet;
use topology::Topology;

/// A configuration that the kubelet's checks passed ([`Wanted::check`](super::Wanted::check)), and
/// [`check_engine`](Settings::check_engine).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    pub engine: EngineKind,
    /// The CPU manager's policy options.
    pub options: Options,
    /// The topology manager's policy, scope and options.
    pub topology_manager: TopologyManager,
    /// CPUs that are never exclusive.
    pub reserved: CpuSet,
    pub isolated: IsolatedCpus,
}

/// Whether containers get CPUs that the kernel was booted to isolate (`isolcpus=`). The kernel does
/// not balance a container's threads between these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsolatedCpus {
    #[default]
    Exclude,
    /// All of them isolated if there is room; otherwise none; otherwise some.
    Prefer,
    /// All of them isolated, or the container is refused.
    Require,
}

impl IsolatedCpus {
    pub const ALL: [IsolatedCpus; 3] =
        [IsolatedCpus::Exclude, IsolatedCpus::Prefer, IsolatedCpus::Require];

    /// The configuration's word for it.
    pub fn name(self) -> &'static str {
        match self {
            IsolatedCpus::Exclude => "exclude",
            IsolatedCpus::Prefer => "prefer",
            IsolatedCpus::Require => "require",
        }
    }

    /// Those of `cpus` that a container may get.
    pub fn allowed(self, machine: &Topology, cpus: &CpuSet) -> CpuSet {
        match self {
            IsolatedCpus::Exclude => *cpus - machine.isolated(),
            IsolatedCpus::Prefer => *cpus,
            IsolatedCpus::Require => *cpus & machine.isolated(),
        }
    }
}

/// Which engine answers requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// The kubelet's answers ([`kubelet`](super::kubelet)).
    #[default]
    Kubelet,
    /// The fewest NUMA nodes and uncore caches (`compact/`).
    Compact,
}

impl EngineKind {
    /// Those that a configuration can name.
    pub const ALL: [EngineKind; 2] = [EngineKind::Kubelet, EngineKind::Compact];

    /// The configuration's word for it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Kubelet => "kubelet",
            EngineKind::Compact => "compact",
        }
    }
}

/// An option that contradicts what [`EngineKind::Compact`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot be used with placement: compact: {why}")]
pub struct EngineConflict {
    /// The option or the field.
    pub option: &'static str,
    why: &'static str,
}

impl Settings {
    /// Whether the options are possible with the engine.
    ///
    /// Those that `compact` implies are: `prefer-align-cpus-by-uncorecache` and
    /// `prefer-closest-numa-nodes`.
    pub fn check_engine(&self) -> Result<(), EngineConflict> {
        if self.engine != EngineKind::Compact {
            return Ok(());
        }
        let options = &self.options;
        let conflict = |option, why| Err(EngineConflict { option, why });
        if options.distribute_cpus_across_numa {
            return conflict(ACROSS_NUMA, "compact takes the fewest NUMA nodes and fills them");
        }
        if options.distribute_cpus_across_cores {
            return conflict(ACROSS_CORES, "compact takes whole cores first");
        }
        if options.align_by_socket {
            return conflict(
                ALIGN_BY_SOCKET,
                "compact takes the fewest NUMA nodes before it counts sockets",
            );
        }
        if options.uncore_order == UncoreOrder::Numerical {
            return conflict(
                "uncoreCacheOrder",
                "compact takes the uncore caches that leave the smallest remainder, not by number",
            );
        }
        Ok(())
    }
}
