//! What an administrator decides about the ledger.

use super::namespaces::Namespaces;
use super::policy::{Exclusivity, Policy};
use crate::placement;

/// The settings in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who may have exclusive CPUs.
    pub policy: Policy,
    /// Which CPUs they get, and which no container does.
    pub placement: placement::Settings,
    /// Who keeps others off exclusive CPUs.
    pub exclusivity: Exclusivity,
    /// Whether a container with exclusive CPUs is told which they are, see
    /// [`environment`](super::environment).
    pub expose_cpus: bool,
    /// Whether the memory of a container with exclusive CPUs is to be on the NUMA nodes of these.
    pub mems_follow_cpus: bool,
    /// What pods may wish for.
    pub namespaces: Namespaces,
}
