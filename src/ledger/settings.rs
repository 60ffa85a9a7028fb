//! [`Settings`]: the ledger's part of the configuration.

use super::namespaces::Namespaces;
use super::policy::{Exclusivity, Policy};
use crate::placement;
use crate::wording;
use std::fmt;

/// The settings in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which containers may have exclusive CPUs.
    pub policy: Policy,
    /// How the engine chooses their CPUs, and which ones are reserved.
    pub placement: placement::Settings,
    /// What keeps others off exclusive CPUs.
    pub exclusivity: Exclusivity,
    /// Whether a container with exclusive CPUs gets their numbers in its
    /// [`environment`](super::environment).
    pub expose_cpus: bool,
    /// Whether the memory of a container with exclusive CPUs is bound to their NUMA nodes.
    pub mems_follow_cpus: bool,
    /// What pods may wish for.
    pub namespaces: Namespaces,
}

impl fmt::Display for Settings {
    /// One line in the configuration's own words, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement::Settings { options, topology_manager, reserved } = &self.placement;
        let reserved = match reserved.is_empty() {
            true => "CPUs none".to_owned(),
            false => wording::cpus(reserved),
        };
        match self.policy {
            Policy::None => write!(f, "cpuManagerPolicy none, reserved {reserved}"),
            Policy::Static => {
                write!(
                    f,
                    "cpuManagerPolicy static ({options}), {topology_manager}, reserved {reserved}, exclusivity {}",
                    self.exclusivity,
                )?;
                if self.expose_cpus {
                    f.write_str(", exposeCpus true")?;
                }
                if self.mems_follow_cpus {
                    f.write_str(", exclusiveMems follow-cpus")?;
                }
                match self.namespaces.len() {
                    0 => Ok(()),
                    1 => f.write_str(", namespaces with 1 entry"),
                    entries => write!(f, ", namespaces with {entries} entries"),
                }
            }
        }
    }
}
