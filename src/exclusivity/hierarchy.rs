//! [`Hierarchy`]: the files of the kernel's cgroup hierarchy that has the cpuset controller.

use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use nix::errno::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub const CPUS: &str = "cpuset.cpus";
pub const EFFECTIVE: &str = "cpuset.cpus.effective";
pub const PARTITION: &str = "cpuset.cpus.partition";
pub(super) const EXCLUSIVE: &str = "cpuset.cpus.exclusive";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy (`Documentation/admin-guide/cgroup-v2.rst` of the kernel).
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
    version: CgroupVersion,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the kernel refused {value:?} in {}: {source}", path.display())]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("{}: {text:?} is not a list of CPUs", path.display())]
    Cpus { path: PathBuf, text: String },
}

impl FileError {
    /// Whether the cgroup does not exist (any more).
    pub fn is_gone(&self) -> bool {
        // The kernel answers ENODEV if the cgroup was removed while its file is open.
        match self {
            FileError::Read { source, .. } | FileError::Write { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || source.raw_os_error() == Some(Errno::ENODEV as i32)
            }
            FileError::Cpus { .. } => false,
        }
    }

    /// Whether this process may not write the file: it is in the root of the process's own cgroup
    /// namespace, and the hierarchy is mounted with `nsdelegate`.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, FileError::Write { source, .. } if source.raw_os_error() == Some(Errno::EPERM as i32))
    }
}

/// `None` if the cgroup is gone: it needs nothing then.
pub(super) fn unless_gone<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Hierarchy {
    /// The hierarchy mounted at `root`, `/sys/fs/cgroup` as a rule; `None` if it has no cpusets.
    pub fn open(root: &Path) -> Option<Hierarchy> {
        let unified = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if unified.split_whitespace().any(|controller| controller == "cpuset") {
            return Some(Hierarchy { root: root.to_owned(), version: CgroupVersion::V2 });
        }
        let root = root.join("cpuset");
        if root.join(CPUS).is_file() {
            Some(Hierarchy { root, version: CgroupVersion::V1 })
        } else {
            None
        }
    }

    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Checks that this process can write cgroups, by opening a file: this also asks the mount and
    /// security modules, and the mode of the directory is read-only on many hosts anyway.
    pub fn check_writable(&self) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(self.root.join("cgroup.procs")).map(drop)
    }

    /// The hierarchy of the CPU controller: version 1 has one for each controller.
    pub fn of_cpu(&self) -> Hierarchy {
        match self.version {
            CgroupVersion::V1 => Hierarchy { root: self.root.with_file_name("cpu"), ..*self },
            CgroupVersion::V2 => self.clone(),
        }
    }

    pub fn has(&self, group: &CgroupPath) -> bool {
        self.directory(group).is_dir()
    }

    /// The shell command that removes another program's bound: all CPUs are none.
    pub fn removal_of_bound(&self, group: &CgroupPath) -> String {
        format!("echo {} > {}", self.free(), self.directory(group).join(CPUS).display())
    }

    /// Whether a cgroup or one in it has processes; `None` if that cannot be read, as in version 1.
    pub fn is_populated(&self, group: &CgroupPath) -> Option<bool> {
        let events = self.read(group, "cgroup.events").ok()?;
        events.lines().find_map(|line| match line {
            "populated 0" => Some(false),
            "populated 1" => Some(true),
            _ => None,
        })
    }

    /// The kernel's number of a cgroup: another one of the same name has another.
    pub(super) fn id(&self, group: &CgroupPath) -> Option<u64> {
        Some(fs::metadata(self.directory(group)).ok()?.ino())
    }

    pub fn is_own(&self, group: &CgroupPath) -> bool {
        let own = std::process::id().to_string();
        self.read(group, "cgroup.procs").is_ok_and(|pids| pids.lines().any(|pid| pid == own))
    }

    pub fn directory(&self, group: &CgroupPath) -> PathBuf {
        self.root.join(group.as_str())
    }

    /// The cgroup of a directory; `None` if it is not below this hierarchy's root.
    pub(super) fn group(&self, directory: &Path) -> Option<CgroupPath> {
        CgroupPath::new(directory.strip_prefix(&self.root).ok()?.to_str()?)
    }

    /// The CPUs in no partition but the root's; none if that file cannot be read.
    pub fn free(&self) -> CpuSet {
        let text = fs::read_to_string(self.root.join(EFFECTIVE));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    pub fn tops(&self) -> Vec<CgroupPath> {
        names_in(&self.root).filter_map(|name| CgroupPath::new(&name)).collect()
    }

    /// The cgroups directly in another one; none if that cannot be read.
    pub fn children(&self, group: &CgroupPath) -> Vec<CgroupPath> {
        let names = names_in(&self.directory(group));
        names.filter_map(|name| CgroupPath::new(&format!("{group}/{name}"))).collect()
    }

    /// A file's text, without the line's end.
    pub fn read(&self, group: &CgroupPath, file: &str) -> Result<String, FileError> {
        let path = self.directory(group).join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(source) => Err(FileError::Read { path, source }),
        }
    }

    pub fn cpus(&self, group: &CgroupPath, file: &str) -> Result<CpuSet, FileError> {
        let text = self.read(group, file)?;
        text.parse().map_err(|_| FileError::Cpus { path: self.directory(group).join(file), text })
    }

    /// Writes a file; an empty value clears it. Success does not mean that the value holds: callers
    /// read it back.
    pub fn write(&self, group: &CgroupPath, file: &str, value: &str) -> Result<(), FileError> {
        let path = self.directory(group).join(file);
        // Without `create`: outside of the kernel's file system that would make a file.
        let write =
            fs::OpenOptions::new().write(true).truncate(true).open(&path).and_then(|mut open| {
                io::Write::write_all(&mut open, format!("{value}\n").as_bytes())
            });
        write.map_err(|source| FileError::Write { path, value: value.to_owned(), source })
    }
}

/// The names of the cgroups in a directory: the kernel's and all runtimes' names are UTF-8.
fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}
