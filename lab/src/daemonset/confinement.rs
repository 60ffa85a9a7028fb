//! The confinement of a process, as reported by the kernel.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};

use crate::process::status_field;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    pub user: u32,
    pub capabilities: u64,
    /// Bounding set.
    pub bounding: u64,
    pub no_new_privileges: bool,
    /// 2 means a filter.
    pub seccomp: u32,
    /// Mode of `/sys/fs/cgroup` in its mount namespace.
    pub cgroup_mode: u32,
    /// Whether its own cgroup is the root of its cgroup namespace.
    pub cgroup_namespace: bool,
    /// Writable mount points other than `/proc` and `/dev`, which every container has.
    pub writable: Vec<String>,
}

impl Confinement {
    pub fn of(pid: u32) -> Result<Self> {
        let field = |name: &str| {
            status_field(pid, name)
                .with_context(|| format!("no {name} in the status of process {pid}"))
        };
        let bits = |name: &str| -> Result<u64> {
            u64::from_str_radix(&field(name)?, 16).with_context(|| format!("unexpected {name}"))
        };
        // Real, effective, saved and file system user.
        let users = field("Uid")?;
        let user = users.split_whitespace().nth(1).and_then(|user| user.parse().ok());
        let cgroups = format!("/proc/{pid}/root/sys/fs/cgroup");
        let cgroups =
            fs::metadata(&cgroups).with_context(|| format!("cannot read the mode of {cgroups}"))?;
        let namespace = |of: &str| {
            let path = format!("/proc/{of}/ns/cgroup");
            fs::read_link(&path).with_context(|| format!("cannot read {path}"))
        };
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .with_context(|| format!("cannot read the mounts of process {pid}"))?;
        Ok(Self {
            user: user.context("unexpected Uid")?,
            capabilities: bits("CapEff")?,
            bounding: bits("CapBnd")?,
            no_new_privileges: field("NoNewPrivs")? == "1",
            seccomp: field("Seccomp")?.parse().context("unexpected Seccomp")?,
            cgroup_mode: cgroups.permissions().mode() & 0o7777,
            cgroup_namespace: namespace(&pid.to_string())? != namespace("self")?,
            writable: mounts.lines().filter_map(writable).collect(),
        })
    }
}

/// The mount point of a line of `mountinfo` if it is writable.
fn writable(line: &str) -> Option<String> {
    let (of_mount, of_file_system) = line.split_once(" - ")?;
    let mut fields = of_mount.split(' ').skip(4);
    let (point, options) = (fields.next()?, fields.next()?);
    let super_options = of_file_system.split(' ').nth(2)?;
    let read_only = [options, super_options].iter().any(|o| o.split(',').any(|o| o == "ro"));
    let everywhere =
        ["/proc", "/dev"].iter().any(|top| point == *top || point.starts_with(&format!("{top}/")));
    (!read_only && !everywhere).then(|| point.to_owned())
}

/// Whether a directory is read-only in the mount namespace of a process. Tried with full
/// privileges, so that only the file system counts.
pub fn refuses_writes(pid: u32, directory: &str) -> Result<bool> {
    let path = format!("/proc/{pid}/root{directory}/lab-was-here");
    match fs::create_dir(&path) {
        Ok(()) => {
            fs::remove_dir(&path).with_context(|| format!("cannot remove {path} again"))?;
            Ok(false)
        }
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot try to write to {directory}")),
    }
}
