//! Random actions on cgroups, of which none breaks the kernel.

use std::collections::VecDeque;
use std::fmt;

use cgroups::{CgroupTree, Hazard, KernelRules, Write, hazard};
use cpuset::{CgroupPath, CpuSet, PartitionState, PartitionType};
use fastrand::Rng;

/// Names of cgroups. `a.b` sorts between `a` and the children of `a`.
pub(super) const NAMES: [&str; 3] = ["a", "a.b", "b"];
const DEPTH: usize = 4;
/// Most cgroups at one time: each costs some reads after every action.
const GROUPS: usize = 16;
/// CPUs outside partitions that stay online: without any, partitions and the root share CPUs.
const SHARED: usize = 2;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Write(CgroupPath, Write),
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
        let kind = self.kind();
        match self {
            Action::Write(group, Write::Cpus(cpus) | Write::Exclusive(cpus)) => {
                write!(f, "{kind} {group} := {cpus}")
            }
            Action::Write(group, Write::Partition(_)) => write!(f, "partition {group} := {kind}"),
            Action::Make(group)
            | Action::Remove(group)
            | Action::Start(group)
            | Action::End(group) => write!(f, "{kind} {group}"),
            Action::SetOnline(cpu, _) => write!(f, "{kind} CPU {cpu}"),
        }
    }
}

impl Action {
    /// As in the counts of results.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Action::Write(_, Write::Cpus(_)) => "write",
            Action::Write(_, Write::Exclusive(_)) => "exclusive",
            Action::Write(_, Write::Partition(kind)) => name_of(*kind),
            Action::Make(_) => "create",
            Action::Remove(_) => "remove",
            Action::Start(_) => "start",
            Action::End(_) => "end",
            Action::SetOnline(_, true) => "online",
            Action::SetOnline(_, false) => "offline",
        }
    }

    /// Whether this kernel survives it. The rules of [`hazard`] are stricter, because they count for
    /// all kernels.
    fn is_safe(&self, tree: &CgroupTree, rules: KernelRules) -> bool {
        match self {
            Action::Write(group, write) => is_safe_write(tree, rules, group, *write),
            Action::Start(group) => !tree.effective(group).is_empty(),
            Action::SetOnline(cpu, online) => is_safe_hotplug(tree, *cpu, *online),
            Action::Make(_) | Action::Remove(_) | Action::End(_) => true,
        }
    }
}

pub(super) fn name_of(kind: Option<PartitionType>) -> &'static str {
    kind.map_or("member", PartitionType::name)
}

fn is_safe_write(tree: &CgroupTree, rules: KernelRules, group: &CgroupPath, write: Write) -> bool {
    let follows = rules >= KernelRules::PartitionsFollow;
    let safe_here = match hazard(tree, group, write) {
        None | Some(Hazard::LeavesTooFewShared) => true,
        Some(Hazard::EmptiedAbove | Hazard::WidenedAboveCut | Hazard::NarrowedWithin) => follows,
        Some(Hazard::MeetsSibling) => {
            rules >= KernelRules::SiblingsKeepCpus || !tree.is_exclusive(group)
        }
        Some(Hazard::NarrowedAbove) => follows || ends_cleanly(tree, group, write),
        Some(Hazard::MeetsPartition | Hazard::WithoutExclusive | Hazard::Nested) => false,
    };
    // The kernel counts CPUs wrongly that an invalid first-level partition gets.
    let is_first_level = group.parent().is_none();
    let invalid = matches!(tree.partition(group).state, PartitionState::Invalid(_));
    let lists = !matches!(write, Write::Partition(_));
    // Refusals because of deadline servers' bandwidth are not modelled, and this one would be silent.
    let cpus = tree.cpus(group).unwrap_or_default();
    let is_member = tree.partition(group).state == PartitionState::Member;
    let busy = !is_member && !cpus.is_empty() && cpus.is_disjoint(&tree.online());
    if !safe_here || busy || (is_first_level && invalid && lists) {
        return false;
    }
    let mut after = tree.clone();
    // A refused write changes nothing.
    let _ = after.write(group, write);
    // Processes of a partition without online CPUs run anywhere, also later.
    let stray = after.groups().any(|group| {
        after.is_partition(group) && after.effective(group).is_empty() && after.is_populated(group)
    });
    // Newer kernels forget these exclusive CPUs when they update the cgroup for another reason.
    let files = after.partition(group);
    let is_invalid = matches!(files.state, PartitionState::Invalid(_));
    let stale = is_invalid && files.exclusive.is_empty() && !files.effective.is_empty();
    !stray && !stale && after.shared().len() >= SHARED
}

/// The oldest rules end a partition that runs on a lost CPU, and keep one of which an offline CPU is
/// lost.
fn ends_cleanly(tree: &CgroupTree, group: &CgroupPath, write: Write) -> bool {
    let Write::Exclusive(cpus) = write else { return false };
    let lost = tree.partition(group).exclusive - cpus;
    let mut partitions = tree.below(group).filter(|below| tree.is_partition(below));
    partitions.all(|below| {
        tree.partition(below).effective.is_disjoint(&lost)
            || !tree.effective(below).is_disjoint(&lost)
    }) && !cpus.is_empty()
}

fn is_safe_hotplug(tree: &CgroupTree, cpu: usize, online: bool) -> bool {
    let stale = tree.groups().any(|group| {
        let state = tree.partition(group).state;
        group.parent().is_none() && matches!(state, PartitionState::Invalid(_))
    });
    if stale || online {
        return !stale;
    }
    let last = set([cpu]);
    // The kernel refuses to take the last CPU of a scheduling domain offline.
    let refused = tree.groups().any(|group| {
        let isolated = PartitionState::Valid(PartitionType::Isolated);
        let free = tree.partition(group).state == isolated && group.parent().is_some();
        tree.is_partition(group) && tree.effective(group) == last && !free
    });
    !refused && (tree.shared() - last).len() >= SHARED
}

pub(super) fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
    cpus.into_iter().filter_map(|cpu| CpuSet::of(cpu).ok()).collect()
}

pub(super) struct Chooser {
    rng: Rng,
    rules: KernelRules,
    /// The rest of a sequence, such as those that make a partition.
    planned: VecDeque<Action>,
}

impl Chooser {
    pub(super) fn new(seed: u64, rules: KernelRules) -> Self {
        Self { rng: Rng::with_seed(seed), rules, planned: VecDeque::new() }
    }

    fn plan(&mut self, group: CgroupPath, write: Write) {
        self.planned.push_back(Action::Write(group, write));
    }

    /// A valid action, or a write that the kernel may refuse.
    pub(super) fn choose(&mut self, tree: &CgroupTree) -> Action {
        loop {
            if self.rng.u8(..8) > 0
                && let Some(action) = self.planned.pop_front()
            {
                // Mostly, nothing follows a refused write.
                if is_refused(tree, &action) && self.rng.u8(..4) > 0 {
                    self.planned.clear();
                } else if action.is_safe(tree, self.rules) {
                    return action;
                }
                continue;
            }
            let action = match self.rng.u8(..100) {
                0..15 => self.write_cpus(tree),
                15..20 => self.write_exclusive(tree),
                20..25 => self.write_partition(tree),
                25..38 => self.plan_partition(tree),
                38..54 => self.plan_move(tree),
                54..57 => self.plan_release(tree),
                57..60 => self.narrow_above(tree),
                60..76 => self.make(tree),
                76..79 => self.existing(tree).map(Action::Remove),
                79..96 => self.start_or_end(tree),
                _ => self.set_online(tree),
            };
            if let Some(action) = action
                && action.is_safe(tree, self.rules)
            {
                return action;
            }
        }
    }

    fn write_cpus(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = match self.rng.u8(..20) {
            0 => self.any(),
            _ => self.existing(tree)?,
        };
        let mut cpus = self.list(tree);
        if hazard(tree, &group, Write::Cpus(cpus)).is_some() {
            cpus -= partitions_beside(tree, &group);
        }
        Some(Action::Write(group, Write::Cpus(cpus)))
    }

    fn write_exclusive(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.existing(tree)?;
        let cpus = match self.rng.u8(..10) {
            0..3 => CpuSet::EMPTY,
            3..6 => self.list(tree),
            _ => self.few(tree),
        };
        Some(Action::Write(group, Write::Exclusive(cpus)))
    }

    fn write_partition(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.existing(tree)?;
        let kind = match self.rng.u8(..4) {
            0 => None,
            _ => Some(self.kind()),
        };
        Some(Action::Write(group, Write::Partition(kind)))
    }

    /// Siblings leave the CPUs, the cgroups above pass them down, the cgroup takes them.
    fn plan_partition(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.existing(tree)?;
        // Not too many at the first level: they keep others from being made.
        if group.parent().is_none() && self.rng.u8(..4) > 0 {
            return None;
        }
        let cpus = self.free(tree, &group);
        if cpus.is_empty() {
            return None;
        }
        self.plan_cpus(tree, &group, cpus);
        let kind = self.kind();
        self.plan(group, Write::Partition(Some(kind)));
        self.planned.pop_front()
    }

    /// A partition gets other CPUs, more, or fewer.
    fn plan_move(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.partition(tree)?;
        let old = tree.partition(&group).exclusive;
        let cpus = match self.rng.u8(..4) {
            0 => old | self.free(tree, &group),
            1 => set(old.iter().filter(|_| self.rng.bool())),
            _ => self.free(tree, &group),
        };
        self.plan_cpus(tree, &group, cpus);
        if self.rng.bool() {
            for above in group.ancestors().into_iter().rev() {
                let left = (tree.partition(&above).exclusive - (old - cpus)) | cpus;
                self.plan(above, Write::Exclusive(left));
            }
        }
        self.planned.pop_front()
    }

    fn plan_release(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.partition(tree)?;
        let old = tree.partition(&group).exclusive;
        self.plan(group.clone(), Write::Partition(None));
        self.plan(group.clone(), Write::Exclusive(CpuSet::EMPTY));
        for above in group.ancestors().into_iter().rev() {
            let left = tree.partition(&above).exclusive - old;
            self.plan(above, Write::Exclusive(left));
        }
        self.planned.pop_front()
    }

    /// A cgroup above a partition loses some of its exclusive CPUs.
    fn narrow_above(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.partition(tree)?;
        let lost = set(tree.partition(&group).effective.iter().filter(|_| self.rng.bool()));
        let above = self.rng.choice(group.ancestors())?;
        let left = tree.partition(&above).exclusive - lost;
        Some(Action::Write(above, Write::Exclusive(left)))
    }

    fn plan_cpus(&mut self, tree: &CgroupTree, group: &CgroupPath, cpus: CpuSet) {
        for sibling in tree.siblings(group) {
            let set = tree.cpus(sibling).unwrap_or_default();
            let left = set - cpus;
            if left != set && !left.is_empty() && self.rng.u8(..8) > 0 {
                self.plan(sibling.clone(), Write::Cpus(left));
            }
        }
        for above in group.ancestors() {
            let more = tree.partition(&above).exclusive | cpus;
            self.plan(above, Write::Exclusive(more));
        }
        self.plan(group.clone(), Write::Exclusive(cpus));
    }

    /// The kernel allows either processes or child cgroups.
    fn make(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.any();
        let inside = group.ancestors().iter().any(|above| has_process(tree, above));
        let fits = tree.groups().count() + DEPTH <= GROUPS;
        (fits && !inside).then_some(Action::Make(group))
    }

    fn start_or_end(&mut self, tree: &CgroupTree) -> Option<Action> {
        let group = self.existing(tree)?;
        if has_process(tree, &group) {
            return Some(Action::End(group));
        }
        is_leaf(tree, &group).then_some(Action::Start(group))
    }

    /// CPU 0 cannot go offline.
    fn set_online(&mut self, tree: &CgroupTree) -> Option<Action> {
        let cpu = self.rng.choice(tree.possible().iter().skip(1).collect::<Vec<_>>())?;
        Some(Action::SetOnline(cpu, !tree.online().contains(cpu)))
    }

    fn existing(&mut self, tree: &CgroupTree) -> Option<CgroupPath> {
        self.rng.choice(tree.groups().collect::<Vec<_>>()).cloned()
    }

    fn partition(&mut self, tree: &CgroupTree) -> Option<CgroupPath> {
        let partitions: Vec<_> = tree.groups().filter(|group| tree.is_partition(group)).collect();
        self.rng.choice(partitions).cloned()
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

    fn kind(&mut self) -> PartitionType {
        if self.rng.u8(..3) == 0 { PartitionType::Isolated } else { PartitionType::Root }
    }

    /// Up to three CPUs, mostly such as its siblings and those of the cgroups above leave.
    fn free(&mut self, tree: &CgroupTree, group: &CgroupPath) -> CpuSet {
        let cpus = self.few(tree);
        if self.rng.u8(..6) == 0 {
            return cpus;
        }
        let ancestors = group.ancestors();
        let lineage = ancestors.iter().chain([group]);
        let others = lineage.flat_map(|group| tree.siblings(group));
        cpus - others.map(|other| tree.partition(other).exclusive).collect::<CpuSet>()
    }

    /// One to three CPUs, mostly such that no partition has.
    fn few(&mut self, tree: &CgroupTree) -> CpuSet {
        let mut from = tree.possible();
        if self.rng.u8(..4) > 0 {
            from = tree.shared();
        }
        let count = self.rng.usize(1..=3);
        set(self.rng.choose_multiple(from.iter(), count))
    }

    /// No CPUs, a range, or any possible CPUs; one list in twenty has a CPU that cannot exist.
    fn list(&mut self, tree: &CgroupTree) -> CpuSet {
        let possible = tree.possible();
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
}

fn is_refused(tree: &CgroupTree, action: &Action) -> bool {
    let Action::Write(group, write) = action else { return false };
    tree.clone().write(group, *write).is_err()
}

/// Only cgroups without children have processes.
fn has_process(tree: &CgroupTree, group: &CgroupPath) -> bool {
    is_leaf(tree, group) && tree.is_populated(group)
}

fn is_leaf(tree: &CgroupTree, group: &CgroupPath) -> bool {
    tree.below(group).next().is_none()
}

fn partitions_beside(tree: &CgroupTree, group: &CgroupPath) -> CpuSet {
    let partitions = tree.siblings(group).filter(|sibling| tree.is_partition(sibling));
    let files = partitions.map(|sibling| tree.partition(sibling));
    files.map(|files| files.exclusive | files.effective).collect()
}
