//! [`SimulatedKernel`]: the parts of Linux 6.12 with cgroup v2 that the plugin uses: cpusets, processes
//! and their affinities, the machine in sysfs, inotify.
//!
//! The plugin uses it through [`Kernel`], where faults can be injected. All other parts of the node use
//! it through [`SimulatedKernel::lock`], where calls fail only if they fail on the real kernel.
//!
//! It is deterministic: it has no randomness and no clock. The model of cpusets and their partitions is
//! [`CgroupTree`], which the lab compares with real kernels.

#[path = "../../tests/support/fake_sysfs.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with tests, which also write its files to a disk"
)]
mod fake_sysfs;
mod files;
#[cfg(test)]
mod tests;
mod tunables;

use cgroups::{CgroupTree, Watched, Write};
use cpuset::{CgroupPath, CpuSet, PartitionType};
use kernel::Kernel;
pub use nix::errno::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use topology::{Facts, OfflineCpu, Sizes, Topology};

/// The mount point of the cgroup hierarchy.
pub const CGROUPS: &str = "/sys/fs/cgroup";
pub const SYS: &str = "/sys";
pub const PROC: &str = "/proc";

const ROOT_NUMBER: u64 = 1;
const RELEASE: &str = "6.12.95";
/// The pid of the first process, which is the parent of all others.
const INIT: u32 = 1;
const INIT_SCOPE: &str = "init.scope";
/// A virtual machine's cgroup, which can be a partition.
pub const FOREIGN: &str = "machine.slice";

/// Clones share one kernel.
#[derive(Clone)]
pub struct SimulatedKernel(Arc<Mutex<State>>);

/// Without its state, as the debug text of the plugin has it in many places.
impl fmt::Debug for SimulatedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedKernel")
    }
}

/// A machine with the memory that its files in sysfs show.
pub fn with_memory(machine: Topology) -> Topology {
    let nodes = machine.nodes().iter().map(|node| node.id);
    let huge_pages = |id| BTreeMap::from([(2 << 20, fake_sysfs::huge_pages(id)), (1 << 30, 0)]);
    let sizes = Sizes {
        memory: nodes.clone().map(|id| (id, fake_sysfs::NODE_BYTES)).collect(),
        huge_pages: nodes.map(|id| (id, huge_pages(id))).collect(),
        ..Sizes::default()
    };
    machine.with_memory(&sizes)
}

/// The number of calls by the plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    pub reads: u64,
    pub writes: u64,
}

/// A write by the plugin. A change of an affinity has the path `/proc/THREAD/affinity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub value: String,
    pub result: Result<(), Errno>,
}

/// A process with one thread.
#[derive(Debug)]
struct Process {
    cgroup: CgroupPath,
    /// The mask of its thread, if it was set.
    affinity: Option<CpuSet>,
}

/// The plugin has two inotify instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watcher {
    Groups,
    Quotas,
}

#[derive(Debug, Default)]
struct Watch {
    /// With the number of the cgroup: a new cgroup with the same path is not watched.
    watched: BTreeMap<PathBuf, (Watched, u64)>,
    any: bool,
    new: Vec<PathBuf>,
}

#[derive(Debug)]
struct Cgroup {
    number: u64,
    /// CFS quota and period.
    cpu_max: String,
    mems: String,
}

#[derive(Debug)]
pub struct State {
    /// The machine with all CPUs online.
    machine: Facts,
    pub online: CpuSet,
    /// Whether the plugin has the capability that partitions need.
    pub privileged: bool,
    /// The first write by the plugin or the runtime that breaks some kernel.
    pub damage: Option<String>,
    boot: u64,
    /// Files of sysfs by path below `/sys`.
    sysfs: BTreeMap<String, Vec<u8>>,
    /// Files that keep what is written, by path.
    tunables: BTreeMap<PathBuf, String>,
    tree: CgroupTree,
    cgroups: BTreeMap<CgroupPath, Cgroup>,
    last_number: u64,
    processes: BTreeMap<u32, Process>,
    last_pid: u32,
    /// Which process the plugin is, for `/proc/self` and [`Kernel::own_process`].
    pub plugin: u32,
    watches: BTreeMap<Watcher, Watch>,
    pub faults: Faults,
    calls: CallCounts,
    /// The plugin's writes that [`World::note_writes`](crate::world::World::note_writes) has not taken yet.
    pub log: Vec<Written>,
    /// For each write of the plugin, the number of calls before it.
    pub before_writes: Vec<u64>,
}

/// Injected faults, which concern only the plugin's calls.
#[derive(Debug, Default)]
pub struct Faults {
    /// Writes that fail, by the number of the plugin's writes before.
    next: BTreeMap<u64, Errno>,
    /// Writes into these cgroups and those below them fail.
    pub below: BTreeMap<CgroupPath, Errno>,
    /// The number of calls until the plugin is killed at one, see [`survives`].
    pub lives: Option<u64>,
}

/// The payload with which a call unwinds at which the plugin is killed.
struct Killed;

/// Runs a part of the plugin. If the plugin is killed at a call of the kernel, nothing after that call is
/// done, and this returns `None`.
pub fn survives<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl SimulatedKernel {
    /// Boots a machine.
    pub fn new(machine: Facts) -> SimulatedKernel {
        SimulatedKernel(Arc::new(Mutex::new(State::new(machine))))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn calls(&self) -> CallCounts {
        self.lock().calls
    }
}

impl State {
    fn new(machine: Facts) -> State {
        let online = set(machine.cpus.iter().map(|cpu| cpu.id));
        let possible = online | set(machine.offline.iter().map(|cpu| cpu.id));
        let mut state = State {
            machine,
            online,
            privileged: false,
            damage: None,
            boot: 1,
            sysfs: BTreeMap::new(),
            tunables: tunables::at_boot(possible),
            tree: CgroupTree::new(online, possible),
            cgroups: BTreeMap::new(),
            last_number: ROOT_NUMBER,
            processes: BTreeMap::new(),
            last_pid: 0,
            plugin: INIT,
            watches: BTreeMap::new(),
            faults: Faults::default(),
            calls: CallCounts::default(),
            log: Vec::new(),
            before_writes: Vec::new(),
        };
        state.set_online(online);
        for name in [INIT_SCOPE, FOREIGN] {
            state.make_cgroup(&CgroupPath::new(name).expect("a cgroup's path"));
        }
        state.spawn(&CgroupPath::new(INIT_SCOPE).expect("a cgroup's path"));
        state
    }

    /// Restarts the machine. All processes and cgroups are gone.
    pub fn reboot(&mut self) {
        let boot = self.boot + 1;
        let faults = std::mem::take(&mut self.faults);
        let calls = self.calls;
        let privileged = self.privileged;
        let new = State::new(self.machine.clone());
        *self = State { boot, faults, calls, privileged, ..new };
    }

    /// Takes CPUs online and offline. `online` must be CPUs of the machine.
    pub fn set_online(&mut self, online: CpuSet) {
        let mut now = self.machine.clone();
        let gone = now.cpus.iter().filter(|cpu| !online.contains(cpu.id));
        let gone = gone.map(|cpu| OfflineCpu {
            id: cpu.id,
            numa: Some(cpu.numa),
            socket: Some(cpu.socket),
        });
        now.offline.extend(gone);
        now.cpus.retain(|cpu| online.contains(cpu.id));
        self.online = set(now.cpus.iter().map(|cpu| cpu.id));
        self.tree.set_online(self.online);
        self.sysfs = fake_sysfs::files(&now);
        let possible = format!("{}\n", self.tree.possible());
        self.sysfs.insert("devices/system/cpu/possible".to_owned(), possible.into_bytes());
    }

    /// Makes another program's partition of these CPUs, or ends it if there are none. The kernel may
    /// refuse.
    pub fn set_foreign(&mut self, cpus: CpuSet) {
        let group = foreign();
        let kind = if cpus.is_empty() { None } else { Some(PartitionType::Root) };
        let none = [Write::Partition(None), Write::Exclusive(CpuSet::EMPTY)];
        let made = [Write::Exclusive(cpus), Write::Partition(kind)];
        for write in none.into_iter().chain(made) {
            if self.tree.write(&group, write).is_err() {
                break;
            }
        }
        if !self.tree.is_partition(&group) {
            let ended = none.into_iter().try_for_each(|write| self.tree.write(&group, write));
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
    }

    /// The CPUs of another program's partition.
    pub fn foreign(&self) -> CpuSet {
        let files = self.tree.partition(&foreign());
        if files.state.is_valid() { files.effective } else { CpuSet::EMPTY }
    }

    /// The CPUs on which containers can run.
    pub fn usable(&self) -> CpuSet {
        self.online - self.foreign()
    }

    /// Whether a cgroup is a valid partition of exactly these CPUs.
    pub fn is_partition_of(&self, group: &CgroupPath, cpus: CpuSet) -> bool {
        self.tree.is_partition(group) && self.tree.effective(group) == cpus
    }

    /// Makes a cgroup, and those above it that do not exist.
    pub fn make_cgroup(&mut self, group: &CgroupPath) {
        for group in group.ancestors().into_iter().chain([group.clone()]) {
            if self.cgroups.contains_key(&group) {
                continue;
            }
            self.tree.make(&group);
            self.last_number += 1;
            let cpu_max = "max 100000".to_owned();
            let cgroup = Cgroup { number: self.last_number, cpu_max, mems: String::new() };
            self.cgroups.insert(group.clone(), cgroup);
            let directory = directory(&group);
            if let Some(above) = directory.parent() {
                self.notify(above, Watched::Directory, &directory);
            }
        }
    }

    /// # Errors
    /// ENOENT, or EBUSY if there are processes or cgroups in it.
    pub fn remove_cgroup(&mut self, group: &CgroupPath) -> Result<(), Errno> {
        if !self.tree.contains(group) {
            return Err(Errno::ENOENT);
        }
        if self.tree.is_populated(group) || self.tree.below(group).next().is_some() {
            return Err(Errno::EBUSY);
        }
        self.tree.remove(group);
        self.cgroups.remove(group);
        Ok(())
    }

    /// Starts a process. Pids are never reused.
    pub fn spawn(&mut self, group: &CgroupPath) -> u32 {
        self.make_cgroup(group);
        self.last_pid += 1;
        self.processes.insert(self.last_pid, Process { cgroup: group.clone(), affinity: None });
        self.count_processes(group);
        self.last_pid
    }

    pub fn kill(&mut self, pid: u32) {
        if let Some(Process { cgroup, .. }) = self.processes.remove(&pid) {
            self.count_processes(&cgroup);
        }
    }

    fn count_processes(&mut self, group: &CgroupPath) {
        let occupied = self.processes.values().any(|process| process.cgroup == *group);
        self.tree.occupy(group, occupied);
    }

    /// The CPUs on which a process can run. Since Linux 6.2 its own mask survives every change of the
    /// cpuset. It is ignored while it has no CPU of the cpuset.
    pub fn allowed(&self, pid: u32) -> CpuSet {
        let Some(process) = self.processes.get(&pid) else { return CpuSet::EMPTY };
        let effective = self.tree.effective(&process.cgroup);
        let left = process.affinity.map_or(effective, |own| own & effective);
        if left.is_empty() { effective } else { left }
    }

    fn set_affinity(&mut self, pid: u32, cpus: CpuSet) -> Result<(), Errno> {
        let process = self.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        if self.tree.effective(&process.cgroup).is_disjoint(&cpus) {
            return Err(Errno::EINVAL);
        }
        process.affinity = Some(cpus);
        Ok(())
    }

    /// Watches these instead of the previous ones, like [`Watch`](exclusivity::Watch).
    pub fn watch(&mut self, watcher: Watcher, paths: &BTreeMap<PathBuf, Watched>) {
        let exists = |(path, what): (&PathBuf, &Watched)| {
            Some((path.clone(), (*what, self.number(path).ok()?)))
        };
        let watched = paths.iter().filter_map(exists).collect();
        self.watches.entry(watcher).or_default().watched = watched;
    }

    /// Whether a watched file was written or a directory made in a watched one since the last call, and
    /// the new directories.
    pub fn take_events(&mut self, watcher: Watcher) -> (bool, Vec<PathBuf>) {
        let watch = self.watches.entry(watcher).or_default();
        (std::mem::take(&mut watch.any), std::mem::take(&mut watch.new))
    }

    /// Makes one write of the plugin fail, after `after` more that do not.
    pub fn fail_write(&mut self, after: u64, errno: Errno) {
        self.faults.next.insert(self.calls.writes + after, errno);
    }

    /// Reports a write into a file, or a `new` directory in a directory, to those that watch it.
    fn notify(&mut self, path: &Path, what: Watched, new: &Path) {
        let Ok(number) = self.number(path) else { return };
        for watch in self.watches.values_mut() {
            if watch.watched.get(path) == Some(&(what, number)) {
                watch.any = true;
                if what == Watched::Directory {
                    watch.new.push(new.to_owned());
                }
            }
        }
    }

    /// Begins a call of the plugin, or kills the plugin at it.
    fn begin(&mut self) {
        if let Some(lives) = &mut self.faults.lives {
            match lives.checked_sub(1) {
                Some(left) => *lives = left,
                None => resume_unwind(Box::new(Killed)),
            }
        }
    }

    fn begin_read(&mut self) -> &State {
        self.begin();
        self.calls.reads += 1;
        self
    }

    /// Makes a write of the plugin, or fails it with an injected fault.
    fn plugin_writes(
        &mut self,
        path: &Path,
        value: &str,
        write: impl FnOnce(&mut State) -> Result<(), Errno>,
    ) -> io::Result<()> {
        self.begin();
        let at = self.calls.writes;
        self.before_writes.push(self.calls.reads + at);
        self.calls.writes += 1;
        let fault = self.faults.next.remove(&at).or_else(|| self.fault_of(path));
        let result = match fault {
            Some(errno) => {
                // All other errors occur after the file was opened for truncation, which inotify reports.
                if !matches!(errno, Errno::EACCES | Errno::ENOENT) {
                    self.notify(path, Watched::File, path);
                }
                Err(errno)
            }
            None => write(self),
        };
        self.log.push(Written { path: path.to_owned(), value: value.to_owned(), result });
        Ok(result?)
    }

    fn fault_of(&self, path: &Path) -> Option<Errno> {
        let mut below = self.faults.below.iter();
        below.find(|(group, _)| path.starts_with(directory(group))).map(|(_, errno)| *errno)
    }
}

impl Kernel for SimulatedKernel {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.lock().begin_read().read(path)?)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.lock().plugin_writes(path, text.trim_end(), |state| {
            state.note_hazard(path, text);
            state.write(path, text)
        })
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let state = state.begin_read();
        Ok(state.fault_of(path).map_or_else(|| state.read(path).map(drop), Err)?)
    }

    fn entries(&self, path: &Path) -> io::Result<kernel::Entries> {
        Ok(Box::new(self.lock().begin_read().entries(path)?.into_iter()))
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        Ok(self.lock().begin_read().number(path)?)
    }

    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()> {
        let path = Path::new(PROC).join(format!("{thread}/affinity"));
        let write = |state: &mut State| state.set_affinity(thread, cpus);
        self.lock().plugin_writes(&path, &cpus.to_string(), write)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        // Only devices are links, and this machine has none.
        Ok(path.to_owned())
    }

    fn own_process(&self) -> u32 {
        self.lock().plugin
    }
}

fn foreign() -> CgroupPath {
    CgroupPath::new(FOREIGN).expect("a cgroup's path")
}

fn set(cpus: impl Iterator<Item = usize>) -> CpuSet {
    cpus.filter_map(|cpu| CpuSet::of(cpu).ok()).collect()
}

pub fn directory(group: &CgroupPath) -> PathBuf {
    Path::new(CGROUPS).join(group.as_str())
}
