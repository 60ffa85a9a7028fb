//! CFS quotas, which throttle exclusive CPUs: the container's own, and that of its pod.
//!
//! Exclusive CPUs are all that such a container can use, so a quota can only harm: rounding and
//! bookkeeping between CPUs throttle it while it uses no more than its own. The plugin asks the
//! runtime to lift the container's; not every one does so for a container that runs. The pod's no
//! runtime knows: the kubelet gives a pod's group the sum of its containers' limits. It lifts that
//! under its static policy (kubernetes/kubernetes#127525), and does not know that it should here.

use super::hierarchy::{FileError, Hierarchy, Version};
use crate::ledger::CgroupPath;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

const MAX: &str = "cpu.max";
/// Where the quota is remembered that was lifted: on the group itself, so that it is known as long
/// as it matters.
const REMEMBERED: &str = "user.nri-cpu-manager.cpu.max";
/// No quota, with the period left as it is.
const NONE: &str = "max";

/// The file of a quota, by either interface, and what is in it without one.
fn file(version: Version) -> (&'static str, &'static str) {
    match version {
        Version::V1 => ("cpu.cfs_quota_us", "-1"),
        Version::V2 => (MAX, NONE),
    }
}

/// A group's quota, if it has one. Where the CPU controller is not in use there is none.
///
/// # Errors
/// If it cannot be read.
pub(super) fn of(on: &Hierarchy, group: &CgroupPath) -> Result<Option<String>, FileError> {
    let (file, none) = file(on.version());
    match on.of_cpu().read(group, file) {
        Ok(quota) => Ok(Some(quota).filter(|quota| !quota.starts_with(none))),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a container's own quota. Its value needs no record here: the runtime sets another one by
/// its limit.
///
/// # Errors
/// If it cannot be written.
pub(super) fn end(on: &Hierarchy, group: &CgroupPath) -> Result<(), FileError> {
    let (file, none) = file(on.version());
    on.of_cpu().write(group, file, none)
}

/// Lifts a group's quota and remembers it. Says whether there was one.
///
/// # Errors
/// If it cannot be read, written or remembered; it is not lifted then.
pub(super) fn lift(on: &Hierarchy, group: &CgroupPath) -> Result<bool, FileError> {
    let quota = on.read(group, MAX)?;
    if quota.starts_with(NONE) {
        return Ok(false);
    }
    let path = on.directory(group);
    rustix::fs::setxattr(&path, REMEMBERED, quota.as_bytes(), XattrFlags::empty())
        .map_err(|error| FileError::Write { path, value: quota.clone(), source: error.into() })?;
    on.write(group, MAX, NONE)?;
    Ok(true)
}

/// Puts a quota back that was lifted, unless another one has been set since. Says whether it did.
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn restore(on: &Hierarchy, group: &CgroupPath) -> Result<bool, FileError> {
    let path = on.directory(group);
    let mut buffer = [0; 64];
    let quota = match rustix::fs::getxattr(&path, REMEMBERED, &mut buffer) {
        Ok(length) => {
            String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned()
        }
        // It was never lifted, or its file system cannot remember anything.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => return Ok(false),
        Err(error) => return Err(FileError::Read { path, source: error.into() }),
    };
    let lifted = on.read(group, MAX)?.starts_with(NONE);
    if lifted {
        on.write(group, MAX, &quota)?;
    }
    rustix::fs::removexattr(&path, REMEMBERED).map_err(|error| FileError::Write {
        path,
        value: String::new(),
        source: error.into(),
    })?;
    Ok(lifted)
}
