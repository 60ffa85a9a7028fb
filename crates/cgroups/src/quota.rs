//! CFS quotas, which throttle exclusive CPUs: the container's own, and that of its pod.
//!
//! A container cannot use more than its exclusive CPUs, so a quota can only do harm: rounding and
//! the kernel's accounting per CPU throttle a container that uses no more than its own CPUs. A
//! runtime can be asked to lift the container's quota, but not every runtime does so for a running
//! container. No runtime knows the pod's quota: the kubelet gives a pod's cgroup the sum of
//! its containers' limits. It lifts that quota under its own static policy only
//! (kubernetes/kubernetes#127525).

use super::hierarchy::{CgroupVersion, FileError, Hierarchy, unless_gone};
use super::records::CgroupRecords;
use cpuset::CgroupPath;
use std::path::PathBuf;

/// The file with a quota, and its content where there is none. In version 2, a write of that content
/// leaves the period unchanged.
fn file(version: CgroupVersion) -> (&'static str, &'static str) {
    match version {
        CgroupVersion::V1 => ("cpu.cfs_quota_us", "-1"),
        CgroupVersion::V2 => ("cpu.max", "max"),
    }
}

/// A cgroup's quota; `None` also if it is gone or has no CPU controller.
pub fn quota_of(on: &Hierarchy, group: &CgroupPath) -> Result<Option<String>, FileError> {
    let (file, none) = file(on.version());
    let quota = unless_gone(on.of_cpu().read(group, file))?;
    Ok(quota.filter(|quota| !quota.starts_with(none)))
}

/// Lifts a quota without a record of it: the runtime sets a container's new quota from its limit.
pub fn lift_quota(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    let (file, none) = file(on.version());
    on.of_cpu().write(group, file, none)
}

/// Sets a quota, unless there is one. Returns whether it did.
pub(super) fn set(on: &Hierarchy, group: &CgroupPath, quota: &str) -> Result<bool, FileError> {
    if quota_of(on, group)?.is_some() {
        return Ok(false);
    }
    let (file, _) = file(on.version());
    on.of_cpu().write(group, file, quota).map(|()| true)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaChange {
    Lifted,
    /// The kubelet (at a resize) or systemd (at a daemon-reload) had set it again.
    LiftedAgain,
    Restored,
}

pub(super) fn path(on: &Hierarchy, group: &CgroupPath) -> PathBuf {
    let (file, _) = file(on.version());
    on.of_cpu().directory(group).join(file)
}

/// Records a pod's quota, then lifts it; `None` if there is none.
pub(super) fn record_and_lift(
    on: &Hierarchy,
    records: &mut CgroupRecords,
    group: &CgroupPath,
) -> Result<Option<QuotaChange>, FileError> {
    let Some(quota) = quota_of(on, group)? else { return Ok(None) };
    let again = records.get(group).is_some_and(|record| record.quota.is_some());
    records.change(group, |record| record.quota = Some(quota));
    records.save();
    lift_quota(on, group)?;
    Ok(Some(if again { QuotaChange::LiftedAgain } else { QuotaChange::Lifted }))
}

/// Restores a lifted quota; `None` if none was lifted or another program has set a new one.
pub(super) fn restore(
    on: &Hierarchy,
    records: &mut CgroupRecords,
    group: &CgroupPath,
) -> Result<Option<QuotaChange>, FileError> {
    let Some(quota) = records.get(group).and_then(|record| record.quota.clone()) else {
        return Ok(None);
    };
    let restored = set(on, group, &quota)?;
    records.change(group, |record| record.quota = None);
    records.save();
    Ok(if restored { Some(QuotaChange::Restored) } else { None })
}
