//! [`Settings`]: the ledger's part of the configuration.

use super::namespaces::Namespaces;
use super::policy::Policy;
use crate::placement;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub policy: Policy,
    /// Which engine chooses their CPUs and how, and which ones are reserved.
    pub placement: placement::Settings,
    /// Whether a container with exclusive CPUs gets their numbers in its
    /// [`environment`](super::environment).
    pub expose_cpus: bool,
    /// Whether the memory of a container with exclusive CPUs is bound to their NUMA nodes.
    pub mems_follow_cpus: bool,
    pub namespaces: Namespaces,
}
