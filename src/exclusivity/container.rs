//! Writes into the cgroups of single containers, where the runtime has not made or cannot make them.

use super::affinity;
use super::cgroup_tree::Write;
use super::hierarchy::{FileError, Hierarchy};
use super::quota;
use cpuset::CpuSet;
use ledger::Target;

#[derive(Debug, thiserror::Error)]
pub enum KernelRefusal {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the runtime does not name the container's cgroup")]
    Nowhere,
    #[error("a cpuset partition beside it still has {}", wording::cpus(.0))]
    Beside(CpuSet),
}

impl KernelRefusal {
    /// Whether the cgroup does not exist (any more): it needs no CPUs then.
    pub fn is_gone(&self) -> bool {
        matches!(self, KernelRefusal::File(error) if error.is_gone())
    }
}

/// Sets a container's CPUs without the runtime, whose own record becomes wrong: only for cases
/// without a better way. This process cannot write the cgroup that it is in itself, where that
/// is the root of its cgroup namespace: its threads' affinity is set then.
///
/// # Errors
/// Also if the cgroup is gone or not known, or a partition beside it has some of the CPUs.
pub fn set_cpus(on: &Hierarchy, target: &Target) -> Result<(), KernelRefusal> {
    let Some(group) = &target.cgroup else { return Err(KernelRefusal::Nowhere) };
    let held = on.held_beside(group) & target.setting.cpus();
    if !held.is_empty() {
        return Err(KernelRefusal::Beside(held));
    }
    let cpus = target.setting.cpus();
    match on.make(group, Write::Cpus(cpus)) {
        Err(error) if error.is_forbidden() && on.is_own(group) => {
            Ok(affinity::confine_self(on.kernel(), cpus).map_err(|_| error)?)
        }
        result => Ok(result?),
    }
}

/// Lifts an exclusive container's own CFS quota, after the runtime has ignored the request.
pub fn lift_quota(on: &Hierarchy, target: &Target) -> Result<(), FileError> {
    match &target.cgroup {
        Some(group) if target.setting.is_exclusive() => quota::end(on, group),
        _ => Ok(()),
    }
}
