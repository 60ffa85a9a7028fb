//! Writes into the cgroups of single containers that the runtime has not made or cannot make.

use super::affinity;
use super::cgroup_tree::Write;
use super::hierarchy::{FileError, Hierarchy};
use cpuset::{CgroupPath, CpuSet};

#[derive(Debug, thiserror::Error)]
pub enum KernelRefusal {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a cpuset partition beside it still has {}", wording::cpus(.0))]
    HeldBySiblings(CpuSet),
}

impl KernelRefusal {
    /// Whether the cgroup does not exist (any more): it needs no CPUs then.
    pub fn is_gone(&self) -> bool {
        matches!(self, KernelRefusal::File(error) if error.is_gone())
    }
}

/// Sets a container's CPUs without the runtime, whose own record becomes wrong: use it only where the
/// runtime cannot. If the cgroup is this process's own and the root of its cgroup namespace, the
/// process cannot write it: the affinity of its threads is set instead.
///
/// # Errors
/// Also if the cgroup is gone, or the partition of a sibling has some of the CPUs.
pub fn set_cpus(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), KernelRefusal> {
    let held = on.held_by_siblings(group) & cpus;
    if !held.is_empty() {
        return Err(KernelRefusal::HeldBySiblings(held));
    }
    match on.make(group, Write::Cpus(cpus)) {
        Err(error) if error.is_forbidden() && on.is_own(group) => {
            Ok(affinity::confine_self(on.kernel(), cpus).map_err(|_| error)?)
        }
        result => Ok(result?),
    }
}
