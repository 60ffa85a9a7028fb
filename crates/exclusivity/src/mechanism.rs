//! [`Means`]: what keeps other containers off exclusive CPUs, by the configuration and by what this
//! node can do.

use cgroups::{ProbeError, binding, probe};
use kernel::Kernel;
use ledger::Mechanism;
use std::path::Path;
use std::sync::Arc;

/// `exclusivity` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exclusivity {
    /// Partitions where the kernel makes them, else cgroups, else the runtime.
    #[default]
    Auto,
    Runtime,
    /// Cgroups; the runtime where they cannot.
    Groups,
    /// Partitions; an error where the kernel makes none.
    Kernel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    pub mechanism: Mechanism,
    /// Why it is not what the configuration names first; `None` if it is.
    pub because: Option<String>,
}

impl Exclusivity {
    pub const ALL: [Exclusivity; 4] =
        [Exclusivity::Auto, Exclusivity::Runtime, Exclusivity::Groups, Exclusivity::Kernel];

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
    /// The best mechanism for `configured` that this node offers.
    ///
    /// # Errors
    /// Only [`Exclusivity::Kernel`] has no fallback.
    pub fn choose(
        configured: Exclusivity,
        kernel: &Arc<dyn Kernel>,
        cgroup_root: &Path,
    ) -> Result<Means, ProbeError> {
        let mut failures = Vec::new();
        if matches!(configured, Exclusivity::Kernel | Exclusivity::Auto) {
            match probe(kernel, cgroup_root) {
                Ok(_) => return Ok(Means { mechanism: Mechanism::Partitions, because: None }),
                Err(why) if configured == Exclusivity::Kernel => return Err(why),
                Err(why) => failures.push(format!("no partitions: {why}")),
            }
        }
        let mut mechanism = Mechanism::Runtime;
        if configured != Exclusivity::Runtime {
            match binding(kernel, cgroup_root) {
                Ok(_) => mechanism = Mechanism::Groups,
                Err(why) => failures.push(format!("no groups: {why}")),
            }
        }
        let because = if failures.is_empty() { None } else { Some(failures.join("; ")) };
        Ok(Means { mechanism, because })
    }

    /// Logs a fallback. Only the loss of what was configured by name is a warning.
    pub fn log(&self, configured: Exclusivity) {
        let Some(because) = &self.because else { return };
        let level =
            if configured == Exclusivity::Auto { log::Level::Info } else { log::Level::Warn };
        log::log!(level, "exclusivity: {}: {because}", self.mechanism);
    }
}

/// What follows for the plugin where cgroups are not writable, with the error.
pub fn consequence(why: &ProbeError) -> String {
    match why {
        ProbeError::NoHierarchy(_) => {
            format!("decisions are neither verified nor repaired: {why}")
        }
        _ => format!(
            "{why}. Only the runtime sets CPUs: before NRI 0.12.1, drift and CPUs that it loses while it starts a \
             container are repaired with its next call, and a CFS quota that it does not lift stays"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_consequence_names_the_reason_and_the_effect() {
        let root = PathBuf::from("/sys/fs/cgroup");
        let read_only = ProbeError::ReadOnly { root: root.clone(), error: "no".into() };
        for (why, parts) in [
            (read_only, ["/sys/fs/cgroup cannot be written: no;", "repaired with its next call"]),
            (
                ProbeError::NoHierarchy(root),
                ["neither verified nor repaired", "/sys/fs/cgroup has no"],
            ),
        ] {
            let text = consequence(&why);
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
