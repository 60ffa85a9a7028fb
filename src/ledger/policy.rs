//! Which containers may have exclusive CPUs, and what keeps other containers off them.

use std::fmt;

/// Which containers may have exclusive CPUs (the kubelet's `cpuManagerPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// None: containers are left alone.
    #[default]
    None,
    /// Containers of Guaranteed pods that ask for whole CPUs.
    Static,
}

impl Policy {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Static => "static",
        }
    }
}

/// What keeps other containers off exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exclusivity {
    /// The runtime: it updates every shared container to run elsewhere. Needs no privileges.
    #[default]
    Runtime,
    /// The groups above other containers: `cpuset.cpus` of the QoS classes' groups and of pods says
    /// where the containers in them may run, whatever is set for these. Needs no privileges. No
    /// container outside the pod is updated.
    Groups,
    /// The kernel: the container's control group becomes a cpuset partition, and nothing else on
    /// the machine runs there. No container outside the pod is updated.
    Kernel,
}

impl fmt::Display for Exclusivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exclusivity::Runtime => "runtime",
            Exclusivity::Groups => "groups",
            Exclusivity::Kernel => "kernel",
        })
    }
}
