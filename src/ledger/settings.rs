//! What an administrator decides about the ledger.

use super::rejection::Rejection;
use crate::cpuset::CpuSet;
use crate::placement::{self, NotEnough, take};
use crate::topology::Topology;
use std::fmt;

/// Who may have exclusive CPUs (the kubelet's `cpuManagerPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nobody: containers are left alone.
    #[default]
    None,
    /// Containers of Guaranteed pods that ask for whole CPUs.
    Static,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who may have exclusive CPUs.
    pub policy: Policy,
    /// Which CPUs they get, and which nobody does.
    pub placement: placement::Settings,
}

impl fmt::Display for Settings {
    /// One line in the configuration's own words, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement::Settings { options, topology_manager, reserved } = &self.placement;
        let reserved = if reserved.is_empty() { "none".to_owned() } else { reserved.to_string() };
        match self.policy {
            Policy::None => write!(f, "cpuManagerPolicy none, reserved CPUs {reserved}"),
            Policy::Static => {
                write!(
                    f,
                    "cpuManagerPolicy static ({options}), {topology_manager}, reserved CPUs {reserved}"
                )
            }
        }
    }
}

impl Settings {
    /// Chooses `n` CPUs of `free`, of which only `available` may be used.
    ///
    /// # Errors
    /// If there is no room, or the options forbid the size.
    pub(super) fn place(
        &self,
        topology: &Topology,
        free: &CpuSet,
        available: usize,
        n: usize,
    ) -> Result<CpuSet, Rejection> {
        let options = &self.placement.options;
        let per_core = topology.cpus_per_core();
        if options.full_pcpus_only && !n.is_multiple_of(per_core) {
            return Err(Rejection {
                reason: "SMTAlignmentError",
                message: format!(
                    "SMT Alignment Error: requested {n} cpus not multiple cpus per core = {per_core}"
                ),
            });
        }
        let not_enough = |error: NotEnough| Rejection {
            reason: "UnexpectedAdmissionError",
            message: format!("Allocate failed due to {error}, which is unexpected"),
        };
        if available < n {
            return Err(not_enough(NotEnough { requested: n, available }));
        }
        take(topology, free, n, options.strategy(topology)).map_err(not_enough)
    }
}
