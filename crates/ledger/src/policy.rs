//! [`Policy`]: which containers may have exclusive CPUs; [`Mechanism`]: what keeps other containers
//! off these; [`Stance`]: whether the ledger or the kubelet assigns the node's CPUs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kubelet's `cpuManagerPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// No container: all stay as the runtime creates them.
    #[default]
    None,
    /// Containers of Guaranteed pods that request whole CPUs.
    Static,
}

impl Policy {
    pub const ALL: [Policy; 2] = [Policy::None, Policy::Static];

    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Static => "static",
        }
    }
}

/// What keeps other containers off exclusive CPUs. It follows from the node; no setting names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The runtime updates every shared container to run elsewhere.
    #[default]
    Runtime,
    /// Cgroups above the other containers keep these off, even if their own cgroups name the CPUs.
    Groups,
    /// The container's cgroup is a cpuset partition: no process outside it runs on its CPUs.
    #[serde(rename = "kernel")]
    Partitions,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::Runtime => "runtime",
            Mechanism::Groups => "groups",
            Mechanism::Partitions => "kernel",
        })
    }
}

/// Whether the ledger assigns the node's CPUs, and what it does otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stance {
    #[default]
    Assign,
    /// The kubelet or another plugin assigns them. The ledger refuses new containers that ask for
    /// exclusive CPUs and changes nothing else.
    Refuse,
    /// The ledger changes nothing, and shows and notes what it would decide. The kubelet or another plugin may assign
    /// them.
    Observe,
}

impl Stance {
    /// Its name in the configuration, the status and the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Stance::Assign => "assign",
            Stance::Refuse => "refuse",
            Stance::Observe => "observe",
        }
    }
}
