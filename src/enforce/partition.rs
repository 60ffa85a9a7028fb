//! cpuset partitions: the kernel takes a group's CPUs away from everybody else on the machine, and gives them back when
//! the group is removed, whether this program runs or not.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` of the kernel, `cpuset.cpus.exclusive` (Linux 6.7) and
//! `cpuset.cpus.partition`. A group becomes a *remote* partition of CPUs that all groups above it have in their
//! `cpuset.cpus.exclusive`, which works at any depth below groups that are none.

use super::hierarchy::{FileError, Hierarchy};
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use std::fmt;

const CPUS: &str = "cpuset.cpus";
const EFFECTIVE: &str = "cpuset.cpus.effective";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";
/// What a group is that is no partition.
const MEMBER: &str = "member";

/// What an exclusive container's group becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A scheduling domain of its own, in which the kernel balances load: right for ordinary programs.
    #[default]
    Root,
    /// No load balancing at all, as with `isolcpus`: for programs that place their own threads.
    Isolated,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Root => "root",
            Kind::Isolated => "isolated",
        })
    }
}

/// Why the kernel does not keep others off a group's CPUs.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The runtime did not say where the container's group is.
    #[error("the runtime does not tell the container's control group")]
    Nowhere,
    /// All writes went through, but the group is no valid partition of its CPUs.
    #[error(
        "{group} is {state:?} with CPUs {effective} after {kind:?} of CPUs {cpus} was asked for"
    )]
    Invalid {
        /// The group.
        group: CgroupPath,
        /// What `cpuset.cpus.partition` says; the kernel's reason is in it.
        state: String,
        /// The CPUs it really has.
        effective: CpuSet,
        /// What was asked for.
        kind: Kind,
        /// The CPUs that were asked for.
        cpus: CpuSet,
    },
}

impl Refused {
    /// Whether the group is not there (any more): nothing has to be kept then.
    pub fn is_gone(&self) -> bool {
        matches!(self, Refused::File(error) if error.is_gone())
    }
}

/// Lets the groups above `group` pass `cpus` on to it. The group itself need not be there yet.
///
/// # Errors
/// If the kernel refuses; because another partition has some of them, as a rule.
pub(super) fn reserve(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    let widen = || {
        for ancestor in group.ancestors() {
            let has = on.cpus(&ancestor, EXCLUSIVE)?;
            if !cpus.is_subset(&has) {
                on.write(&ancestor, EXCLUSIVE, &(has | cpus).to_string())?;
            }
        }
        Ok(())
    };
    // What ended containers have left above them may be in the way: only then is it worth looking for.
    widen().or_else(|error: FileError| match error.is_gone() {
        true => Err(error),
        false => {
            group.top().map(|top| tidy(on, &top));
            widen()
        }
    })
}

/// Makes `group` a partition of `cpus`, whatever it was before. Everything is read back.
///
/// # Errors
/// If the kernel refuses. The group is an ordinary one then.
pub(super) fn keep(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: Kind,
) -> Result<(), Refused> {
    if holds(on, group, cpus, kind)? && on.cpus(group, EXCLUSIVE)? == cpus {
        return Ok(());
    }
    let result = make(on, group, cpus, kind);
    if result.as_ref().is_err_and(|refused| !refused.is_gone()) {
        // As far as it can be: the error that counts is the first one.
        let _ = release(on, group);
    }
    result
}

fn make(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet, kind: Kind) -> Result<(), Refused> {
    reserve(on, group, cpus)?;
    // CPUs that it gives up leave `cpuset.cpus` first, CPUs that it gets come last, so that it always has some.
    let list = cpus.to_string();
    if on.cpus(group, CPUS)? != cpus {
        on.write(group, CPUS, &list)?;
    }
    on.write(group, EXCLUSIVE, &list)?;
    if holds(on, group, cpus, kind)? {
        return Ok(());
    }
    // An invalid partition, or one of the other kind, does not always become valid by being asked again.
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    on.write(group, PARTITION, &kind.to_string())?;
    if holds(on, group, cpus, kind)? {
        return Ok(());
    }
    let (state, effective) = (on.read(group, PARTITION)?, on.cpus(group, EFFECTIVE)?);
    Err(Refused::Invalid { group: group.clone(), state, effective, kind, cpus })
}

/// Whether a group is a valid partition of just these CPUs.
pub(super) fn holds(
    on: &Hierarchy,
    group: &CgroupPath,
    cpus: CpuSet,
    kind: Kind,
) -> Result<bool, FileError> {
    Ok(on.read(group, PARTITION)? == kind.to_string() && on.cpus(group, EFFECTIVE)? == cpus)
}

/// Makes a group an ordinary one, whatever it was before.
///
/// # Errors
/// If it cannot be told what it is, or the kernel refuses.
pub(super) fn release(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    if on.read(group, PARTITION)? != MEMBER {
        on.write(group, PARTITION, MEMBER)?;
    }
    if !on.read(group, EXCLUSIVE)?.is_empty() {
        on.write(group, EXCLUSIVE, "")?;
    }
    Ok(())
}

/// Makes a group's `cpuset.cpus.exclusive` what the groups in it need, and says what that is. Groups that are gone
/// meanwhile need nothing; what cannot be written stays.
pub(super) fn tidy(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    let has = on.cpus(group, EXCLUSIVE).unwrap_or_default();
    let is_member = on.read(group, PARTITION).is_ok_and(|state| state == MEMBER);
    // Nothing below a group without any can have some, and what a partition does with its own is its own business.
    if has.is_empty() || !is_member {
        return has;
    }
    let needs: CpuSet = on.children(group).iter().map(|child| tidy(on, child)).collect();
    match needs == has || on.write(group, EXCLUSIVE, &needs.to_string()).is_err() {
        true => has,
        false => needs,
    }
}
