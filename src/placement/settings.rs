//! [`Settings`]: the node's configuration of placement, checked against the machine.

use super::kubelet::reserve::{Reservation, ReserveError};
use super::options::{OptionError, Options};
use super::topology_manager::{NodeLimit, TopologyManager, TopologyManagerError};
use crate::cpuset::CpuSet;
use crate::topology::Topology;

/// A checked configuration of CPU manager policy `static` and of the topology manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// The CPU manager's policy options.
    pub options: Options,
    /// The topology manager's policy, scope and options.
    pub topology_manager: TopologyManager,
    /// CPUs that are never exclusive.
    pub reserved: CpuSet,
}

/// The same, as text.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// `cpuManagerPolicyOptions`.
    pub cpu_options: &'a [(&'a str, &'a str)],
    /// `topologyManagerPolicy`.
    pub topology_policy: &'a str,
    /// `topologyManagerScope`.
    pub topology_scope: &'a str,
    /// `topologyManagerPolicyOptions`.
    pub topology_options: &'a [(&'a str, &'a str)],
    /// What is kept for the system.
    pub reservation: Reservation,
}

/// Why a configuration is refused, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The topology manager's part.
    #[error("topology manager: {0}")]
    TopologyManager(#[from] TopologyManagerError),
    /// The CPU manager's options.
    #[error("cpu manager: new static policy error: {0}")]
    Options(#[from] OptionError),
    /// No CPU is reserved; this check comes before the options.
    #[error("cpu manager: {}", ReserveError::Nothing)]
    NothingReserved,
    /// The reservation.
    #[error("cpu manager: new static policy error: {0}")]
    Reserve(#[from] ReserveError),
}

impl Settings {
    /// Checks a configuration as the kubelet does when it starts, in its order.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(
        topology: &Topology,
        wanted: &Wanted<'_>,
        limit: NodeLimit,
    ) -> Result<Settings, SettingsError> {
        let topology_manager = TopologyManager::parse(
            wanted.topology_policy,
            wanted.topology_scope,
            wanted.topology_options.iter().copied(),
            topology,
            limit,
        )?;
        if wanted.reservation.milli_cpus == 0 {
            return Err(SettingsError::NothingReserved);
        }
        let options = Options::parse(wanted.cpu_options.iter().copied())?;
        options.check_machine(topology, topology_manager.policy)?;
        let reserved = wanted.reservation.resolve(topology, &options)?;
        Ok(Settings { options, topology_manager, reserved })
    }
}
