//! Finds out whether this process can write the node's control groups, and whether the kernel can
//! keep exclusivity.

use super::hierarchy::{Hierarchy, Version};
use crate::ledger::CgroupPath;
use nix::sys::utsname::uname;
use std::fs;
use std::path::{Path, PathBuf};

/// The first Linux with `cpuset.cpus.exclusive`, and so with partitions below ordinary groups.
const FIRST_LINUX: (u32, u32) = (6, 7);
/// The capability that partitions need (`linux/capability.h`).
const CAP_SYS_ADMIN: u32 = 21;

/// Why that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// There is no hierarchy.
    #[error("{} has no cpuset controller: is the host's cgroup file system mounted there?", .0.display())]
    NoHierarchy(PathBuf),
    /// It is cgroup v1.
    #[error("cpuset partitions need cgroup v2, and {} is version 1", .0.display())]
    Old(PathBuf),
    /// The same, where groups above containers are to keep them in the shared pool.
    #[error("groups above containers bind these with cgroup v2 only, and {} is version 1", .0.display())]
    OldForGroups(PathBuf),
    /// The kernel is too old.
    #[error("cpuset partitions in pods need Linux 6.7 or newer, and this is {0}")]
    OldLinux(String),
    /// It is mounted read-only, or a security module forbids writes.
    #[error("control groups in {} cannot be written: {error}. The host's cgroup file system has to be mounted there read-write", root.display())]
    ReadOnly {
        /// The mount point.
        root: PathBuf,
        /// The kernel's error.
        error: String,
    },
    /// Privileges are missing.
    #[error("the capability SYS_ADMIN is missing")]
    NoCapability,
}

impl ProbeError {
    /// The consequence of groups that are not writable, in words.
    pub fn consequence(&self) -> String {
        match self {
            ProbeError::NoHierarchy(_) => {
                format!("what was decided is neither verified nor repaired, because {self}")
            }
            _ => format!(
                "{self}. The runtime alone sets CPUs: before NRI 0.12.1 a drift waits for the next answer to it, and so does \
                 what it loses of a container that it is starting; a CFS quota that it does not lift stays"
            ),
        }
    }
}

/// The hierarchy below `root`, if its groups are writable.
///
/// # Errors
/// The reason if not.
pub fn writable(root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy =
        Hierarchy::open(root).ok_or_else(|| ProbeError::NoHierarchy(root.to_owned()))?;
    match hierarchy.check_writable() {
        Ok(()) => Ok(hierarchy),
        Err(error) => Err(ProbeError::ReadOnly { root: root.to_owned(), error: error.to_string() }),
    }
}

/// The hierarchy below `root`, if groups above containers can keep these in the shared pool.
///
/// # Errors
/// The reason if not.
pub fn binding(root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy = writable(root)?;
    match hierarchy.version() {
        Version::V1 => Err(ProbeError::OldForGroups(root.to_owned())),
        Version::V2 => Ok(hierarchy),
    }
}

/// The hierarchy below `root`, if the kernel makes partitions in it.
///
/// # Errors
/// The reason if not.
pub fn probe(root: &Path) -> Result<Hierarchy, ProbeError> {
    let hierarchy =
        Hierarchy::open(root).ok_or_else(|| ProbeError::NoHierarchy(root.to_owned()))?;
    if hierarchy.version() == Version::V1 {
        return Err(ProbeError::Old(root.to_owned()));
    }
    let release = uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    if !offers_exclusive(&hierarchy, root) && !is_new(&release) {
        return Err(ProbeError::OldLinux(release));
    }
    let hierarchy = writable(root)?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !has_capability(&status, CAP_SYS_ADMIN) {
        return Err(ProbeError::NoCapability);
    }
    Ok(hierarchy)
}

/// Whether some group has the file: distributions backport it to older kernels.
fn offers_exclusive(hierarchy: &Hierarchy, root: &Path) -> bool {
    let Ok(entries) = fs::read_dir(root) else { return false };
    entries
        .flatten()
        .filter_map(|entry| CgroupPath::new(entry.file_name().to_str()?))
        .any(|group| hierarchy.directory(&group).join("cpuset.cpus.exclusive").exists())
}

fn is_new(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    major.zip(minor).is_some_and(|version| version >= FIRST_LINUX)
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
mod tests {
    use super::*;
    use rustix::thread::CapabilitySet;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions() {
        for (release, new) in [
            ("6.7.0", true),
            ("6.12.9+bpo-cloud-amd64", true),
            ("7.0-rc1", true),
            ("6.6.90-talos", false),
            ("5.14.0-503.el9", false),
            ("", false),
            ("six", false),
        ] {
            assert_eq!(is_new(release), new, "{release:?}");
        }
    }

    #[test]
    fn capabilities() {
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

    #[test]
    fn what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(probe(root), Err(ProbeError::NoHierarchy(root.to_owned())));
        fs::create_dir(root.join("cpuset")).unwrap();
        fs::write(root.join("cpuset/cpuset.cpus"), "0-3\n").unwrap();
        assert_eq!(probe(root), Err(ProbeError::Old(root.to_owned())));
        fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(
            probe(root),
            Err(ProbeError::Old(root.to_owned())),
            "hybrid: cpuset is a v1 one"
        );
        fs::write(root.join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        fs::create_dir(root.join("kubepods")).unwrap();
        fs::write(root.join("kubepods/cpuset.cpus.exclusive"), "\n").unwrap();
        // No such file to write.
        assert!(matches!(probe(root), Err(ProbeError::ReadOnly { .. })));
        assert!(writable(root).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn what_follows_is_said() {
        let root = PathBuf::from("/sys/fs/cgroup");
        let read_only = ProbeError::ReadOnly { root: root.clone(), error: "no".into() };
        for (why, said) in [
            (read_only, ["/sys/fs/cgroup cannot be written: no.", "waits for the next answer"]),
            (
                ProbeError::NoHierarchy(root),
                ["neither verified nor repaired", "/sys/fs/cgroup has no"],
            ),
        ] {
            let found = why.consequence();
            assert!(said.iter().all(|said| found.contains(said)), "{found}");
        }
    }

    /// As on a host with systemd, to a process that may not ignore modes: the directory is
    /// read-only, its files are not.
    #[test]
    fn a_file_is_asked_and_not_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = root.path().join(name);
            fs::write(&path, "cpuset\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        file("cgroup.controllers", 0o444);
        let asked = || {
            let mode = fs::Permissions::from_mode(0o555);
            fs::set_permissions(root.path(), mode).unwrap();
            let asked = without_overriding_modes(|| writable(root.path()));
            fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
            asked
        };
        file("cgroup.procs", 0o644);
        assert!(asked().is_ok());
        file("cgroup.procs", 0o444);
        let why = asked().unwrap_err().to_string();
        assert!(why.contains("cannot be written: Permission denied"), "{why}");
    }

    /// In a thread of its own: capabilities are a thread's.
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
