//! Random actions on cgroups of the kernel and of the model. It takes CPUs offline: in virtual
//! machines only.
//!
//! Compared after each action: `cpuset.cpus` and `cpuset.cpus.effective` of every cgroup, the
//! affinity of their processes, and whether the kernel accepted a write.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::exclusivity::{CgroupTree, Refused, Write};
use nri_cpu_manager::ledger::CgroupPath;

use super::{Comparison, ComparisonSettings, Mismatch};
use crate::command::command;
use crate::files::{read_value, write_value};
use crate::kernel::{self, CGROUPS};
use crate::process;

/// Names of cgroups. `a.b` sorts between `a` and the children of `a`.
const NAMES: [&str; 3] = ["a", "a.b", "b"];
const DEPTH: usize = 4;
/// Most cgroups at one time: each costs two reads after every action.
const GROUPS: usize = 16;
/// Actions reported with a difference.
const HISTORY: usize = 30;
const OK: &str = "ok";

#[derive(Debug, Clone)]
enum Action {
    Write(CgroupPath, CpuSet),
    /// Also creates missing parents.
    Make(CgroupPath),
    /// With all descendants.
    Remove(CgroupPath),
    /// Starts a process in the cgroup.
    Start(CgroupPath),
    End(CgroupPath),
    SetOnline(usize, bool),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write(group, cpus) => write!(f, "write {:?} to {group}", cpus.to_string()),
            Action::Make(group) => write!(f, "create {group}"),
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
            Action::Make(_) => "create",
            Action::Remove(_) => "remove",
            Action::Start(_) => "start",
            Action::End(_) => "end",
            Action::SetOnline(_, true) => "online",
            Action::SetOnline(_, false) => "offline",
        }
    }
}

/// Does random actions until model and kernel differ or all are done. The cgroups are outside those
/// of the kubelet and the runtime, and are removed at the end.
pub(crate) fn compare(settings: &ComparisonSettings) -> Result<Comparison> {
    let ComparisonSettings { seed, steps } = *settings;
    let mut comparer = Comparer::new(seed)?;
    let mut history = VecDeque::new();
    let mut comparison = Comparison { seed, ..Comparison::default() };
    for _ in 0..steps {
        let before = comparer.tree.clone();
        let action = comparer.choose();
        let (expected, result) = comparer.act(&action).with_context(|| action.to_string())?;
        comparison.steps += 1;
        *comparison.results.entry(format!("{} {result}", action.kind())).or_default() += 1;
        history.push_back(format!("{action}: {result}"));
        if history.len() > HISTORY {
            history.pop_front();
        }
        let mut differs = comparer.differences(&mut comparison)?;
        if expected != result {
            differs.insert(0, format!("{action}: kernel {result}, model {expected}"));
        }
        if !differs.is_empty() {
            let history = history.into();
            let before = before.groups().map(|group| describe(&before, group)).collect();
            comparison.difference = Some(Mismatch { differs, history, before });
            break;
        }
    }
    comparer.clear()?;
    Ok(comparison)
}

fn describe(tree: &CgroupTree, group: &CgroupPath) -> String {
    let cpus = tree.cpus(group).unwrap_or_default().to_string();
    let populated = if tree.is_populated(group) { ", populated" } else { "" };
    format!("{group}: cpus {cpus:?}, effective {}{populated}", tree.effective(group))
}

/// A process in a cgroup of the kernel.
struct TestProcess {
    child: Child,
    /// Effective CPUs of its cgroup at the last comparison.
    effective: CpuSet,
    /// CPUs that its own set may have in addition. The kernel does not change the set of a process
    /// that moves between cgroups with the same effective CPUs (`cpuset_attach` in
    /// `kernel/cgroup/cpuset.c`): one from outside keeps all possible CPUs, and runs on those that
    /// come online later, until the kernel applies the effective CPUs of its cgroup.
    extra: CpuSet,
}

struct Comparer {
    rng: Rng,
    tree: CgroupTree,
    online: CpuSet,
    processes: BTreeMap<CgroupPath, TestProcess>,
}

impl Comparer {
    fn new(seed: u64) -> Result<Self> {
        delegate(Path::new(CGROUPS))?;
        let online = kernel::cpus("online")?;
        let tree = CgroupTree::new(online, kernel::cpus("possible")?);
        Ok(Self { rng: Rng::with_seed(seed), tree, online, processes: BTreeMap::new() })
    }

    /// A valid action, or a write that the kernel may refuse.
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

    /// The kernel allows either processes or child cgroups.
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

    /// CPU 0 cannot go offline.
    fn set_online(&mut self) -> Option<Action> {
        let cpu = self.rng.choice(self.tree.possible().iter().skip(1).collect::<Vec<_>>())?;
        Some(Action::SetOnline(cpu, !self.online.contains(cpu)))
    }

    fn existing(&mut self) -> Option<CgroupPath> {
        let groups: Vec<&CgroupPath> = self.tree.groups().collect();
        self.rng.choice(groups).cloned()
    }

    /// Any path, whether the cgroup exists or not.
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

    /// No CPUs, a range, or any possible CPUs; one list in twenty has a CPU that cannot exist.
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

    /// Returns the results of the model and of the kernel.
    fn act(&mut self, action: &Action) -> Result<(String, String)> {
        let mut results = (OK.to_owned(), OK.to_owned());
        match action {
            Action::Write(group, cpus) => {
                let expected = self.tree.write(group, Write::Cpus(*cpus)).map_err(errno);
                // Without the newline, an empty list would not be a write.
                let result = fs::write(directory(group).join("cpuset.cpus"), format!("{cpus}\n"));
                let result =
                    result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
                results = (name(expected), name(result));
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
                kernel::set_online(*cpu, *online)?;
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
        // A cgroup that enables controllers for children takes no processes.
        write_value(&directory(group).join("cgroup.subtree_control"), "-cpuset")?;
        let child = command("sleep", ["infinity"]).spawn().context("cannot start a process")?;
        let pid = child.id();
        let effective = self.tree.effective(group);
        let stays = effective == self.online;
        let extra = if stays { self.tree.possible() - self.online } else { CpuSet::EMPTY };
        self.processes.insert(group.clone(), TestProcess { child, effective, extra });
        write_value(&directory(group).join("cgroup.procs"), &pid.to_string())
    }

    fn end(&mut self, group: &CgroupPath) -> Result<()> {
        let Some(TestProcess { mut child, .. }) = self.processes.remove(group) else {
            return Ok(());
        };
        child.kill().and_then(|()| child.wait()).context("cannot end a process")?;
        Ok(())
    }

    /// Differences between the kernel and the model.
    fn differences(&mut self, comparison: &mut Comparison) -> Result<Vec<String>> {
        let mut differs = Vec::new();
        let mut check = |what: String, value: &str, expected: CpuSet| {
            comparison.lists += 1;
            let expected = expected.to_string();
            if value != expected {
                differs.push(format!("{what}: kernel {value:?}, model {expected:?}"));
            }
        };
        for group in self.tree.groups() {
            let directory = directory(group);
            let effective = self.tree.effective(group);
            let set = self.tree.cpus(group).unwrap_or_default();
            for (file, expected) in [("cpuset.cpus", set), ("cpuset.cpus.effective", effective)] {
                check(format!("{file} of {group}"), &read_value(&directory.join(file))?, expected);
            }
            if let Some(process) = self.processes.get_mut(group) {
                if process.effective != effective {
                    process.effective = effective;
                    process.extra = CpuSet::EMPTY;
                }
                let allowed = process::allowed(process.child.id())? - process.extra;
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
        Refused::NotExclusive => Errno::EINVAL,
    }
}

fn name(result: Result<(), Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |()| OK.to_owned())
}

fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
    cpus.into_iter().filter_map(|cpu| CpuSet::of(cpu).ok()).collect()
}

fn delegate(path: &Path) -> Result<()> {
    write_value(&path.join("cgroup.subtree_control"), "+cpuset")
}

fn make(group: &CgroupPath) -> Result<()> {
    let path = directory(group);
    if path.exists() {
        return Ok(());
    }
    if let Some(parent) = group.parent() {
        delegate(&directory(&parent))?;
    }
    fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))
}

fn directory(group: &CgroupPath) -> PathBuf {
    Path::new(CGROUPS).join(group.as_str())
}
