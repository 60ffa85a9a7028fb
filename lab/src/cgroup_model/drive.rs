//! Random actions on the kernel's groups and on the model's. It takes CPUs offline: for virtual
//! servers only.
//!
//! What is compared after each action: `cpuset.cpus` and `cpuset.cpus.effective` of every group,
//! where the processes in groups may run, and whether a write was accepted.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::exclusivity::{CgroupTree, Refused};
use nri_cpu_manager::ledger::CgroupPath;

use super::{Comparison, Difference, Settings};
use crate::cgroup::{ROOT, read, write};
use crate::command::command;
use crate::process;

/// Groups' names. `a.b` sorts between `a` and what is in `a`.
const NAMES: [&str; 3] = ["a", "a.b", "b"];
const DEPTH: usize = 4;
/// Groups at the same time, at most: each costs two reads after every action.
const GROUPS: usize = 16;
/// Actions that a difference is reported with.
const HISTORY: usize = 30;
const OK: &str = "ok";

#[derive(Debug, Clone)]
enum Action {
    Write(CgroupPath, CpuSet),
    /// Also makes the groups above it that do not exist.
    Make(CgroupPath),
    /// With all groups below it.
    Remove(CgroupPath),
    /// A process in the group.
    Start(CgroupPath),
    End(CgroupPath),
    SetOnline(usize, bool),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write(group, cpus) => write!(f, "write {:?} to {group}", cpus.to_string()),
            Action::Make(group) => write!(f, "make {group}"),
            Action::Remove(group) => write!(f, "remove {group}"),
            Action::Start(group) => write!(f, "start a process in {group}"),
            Action::End(group) => write!(f, "end the process in {group}"),
            Action::SetOnline(cpu, true) => write!(f, "CPU {cpu} online"),
            Action::SetOnline(cpu, false) => write!(f, "CPU {cpu} offline"),
        }
    }
}

impl Action {
    fn kind(&self) -> &'static str {
        match self {
            Action::Write(..) => "write",
            Action::Make(_) => "make",
            Action::Remove(_) => "remove",
            Action::Start(_) => "start",
            Action::End(_) => "end",
            Action::SetOnline(_, true) => "online",
            Action::SetOnline(_, false) => "offline",
        }
    }
}

/// Carries out random actions until model and kernel differ, or all are done. Its groups lie beside
/// those of the kubelet and the runtime; none is left.
///
/// # Errors
/// When the kernel refuses what is no write of CPUs.
pub(crate) fn compare(settings: &Settings) -> Result<Comparison> {
    let Settings { seed, steps } = *settings;
    let mut driver = Driver::new(seed)?;
    let mut history = VecDeque::new();
    let mut comparison = Comparison { seed, ..Comparison::default() };
    for _ in 0..steps {
        let before = driver.tree.clone();
        let action = driver.choose();
        let (expected, found) = driver.act(&action).with_context(|| action.to_string())?;
        comparison.steps += 1;
        *comparison.results.entry(format!("{} {found}", action.kind())).or_default() += 1;
        history.push_back(format!("{action}: {found}"));
        if history.len() > HISTORY {
            history.pop_front();
        }
        let mut differs = driver.differences(&mut comparison)?;
        if expected != found {
            differs.insert(0, format!("{action}: {found}, and {expected} in the model"));
        }
        if !differs.is_empty() {
            let history = history.into();
            let before = before.groups().map(|group| describe(&before, group)).collect();
            comparison.difference = Some(Difference { differs, history, before });
            break;
        }
    }
    driver.clear()?;
    Ok(comparison)
}

fn describe(tree: &CgroupTree, group: &CgroupPath) -> String {
    let cpus = tree.cpus(group).unwrap_or_default().to_string();
    let populated = if tree.is_populated(group) { ", populated" } else { "" };
    format!("{group}: cpus {cpus:?}, effective {}{populated}", tree.effective(group))
}

/// A process in a group of the kernel's.
struct Process {
    child: Child,
    /// Its group's effective CPUs when it was last compared.
    effective: CpuSet,
    /// CPUs that may be in its own set beside these. The kernel does not touch the set of a process
    /// that is moved between groups with the same effective CPUs (`cpuset_attach` of
    /// `kernel/cgroup/cpuset.c`): one from outside keeps all CPUs that can exist, and runs on those
    /// that come online later, until the kernel applies its group's effective CPUs anew.
    kept: CpuSet,
}

/// Both sides, and the processes in the kernel's groups.
struct Driver {
    rng: Rng,
    tree: CgroupTree,
    online: CpuSet,
    processes: BTreeMap<CgroupPath, Process>,
}

impl Driver {
    fn new(seed: u64) -> Result<Self> {
        delegate(Path::new(ROOT))?;
        let online = cpus("online")?;
        let tree = CgroupTree::new(online, cpus("possible")?);
        Ok(Self { rng: Rng::with_seed(seed), tree, online, processes: BTreeMap::new() })
    }

    /// An action that the kernel can carry out, or a write that it may refuse.
    fn choose(&mut self) -> Action {
        loop {
            let action = match self.rng.u8(..100) {
                0..50 => self.write(),
                50..75 => self.make(),
                75..80 => self.existing().map(Action::Remove),
                80..97 => self.start_or_end(),
                _ => self.set_online(),
            };
            if let Some(action) = action {
                return action;
            }
        }
    }

    fn write(&mut self) -> Option<Action> {
        let group = match self.rng.u8(..20) {
            0 => self.any(),
            _ => self.existing()?,
        };
        Some(Action::Write(group, self.list()))
    }

    /// A group with processes has no groups in it: the kernel allows only one of both.
    fn make(&mut self) -> Option<Action> {
        let group = self.any();
        let inside = group.ancestors().iter().any(|above| self.processes.contains_key(above));
        let fits = self.tree.groups().count() + DEPTH <= GROUPS;
        (fits && !inside).then_some(Action::Make(group))
    }

    fn start_or_end(&mut self) -> Option<Action> {
        let group = self.existing()?;
        if self.processes.contains_key(&group) {
            return Some(Action::End(group));
        }
        let is_leaf = self.tree.below(&group).next().is_none();
        is_leaf.then_some(Action::Start(group))
    }

    /// CPU 0 cannot go.
    fn set_online(&mut self) -> Option<Action> {
        let cpu = self.rng.choice(self.tree.possible().iter().skip(1).collect::<Vec<_>>())?;
        Some(Action::SetOnline(cpu, !self.online.contains(cpu)))
    }

    fn existing(&mut self) -> Option<CgroupPath> {
        let groups: Vec<&CgroupPath> = self.tree.groups().collect();
        self.rng.choice(groups).cloned()
    }

    /// Any path, whether there is such a group or not.
    fn any(&mut self) -> CgroupPath {
        loop {
            let depth = self.rng.usize(1..=DEPTH);
            let parts: Vec<&str> =
                (0..depth).map(|_| NAMES[self.rng.usize(..NAMES.len())]).collect();
            if let Some(path) = CgroupPath::new(&parts.join("/")) {
                return path;
            }
        }
    }

    /// None, a range or any CPUs; of those that the machine can have, with one in twenty that it
    /// cannot.
    fn list(&mut self) -> CpuSet {
        let possible = self.tree.possible();
        let share = self.rng.usize(1..=4);
        let mut cpus = match self.rng.u8(..10) {
            0 => return CpuSet::EMPTY,
            1..6 => {
                let first = self.rng.usize(..possible.len());
                let length = self.rng.usize(1..=possible.len());
                set(possible.iter().skip(first).take(length))
            }
            _ => set(possible.iter().filter(|_| self.rng.usize(..4) < share)),
        };
        if self.rng.u8(..20) == 0 {
            let beyond = possible.iter().last().unwrap_or_default() + self.rng.usize(1..100);
            cpus |= set([beyond]);
        }
        cpus
    }

    /// Carries an action out on both sides. What comes of it in the model, and what the kernel says.
    fn act(&mut self, action: &Action) -> Result<(String, String)> {
        let mut results = (OK.to_owned(), OK.to_owned());
        match action {
            Action::Write(group, cpus) => {
                let expected = self.tree.write(group, *cpus).map_err(errno);
                // Without the newline the empty list would be no write at all.
                let found = fs::write(directory(group).join("cpuset.cpus"), format!("{cpus}\n"));
                let found =
                    found.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
                results = (name(expected), name(found));
            }
            Action::Make(group) => {
                self.tree.make(group);
                for group in group.ancestors().iter().chain([group]) {
                    make(group)?;
                }
            }
            Action::Remove(group) => {
                let below: Vec<CgroupPath> = self.tree.below(group).cloned().collect();
                for group in below.iter().rev().chain([group]) {
                    self.end(group)?;
                    let path = directory(group);
                    fs::remove_dir(&path)
                        .with_context(|| format!("cannot remove {}", path.display()))?;
                }
                self.tree.remove(group);
            }
            Action::Start(group) => {
                self.start(group)?;
                self.tree.occupy(group, true);
            }
            Action::End(group) => {
                self.end(group)?;
                self.tree.occupy(group, false);
            }
            Action::SetOnline(cpu, online) => {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                fs::write(&path, if *online { "1" } else { "0" })
                    .with_context(|| format!("cannot write to {path}"))?;
                if *online {
                    self.online.insert(*cpu)?;
                } else {
                    self.online.remove(*cpu);
                }
                self.tree.set_online(self.online);
            }
        }
        Ok(results)
    }

    fn start(&mut self, group: &CgroupPath) -> Result<()> {
        // A group that hands its controllers down takes no processes.
        write(&directory(group).join("cgroup.subtree_control"), "-cpuset")?;
        let child = command("sleep", ["infinity"]).spawn().context("cannot start a process")?;
        let pid = child.id();
        let effective = self.tree.effective(group);
        let stays = effective == self.online;
        let kept = if stays { self.tree.possible() - self.online } else { CpuSet::EMPTY };
        self.processes.insert(group.clone(), Process { child, effective, kept });
        write(&directory(group).join("cgroup.procs"), &pid.to_string())
    }

    fn end(&mut self, group: &CgroupPath) -> Result<()> {
        let Some(Process { mut child, .. }) = self.processes.remove(group) else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).context("cannot end a process")?;
        Ok(())
    }

    /// Where the kernel's groups and processes are not as the model's.
    fn differences(&mut self, comparison: &mut Comparison) -> Result<Vec<String>> {
        let mut differs = Vec::new();
        let mut check = |what: String, found: &str, expected: CpuSet| {
            comparison.lists += 1;
            let expected = expected.to_string();
            if found != expected {
                differs.push(format!("{what}: {found:?}, and {expected:?} in the model"));
            }
        };
        for group in self.tree.groups() {
            let directory = directory(group);
            let effective = self.tree.effective(group);
            let set = self.tree.cpus(group).unwrap_or_default();
            for (file, expected) in [("cpuset.cpus", set), ("cpuset.cpus.effective", effective)] {
                check(format!("{file} of {group}"), &read(&directory.join(file))?, expected);
            }
            if let Some(process) = self.processes.get_mut(group) {
                if process.effective != effective {
                    process.effective = effective;
                    process.kept = CpuSet::EMPTY;
                }
                let allowed = process::allowed(process.child.id())? - process.kept;
                check(format!("CPUs of the process in {group}"), &allowed.to_string(), effective);
            }
            comparison.cut_empty += usize::from(self.tree.is_cut_empty(group));
        }
        Ok(differs)
    }

    fn clear(mut self) -> Result<()> {
        for name in NAMES.iter().filter_map(|name| CgroupPath::new(name)) {
            if self.tree.contains(&name) {
                self.act(&Action::Remove(name))?;
            }
        }
        Ok(())
    }
}

fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::Gone => Errno::ENOENT,
        Refused::Populated => Errno::ENOSPC,
        Refused::Impossible => Errno::ERANGE,
    }
}

fn name(result: Result<(), Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |()| OK.to_owned())
}

fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
    cpus.into_iter().filter_map(|cpu| CpuSet::of(cpu).ok()).collect()
}

fn delegate(path: &Path) -> Result<()> {
    write(&path.join("cgroup.subtree_control"), "+cpuset")
}

fn make(group: &CgroupPath) -> Result<()> {
    let path = directory(group);
    if path.exists() {
        return Ok(());
    }
    if let Some(parent) = group.parent() {
        delegate(&directory(&parent))?;
    }
    fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))
}

fn directory(group: &CgroupPath) -> PathBuf {
    Path::new(ROOT).join(group.as_str())
}

/// The machine's CPUs that are `online` or `possible`.
fn cpus(which: &str) -> Result<CpuSet> {
    let path = format!("/sys/devices/system/cpu/{which}");
    read(Path::new(&path))?.parse().with_context(|| format!("{path} is strange"))
}
