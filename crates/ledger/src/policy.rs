//! Which containers may have exclusive CPUs, what keeps other containers off them, and who assigns the
//! node's CPUs.

use std::fmt;

/// Which containers may have exclusive CPUs (the kubelet's `cpuManagerPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// None: containers stay as the runtime makes them.
    #[default]
    None,
    /// Containers of Guaranteed pods that ask for whole CPUs.
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

/// What keeps other containers off exclusive CPUs: what the node can do, and not a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mechanism {
    /// The runtime updates every shared container to run elsewhere.
    #[default]
    Runtime,
    /// The cgroups above other containers bind these, whatever is set for the containers.
    Groups,
    /// The container's cgroup is a cpuset partition: nothing else on the machine runs there.
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

/// Whether the ledger or the kubelet assigns the node's CPUs, and what follows for new containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stance {
    #[default]
    Assign,
    /// The kubelet or another plugin does. The ledger refuses new containers that ask for exclusive
    /// CPUs and changes nothing else.
    Refuse,
    /// The kubelet or another plugin does. The ledger changes nothing, and the log says what it
    /// would decide.
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
