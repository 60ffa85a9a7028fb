//! A pod's own CFS quota, which throttles its exclusive containers although theirs is lifted.
//!
//! The kubelet gives a pod's group the sum of its containers' limits. Exclusive CPUs are all that such a container can
//! use, so the quota can only harm: rounding and bookkeeping between CPUs throttle it while it uses no more than its own.
//! The kubelet lifts it under its static policy (kubernetes/kubernetes#127525), and does not know that it should here.

use super::hierarchy::{FileError, Hierarchy};
use crate::ledger::CgroupPath;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

const MAX: &str = "cpu.max";
/// Where the quota is remembered that was lifted: on the group itself, so that it is known as long as it matters.
const REMEMBERED: &str = "user.nri-cpu-manager.cpu.max";
/// No quota, with the period left as it is.
const NONE: &str = "max";

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

/// Puts a quota back that was lifted, unless somebody has set another one since. Says whether it did.
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
