//! [`Means`]: what keeps other containers off exclusive CPUs, by the configuration and by what this
//! node can do.

use super::hierarchy::Hierarchy;
use super::probe::{ProbeError, binding, probe};
use crate::ledger::Mechanism;
use std::path::Path;

/// `exclusivity`: what the administrator wants to keep other containers off exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exclusivity {
    /// Partitions where they can be had, else cgroups, else the runtime.
    #[default]
    Auto,
    Runtime,
    /// Cgroups; the runtime where they cannot.
    Groups,
    /// Partitions; an error where they cannot be had.
    Kernel,
}

/// The mechanism in force, and why it is not a better one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    pub mechanism: Mechanism,
    /// Why it is not what the configuration names first; `None` if it is.
    pub because: Option<String>,
}

impl Exclusivity {
    pub const ALL: [Exclusivity; 4] =
        [Exclusivity::Auto, Exclusivity::Runtime, Exclusivity::Groups, Exclusivity::Kernel];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Exclusivity::Auto => "auto",
            Exclusivity::Runtime => "runtime",
            Exclusivity::Groups => "groups",
            Exclusivity::Kernel => "kernel",
        }
    }
}

impl Means {
    /// The first of what is wanted that is possible below a hierarchy.
    ///
    /// # Errors
    /// If partitions are demanded and the kernel makes none.
    pub fn choose(wanted: Exclusivity, cgroup_root: &Path) -> Result<Means, ProbeError> {
        let partitions = || probe(cgroup_root);
        let as_wanted = |mechanism| Means { mechanism, because: None };
        match wanted {
            Exclusivity::Runtime => Ok(as_wanted(Mechanism::Runtime)),
            Exclusivity::Groups => Ok(Means::groups(binding(cgroup_root), None)),
            Exclusivity::Kernel => partitions().map(|_| as_wanted(Mechanism::Partitions)),
            Exclusivity::Auto => Ok(match partitions() {
                Ok(_) => as_wanted(Mechanism::Partitions),
                Err(why) => {
                    Means::groups(binding(cgroup_root), Some(format!("no partitions: {why}")))
                }
            }),
        }
    }

    fn groups(able: Result<Hierarchy, ProbeError>, because: Option<String>) -> Means {
        match able {
            Ok(_) => Means { mechanism: Mechanism::Groups, because },
            Err(why) => {
                let why = format!("no groups: {why}");
                let because =
                    because.map_or_else(|| why.clone(), |first| format!("{first}; {why}"));
                Means { mechanism: Mechanism::Runtime, because: Some(because) }
            }
        }
    }

    /// Logs what it is, if it is not what was wanted first. Only the loss of what was asked for by
    /// name is worth a warning.
    pub fn log(&self, wanted: Exclusivity) {
        let Some(because) = &self.because else { return };
        let level = if wanted == Exclusivity::Auto { log::Level::Info } else { log::Level::Warn };
        log::log!(level, "exclusivity: {}: {because}", self.mechanism);
    }
}
