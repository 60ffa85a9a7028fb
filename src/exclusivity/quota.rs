//! CFS quotas, which throttle exclusive CPUs: the container's own, and that of its pod.
//!
//! A container cannot use more than its exclusive CPUs, so a quota can only do harm: rounding and
//! the kernel's accounting per CPU throttle a container that uses no more than its own CPUs. The
//! plugin asks the runtime to lift the container's quota, but not every runtime does so for a
//! running container. No runtime knows the pod's quota: the kubelet gives a pod's group the sum of
//! its containers' limits. It lifts that quota under its own static policy only
//! (kubernetes/kubernetes#127525).

use super::hierarchy::{FileError, Hierarchy, Version};
use super::memory::Memory;
use crate::ledger::{CgroupPath, MilliCpu};

const MAX: &str = "cpu.max";
/// The value for no quota; it leaves the period unchanged.
const NONE: &str = "max";

/// The file of a quota, and its content without a quota.
fn file(version: Version) -> (&'static str, &'static str) {
    match version {
        Version::V1 => ("cpu.cfs_quota_us", "-1"),
        Version::V2 => (MAX, NONE),
    }
}

/// A group's quota; `None` also without the CPU controller.
///
/// # Errors
/// If it cannot be read.
pub fn quota_of(on: &Hierarchy, group: &CgroupPath) -> Result<Option<String>, FileError> {
    let (file, none) = file(on.version());
    match on.of_cpu().read(group, file) {
        Ok(quota) => Ok(Some(quota).filter(|quota| !quota.starts_with(none))),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a container's own quota. This needs no record of the old value: the runtime sets a new
/// quota from the container's limit.
///
/// # Errors
/// If it cannot be written.
pub(super) fn end(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    let (file, none) = file(on.version());
    on.of_cpu().write(group, file, none)
}

/// Sets a container's own quota to its limit, unless it has one. Returns whether it did.
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn set(on: &Hierarchy, group: &CgroupPath, limit: MilliCpu) -> Result<bool, FileError> {
    let lifted = on.read(group, MAX)?.starts_with(NONE);
    if lifted {
        let (quota, period) = limit.quota();
        on.write(group, MAX, &format!("{quota} {period}"))?;
    }
    Ok(lifted)
}

/// Lifts a group's quota, and remembers it first. Returns whether there was one.
///
/// # Errors
/// If it cannot be read or written; it stays in force then.
pub(super) fn lift(
    on: &Hierarchy,
    memory: &mut Memory,
    group: &CgroupPath,
) -> Result<bool, FileError> {
    let quota = on.read(group, MAX)?;
    if quota.starts_with(NONE) {
        return Ok(false);
    }
    memory.change(group, |record| record.quota = Some(quota));
    memory.save();
    on.write(group, MAX, NONE)?;
    Ok(true)
}

/// Puts a lifted quota back, unless there is a new one. Returns whether it did.
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn restore(
    on: &Hierarchy,
    memory: &mut Memory,
    group: &CgroupPath,
) -> Result<bool, FileError> {
    let Some(quota) = memory.get(group).and_then(|record| record.quota.clone()) else {
        return Ok(false);
    };
    let lifted = on.read(group, MAX)?.starts_with(NONE);
    if lifted {
        on.write(group, MAX, &quota)?;
    }
    memory.change(group, |record| record.quota = None);
    memory.save();
    Ok(lifted)
}
