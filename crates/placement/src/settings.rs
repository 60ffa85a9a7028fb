//! [`PlacementSettings`]: the node's configuration of placement.

use super::options::{ACROSS_CORES, ACROSS_NUMA, ALIGN_BY_SOCKET, Options};
use super::strategy::UncoreOrder;
use super::topology_manager::TopologyManager;
use cpuset::CpuSet;
use topology::Topology;

/// A configuration that has passed the kubelet's checks
/// ([`CpuManagerConfig::check`](super::CpuManagerConfig::check)) and
/// [`check_engine`](PlacementSettings::check_engine).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlacementSettings {
    pub engine: EngineKind,
    pub options: Options,
    pub topology_manager: TopologyManager,
    /// These CPUs are never exclusive.
    pub reserved: CpuSet,
    pub isolated: IsolatedCpus,
}

/// Whether containers get CPUs that the kernel was booted to isolate (`isolcpus=`). The kernel's
/// scheduler does not balance threads between these CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsolatedCpus {
    #[default]
    Exclude,
    /// Only isolated CPUs if enough are free; otherwise none of them; otherwise some.
    Prefer,
    /// Only isolated CPUs; otherwise the container is refused.
    Require,
}

impl IsolatedCpus {
    pub const ALL: [IsolatedCpus; 3] =
        [IsolatedCpus::Exclude, IsolatedCpus::Prefer, IsolatedCpus::Require];

    pub fn name(self) -> &'static str {
        match self {
            IsolatedCpus::Exclude => "exclude",
            IsolatedCpus::Prefer => "prefer",
            IsolatedCpus::Require => "require",
        }
    }

    /// The CPUs of `cpus` that a container may get.
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
    /// As the kubelet decides ([`kubelet`](super::kubelet)).
    #[default]
    Kubelet,
    /// The fewest NUMA nodes and uncore caches (`compact/`).
    Compact,
}

impl EngineKind {
    pub const ALL: [EngineKind; 2] = [EngineKind::Kubelet, EngineKind::Compact];

    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Kubelet => "kubelet",
            EngineKind::Compact => "compact",
        }
    }
}

/// An option that contradicts [`EngineKind::Compact`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot be used with placement: compact: {why}")]
pub struct EngineConflict {
    /// The name of the option or field.
    pub option: &'static str,
    why: &'static str,
}

impl PlacementSettings {
    /// Checks that no option contradicts the engine.
    ///
    /// `compact` implies `prefer-align-cpus-by-uncorecache` and `prefer-closest-numa-nodes`, so it
    /// accepts both.
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
