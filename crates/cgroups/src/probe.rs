//! Finds out whether this process can write the node's cgroups, and whether the kernel makes cpuset
//! partitions.

use super::hierarchy::{CgroupVersion, Hierarchy};
use kernel::Kernel;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first Linux that returns the CPUs of a removed partition at once. Linux since 6.7 has partitions
/// below ordinary cgroups, but returns their CPUs later: a container that restarts at once would break
/// the partition.
const FIRST_LINUX: (u32, u32) = (6, 15);
/// The first release of a stable series with the same change.
const FIRST_OF_SERIES: (u32, u32, u32) = (6, 12, 24);
/// The capability that partitions need (`linux/capability.h`).
const CAP_SYS_ADMIN: u32 = 21;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    #[error("{} has no cpuset controller: is the host's cgroup file system mounted there?", .0.display())]
    NoHierarchy(PathBuf),
    #[error("{} is cgroup v1: partitions and groups need v2", .0.display())]
    V1(PathBuf),
    #[error("cpuset partitions need Linux 6.12.24, or 6.15 and newer, and this is {0}")]
    OldLinux(String),
    /// The file system is mounted read-only, or a security module forbids writes.
    #[error("cgroups in {} cannot be written: {error}; mount the host's cgroup file system there read-write", root.display())]
    ReadOnly { root: PathBuf, error: String },
    #[error("the capability SYS_ADMIN is missing")]
    NoCapability,
}

/// The hierarchy below `root`, if its cgroups are writable.
pub fn writable(kernel: &Arc<dyn Kernel>, root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy = open(kernel, root)?;
    match hierarchy.check_writable() {
        Ok(()) => Ok(hierarchy),
        Err(error) => Err(ProbeError::ReadOnly { root: root.to_owned(), error: error.to_string() }),
    }
}

/// The hierarchy below `root`, if cgroups above containers can keep these in the shared pool.
pub fn binding(kernel: &Arc<dyn Kernel>, root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy = writable(kernel, root)?;
    match hierarchy.version() {
        CgroupVersion::V1 => Err(ProbeError::V1(root.to_owned())),
        CgroupVersion::V2 => Ok(hierarchy),
    }
}

/// The hierarchy below `root`, if the kernel makes partitions in it.
pub fn probe(kernel: &Arc<dyn Kernel>, root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy = open(kernel, root)?;
    if hierarchy.version() == CgroupVersion::V1 {
        return Err(ProbeError::V1(root.to_owned()));
    }
    let release = kernel.text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    if !is_new(&release) {
        return Err(ProbeError::OldLinux(release));
    }
    writable(kernel, root)?;
    let status = kernel.text(Path::new("/proc/self/status")).unwrap_or_default();
    if !has_capability(&status, CAP_SYS_ADMIN) {
        return Err(ProbeError::NoCapability);
    }
    Ok(hierarchy)
}

fn open(kernel: &Arc<dyn Kernel>, root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy = Hierarchy::open_on(Arc::clone(kernel), root);
    hierarchy.ok_or_else(|| ProbeError::NoHierarchy(root.to_owned()))
}

fn is_new(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor)) = (next(), next()) else { return false };
    let series = (FIRST_OF_SERIES.0, FIRST_OF_SERIES.1);
    let patch = next().unwrap_or(0);
    (major, minor) >= FIRST_LINUX || ((major, minor) == series && patch >= FIRST_OF_SERIES.2)
}

/// Reads the effective capabilities of `/proc/PID/status`.
fn has_capability(status: &str, capability: u32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> capability & 1 == 1)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]
mod tests {
    use super::*;
    use kernel::Linux;
    use rustix::thread::CapabilitySet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn partitions_need_linux_6_12_24_or_6_15() {
        for (release, new) in [
            ("6.12.24", true),
            ("6.12.95+deb12-cloud-amd64", true),
            ("6.15.0", true),
            ("7.0-rc1", true),
            ("6.12.9+bpo-cloud-amd64", false),
            ("6.12.0-55.el10", false),
            ("6.13.12", false),
            ("6.7.0", false),
            ("6.6.90-talos", false),
            ("5.14.0-503.el9", false),
            ("", false),
            ("six", false),
        ] {
            assert_eq!(is_new(release), new, "{release:?}");
        }
    }

    #[test]
    fn an_effective_capability_is_read_from_the_status_of_a_process() {
        for (status, has) in [
            ("Name:\tx\nCapEff:\t000001ffffffffff\n", true),
            ("CapEff:\t0000000000200000\n", true),
            ("CapEff:\t00000000a80425fb\n", false),
            ("CapEff:\t0000000000000000\n", false),
            ("CapEff:\tzz\n", false),
            ("", false),
        ] {
            assert_eq!(has_capability(status, CAP_SYS_ADMIN), has, "{status:?}");
        }
    }

    fn linux() -> Arc<dyn Kernel> {
        Arc::new(Linux)
    }

    #[test]
    fn a_probe_names_what_a_node_lacks() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(probe(&linux(), root).err(), Some(ProbeError::NoHierarchy(root.to_owned())));
        fs::create_dir(root.join("cpuset")).unwrap();
        fs::write(root.join("cpuset/cpuset.cpus"), "0-3\n").unwrap();
        assert_eq!(probe(&linux(), root).err(), Some(ProbeError::V1(root.to_owned())));
        fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(
            probe(&linux(), root).err(),
            Some(ProbeError::V1(root.to_owned())),
            "hybrid: cpuset is a v1 one"
        );
        fs::write(root.join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        fs::create_dir(root.join("kubepods")).unwrap();
        fs::write(root.join("kubepods/cpuset.cpus.exclusive"), "\n").unwrap();
        // There is no `cgroup.procs` to write.
        assert!(matches!(probe(&linux(), root), Err(ProbeError::ReadOnly { .. })));
        assert!(writable(&linux(), root).unwrap_err().to_string().contains("No such file"));
    }

    /// As on a host with systemd, for a process without `CAP_DAC_OVERRIDE`: the directory is read-only,
    /// and its files are not.
    #[test]
    fn cgroups_are_writable_where_only_their_directory_is_read_only() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = root.path().join(name);
            fs::write(&path, "cpuset\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        file("cgroup.controllers", 0o444);
        let probed = || {
            let mode = fs::Permissions::from_mode(0o555);
            fs::set_permissions(root.path(), mode).unwrap();
            let probed = without_overriding_modes(|| writable(&linux(), root.path()));
            fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
            probed
        };
        file("cgroup.procs", 0o644);
        assert!(probed().is_ok());
        file("cgroup.procs", 0o444);
        let why = probed().unwrap_err().to_string();
        assert!(why.contains("cannot be written: Permission denied"), "{why}");
    }

    /// In a separate thread: capabilities belong to threads.
    fn without_overriding_modes<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
            rustix::thread::set_capabilities(None, sets).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }
}
