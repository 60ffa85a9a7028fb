//! Random actions on cgroups of the kernel and of the model. It takes CPUs offline: in virtual
//! machines only.
//!
//! Compared after each action: the five files about CPUs of every cgroup, the affinity of their
//! processes, the root's CPUs and those that it has given away, and whether the kernel accepted a
//! write.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cgroups::{
    CPUS, CgroupTree, EFFECTIVE, KernelRules, PARTITION, PartitionFiles, Refused, Write,
};
use cpuset::{CgroupPath, CpuSet, PartitionState};
use nix::errno::Errno;

use super::action::{Action, Chooser, NAMES, name_of, set};
use super::rules::{self, delegate};
use super::{Comparison, ComparisonSettings, Mismatch};
use crate::command::{command, last_lines, poll};
use crate::files::{read_value, write_value};
use crate::kernel::{self, CGROUPS};
use crate::process;

const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const EXCLUSIVE_EFFECTIVE: &str = "cpuset.cpus.exclusive.effective";
/// CPUs of partitions, in the root; with the lab's boot parameter `cgroup_debug`.
const GIVEN_AWAY: &str = ".__DEBUG__.cpuset.cpus.subpartitions";
/// Actions reported with a difference.
const HISTORY: usize = 30;
/// Lines of the kernel's log reported with a warning.
const LOG: usize = 60;
const OK: &str = "ok";
/// A removed cgroup still counts as a sibling for a moment.
const REMOVED: Duration = Duration::from_millis(200);

/// Does random actions until model and kernel differ, the kernel warns, or all are done. The cgroups
/// are outside those of the kubelet and the runtime, and are removed at the end.
pub(crate) fn compare(settings: &ComparisonSettings) -> Result<Comparison> {
    let ComparisonSettings { seed, steps } = *settings;
    ensure!(!kernel::is_tainted()?, "the kernel has warned before the comparison: {}", log_end());
    delegate(Path::new(CGROUPS))?;
    clear_siblings()?;
    let rules = rules::probe()?;
    wait_until_gone()?;
    let mut comparer = Comparer::new(rules)?;
    let mut chooser = Chooser::new(seed, rules);
    let mut history = VecDeque::new();
    let mut comparison = Comparison { seed, rules: format!("{rules:?}"), ..Comparison::default() };
    for _ in 0..steps {
        let before = comparer.tree.clone();
        let action = chooser.choose(&before);
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
        if kernel::is_tainted()? {
            differs.push(format!("the kernel warned:\n{}", log_end()));
        }
        if !differs.is_empty() {
            let history = history.into();
            let before = before.groups().map(|group| describe(&before, group)).collect();
            comparison.difference = Some(Mismatch { differs, history, before });
            return Ok(comparison);
        }
    }
    comparer.clear()?;
    Ok(comparison)
}

/// Empties `cpuset.cpus` of the other first-level cgroups, among them the kubelet's: they would
/// conflict with partitions next to them.
fn clear_siblings() -> Result<()> {
    for entry in fs::read_dir(CGROUPS).context("cannot list cgroups")?.flatten() {
        let file = entry.path().join(CPUS);
        if file.exists() {
            write_value(&file, "\n")?;
        }
    }
    Ok(())
}

fn log_end() -> String {
    last_lines(&kernel::log(), LOG)
}

fn describe(tree: &CgroupTree, group: &CgroupPath) -> String {
    let cpus = tree.cpus(group).unwrap_or_default();
    let PartitionFiles { exclusive, effective, state } = tree.partition(group);
    let populated = if tree.is_populated(group) { ", populated" } else { "" };
    format!(
        "{group}: cpus {cpus}, effective {}, exclusive {exclusive}, exclusive effective {effective}, {state:?}{populated}",
        tree.effective(group)
    )
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
    tree: CgroupTree,
    processes: BTreeMap<CgroupPath, TestProcess>,
}

impl Comparer {
    fn new(rules: KernelRules) -> Result<Self> {
        let tree = CgroupTree::new(kernel::cpus("online")?, kernel::cpus("possible")?);
        Ok(Self { tree: tree.with_rules(rules), processes: BTreeMap::new() })
    }

    /// Returns the results of the model and of the kernel.
    fn act(&mut self, action: &Action) -> Result<(String, String)> {
        let mut results = (OK.to_owned(), OK.to_owned());
        match action {
            Action::Write(group, write) => {
                let (file, value) = match write {
                    Write::Cpus(cpus) => (CPUS, cpus.to_string()),
                    Write::Exclusive(cpus) => (EXCLUSIVE, cpus.to_string()),
                    Write::Partition(kind) => (PARTITION, name_of(*kind).to_owned()),
                };
                // Without the newline, an empty list would not be a write.
                let result = fs::write(directory(group).join(file), format!("{value}\n"))
                    .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
                // The scheduler keeps bandwidth for deadline servers where CPUs are exclusive. How
                // much depends on which scheduling domains it has rebuilt, so it is not modelled.
                let expected = if result == Err(Errno::EBUSY) {
                    result
                } else {
                    self.tree.write(group, *write).map_err(errno)
                };
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
                wait_until_gone()?;
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
                let cpu = set([*cpu]);
                let others = self.tree.online() - cpu;
                self.tree.set_online(if *online { others | cpu } else { others });
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
        let stays = effective == self.tree.shared();
        let offline = self.tree.possible() - self.tree.online();
        let extra = if stays { offline } else { CpuSet::EMPTY };
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
        let mut states = Vec::new();
        let mut check = |what: String, value: &str, expected: CpuSet| {
            comparison.lists += 1;
            let expected = expected.to_string();
            if value != expected {
                differs.push(format!("{what}: kernel {value:?}, model {expected:?}"));
            }
        };
        let root = Path::new(CGROUPS);
        for (file, expected) in
            [(EFFECTIVE, self.tree.shared()), (GIVEN_AWAY, self.tree.given_away())]
        {
            check(format!("{file} of the root"), &read_value(&root.join(file))?, expected);
        }
        for group in self.tree.groups() {
            let directory = directory(group);
            let effective = self.tree.effective(group);
            let set = self.tree.cpus(group).unwrap_or_default();
            let files = self.tree.partition(group);
            for (file, expected) in [
                (CPUS, set),
                (EFFECTIVE, effective),
                (EXCLUSIVE, files.exclusive),
                (EXCLUSIVE_EFFECTIVE, files.effective),
            ] {
                check(format!("{file} of {group}"), &read_value(&directory.join(file))?, expected);
            }
            let state = read_value(&directory.join(PARTITION))?;
            if PartitionState::parse(&state) != Some(files.state) {
                states.push(format!("state of {group}: kernel {state:?}, model {:?}", files.state));
            }
            if let Some(process) = self.processes.get_mut(group) {
                if process.effective != effective {
                    process.effective = effective;
                    process.extra = CpuSet::EMPTY;
                }
                let allowed = process::allowed(process.child.id())? - process.extra;
                // A sleeping process keeps the last CPU of its partition when that goes offline.
                if allowed.is_disjoint(&self.tree.online()) {
                    continue;
                }
                check(format!("CPUs of the process in {group}"), &allowed.to_string(), effective);
            }
            comparison.cut_empty += usize::from(self.tree.is_cut_empty(group));
        }
        differs.append(&mut states);
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

fn wait_until_gone() -> Result<()> {
    let is_gone = || {
        let stat = read_value(&Path::new(CGROUPS).join("cgroup.stat"))?;
        Ok(stat.lines().any(|line| line == "nr_dying_descendants 0").then_some(()))
    };
    poll(REMOVED, is_gone).map(drop)
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
