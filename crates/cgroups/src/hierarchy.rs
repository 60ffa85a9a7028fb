//! [`Hierarchy`]: the files of the kernel's cgroup hierarchy that has the cpuset controller.

use super::cgroup_tree::{PartitionFiles, Write};
use cpuset::{CgroupPath, CpuSet, PartitionState, PartitionType};
use kernel::{Kernel, Linux};
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const CPUS: &str = "cpuset.cpus";
pub const EFFECTIVE: &str = "cpuset.cpus.effective";
pub const PARTITION: &str = "cpuset.cpus.partition";
pub(super) const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
pub(super) const EXCLUSIVE_EFFECTIVE: &str = "cpuset.cpus.exclusive.effective";
const MEMBER: &str = "member";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy (`Documentation/admin-guide/cgroup-v2.rst` of the kernel).
    V2,
}

#[derive(Debug, Clone)]
pub struct Hierarchy {
    kernel: Arc<dyn Kernel>,
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
    /// The write would break a sibling's partition. By the next attempt that has ended.
    #[error("{} stays as it is: a cpuset partition beside it has {}", path.display(), wording::cpus(*cpus))]
    HeldBySibling { path: PathBuf, cpus: CpuSet },
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
            FileError::Cpus { .. } | FileError::HeldBySibling { .. } => false,
        }
    }

    /// Whether the kernel does not accept this value now (EINVAL).
    pub(super) fn is_invalid(&self) -> bool {
        matches!(self, FileError::Write { source, .. } if source.raw_os_error() == Some(Errno::EINVAL as i32))
    }

    /// Whether this process may not write the file (EPERM): it belongs to the cgroup that is the root of
    /// the process's cgroup namespace, and the hierarchy is mounted with `nsdelegate`.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, FileError::Write { source, .. } if source.raw_os_error() == Some(Errno::EPERM as i32))
    }
}

/// `None` if the cgroup is gone, which no caller treats as an error.
pub(super) fn unless_gone<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Hierarchy {
    /// The hierarchy mounted at `root`, usually `/sys/fs/cgroup`; `None` if it has no cpusets.
    pub fn open(root: &Path) -> Option<Hierarchy> {
        Hierarchy::open_on(Arc::new(Linux), root)
    }

    pub fn open_on(kernel: Arc<dyn Kernel>, root: &Path) -> Option<Hierarchy> {
        let unified = kernel.text(&root.join("cgroup.controllers")).unwrap_or_default();
        if unified.split_whitespace().any(|controller| controller == "cpuset") {
            return Some(Hierarchy { kernel, root: root.to_owned(), version: CgroupVersion::V2 });
        }
        let root = root.join("cpuset");
        if kernel.read(&root.join(CPUS)).is_ok() {
            Some(Hierarchy { kernel, root, version: CgroupVersion::V1 })
        } else {
            None
        }
    }

    pub fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Checks that this process can write cgroups, by a file: on many hosts the mode of the directory
    /// is read-only although its files can be written.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        self.kernel.check_writable(&self.root.join("cgroup.procs"))
    }

    /// The hierarchy of the CPU controller: version 1 has one for each controller.
    pub fn of_cpu(&self) -> Hierarchy {
        match self.version {
            CgroupVersion::V1 => {
                Hierarchy { root: self.root.with_file_name("cpu"), ..self.clone() }
            }
            CgroupVersion::V2 => self.clone(),
        }
    }

    pub fn has(&self, group: &CgroupPath) -> bool {
        self.kernel.number(&self.directory(group)).is_ok()
    }

    /// The shell command that removes another program's bound: a write of all CPUs is no bound.
    pub(super) fn removal_of_bound(&self, group: &CgroupPath) -> String {
        format!("echo {} > {}", self.free(), self.directory(group).join(CPUS).display())
    }

    /// Whether a cgroup or one below it has processes; `None` if that cannot be read, as in version 1.
    pub fn is_populated(&self, group: &CgroupPath) -> Option<bool> {
        let events = self.read(group, "cgroup.events").ok()?;
        events.lines().find_map(|line| match line {
            "populated 0" => Some(false),
            "populated 1" => Some(true),
            _ => None,
        })
    }

    /// The kernel's number of a cgroup. A new cgroup with the same path gets another one.
    pub(super) fn id(&self, group: &CgroupPath) -> Option<u64> {
        self.kernel.number(&self.directory(group)).ok()
    }

    pub fn is_own(&self, group: &CgroupPath) -> bool {
        let own = self.kernel.own_process().to_string();
        self.read(group, "cgroup.procs").is_ok_and(|pids| pids.lines().any(|pid| pid == own))
    }

    pub fn directory(&self, group: &CgroupPath) -> PathBuf {
        self.root.join(group.as_str())
    }

    /// The cgroup of a directory; `None` if it is not below this hierarchy's root.
    pub(super) fn group(&self, directory: &Path) -> Option<CgroupPath> {
        CgroupPath::new(directory.strip_prefix(&self.root).ok()?.to_str()?)
    }

    /// The name of the file with the CPUs on which a cgroup's processes run.
    pub fn effective(&self) -> &'static str {
        match self.version {
            CgroupVersion::V1 => "cpuset.effective_cpus",
            CgroupVersion::V2 => EFFECTIVE,
        }
    }

    /// The CPUs in no partition but the root's; none if that file cannot be read.
    pub fn free(&self) -> CpuSet {
        let text = self.read_root(self.effective());
        text.ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    pub(super) fn tops(&self) -> Vec<CgroupPath> {
        self.directories(&self.root).filter_map(|name| CgroupPath::new(&name)).collect()
    }

    /// None if the directory cannot be read.
    pub fn children(&self, group: &CgroupPath) -> Vec<CgroupPath> {
        let names = self.directories(&self.directory(group));
        names.filter_map(|name| CgroupPath::new(&format!("{group}/{name}"))).collect()
    }

    /// A file's text, without the final newline.
    pub fn read(&self, group: &CgroupPath, file: &str) -> Result<String, FileError> {
        self.read_at(self.directory(group).join(file))
    }

    /// As [`Hierarchy::read`], from the root, which has no [`CgroupPath`].
    pub fn read_root(&self, file: &str) -> Result<String, FileError> {
        self.read_at(self.root.join(file))
    }

    fn read_at(&self, path: PathBuf) -> Result<String, FileError> {
        self.kernel.text(&path).map_err(|source| FileError::Read { path, source })
    }

    pub fn cpus(&self, group: &CgroupPath, file: &str) -> Result<CpuSet, FileError> {
        let text = self.read(group, file)?;
        text.parse().map_err(|_| FileError::Cpus { path: self.directory(group).join(file), text })
    }

    /// What a cgroup's partition files say. Linux before 6.7 does not have them all: those that are
    /// missing count as empty.
    pub(super) fn partition(&self, group: &CgroupPath) -> PartitionFiles {
        let state = self.read(group, PARTITION).ok();
        PartitionFiles {
            exclusive: self.cpus(group, EXCLUSIVE).unwrap_or_default(),
            effective: self.cpus(group, EXCLUSIVE_EFFECTIVE).unwrap_or_default(),
            state: state.and_then(|text| PartitionState::parse(&text)).unwrap_or_default(),
        }
    }

    /// The exclusive CPUs of siblings. Linux before 7.0 accepts them in this cgroup's `cpuset.cpus`,
    /// ends the sibling's partition, and loses its CPUs.
    pub fn held_by_siblings(&self, group: &CgroupPath) -> CpuSet {
        let Some(pod) = group.parent() else { return CpuSet::EMPTY };
        if self.cpus(&pod, EXCLUSIVE).unwrap_or_default().is_empty() {
            return CpuSet::EMPTY;
        }
        let siblings = self.children(&pod).into_iter().filter(|sibling| sibling != group);
        siblings.map(|sibling| self.cpus(&sibling, EXCLUSIVE).unwrap_or_default()).collect()
    }

    /// Makes a write. Success does not mean that the value holds: callers read it back.
    pub(super) fn make(&self, group: &CgroupPath, write: Write) -> Result<(), FileError> {
        match write {
            Write::Cpus(cpus) => self.write(group, CPUS, &cpus.to_string()),
            Write::Exclusive(cpus) => self.write(group, EXCLUSIVE, &cpus.to_string()),
            Write::Partition(kind) => {
                self.write(group, PARTITION, kind.map_or(MEMBER, PartitionType::name))
            }
        }
    }

    /// Writes a file; an empty value clears it. Success does not mean that the value holds: callers
    /// read it back.
    pub fn write(&self, group: &CgroupPath, file: &str, value: &str) -> Result<(), FileError> {
        self.write_at(self.directory(group).join(file), value)
    }

    /// As [`Hierarchy::write`], to the root, which has no [`CgroupPath`].
    pub fn write_root(&self, file: &str, value: &str) -> Result<(), FileError> {
        self.write_at(self.root.join(file), value)
    }

    fn write_at(&self, path: PathBuf, value: &str) -> Result<(), FileError> {
        let written = self.kernel.write(&path, &format!("{value}\n"));
        written.map_err(|source| FileError::Write { path, value: value.to_owned(), source })
    }

    fn directories(&self, path: &Path) -> impl Iterator<Item = String> + use<> {
        let entries = self.kernel.entries(path).into_iter().flatten();
        entries.filter_map(|(name, is_dir)| if is_dir { Some(name) } else { None })
    }
}
