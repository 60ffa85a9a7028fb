//! [`CgroupTree`]: cgroup v2 cpusets as the kernel treats them. Pure: no files.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` ("Cpuset") and `kernel/cgroup/cpuset.c` of
//! Linux 6.12. What matters here:
//!
//! * processes of a cgroup run on its *effective* CPUs: the intersection (*cut*) of its `cpuset.cpus` and
//!   the parent's effective CPUs, or all of the parent's if it has none set or the cut is empty;
//! * a new cgroup has no CPUs set; one with processes in it or below it cannot be emptied;
//! * offline CPUs can be set and count once they are online; CPUs that cannot exist are refused;
//! * a partition takes its CPUs from every cgroup outside it.
//!
//! A partition is *local* if its parent is the root or a valid partition: it takes its CPUs from the
//! parent. Any other one is *remote*: it takes them from the root, and the cgroups above it pass them
//! down in `cpuset.cpus.exclusive`.
//!
//! Not modelled: partitions within partitions, the reasons of invalid states, what follows a write
//! that breaks the kernel (see `hazard`), and refusals because of deadline bandwidth (EBUSY).
//!
//! The lab compares this model with real kernels.

use cpuset::{CgroupPath, CpuSet, PartitionState, PartitionType};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// How a kernel treats partitions, oldest first. The version does not say which: Linux 6.12 changed from
/// the first rules to the second within its stable series. 7.0 has the third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum KernelRules {
    /// A remote partition ends if `cpuset.cpus.exclusive` of a cgroup above it loses CPUs on which it
    /// runs. It does not get CPUs that the cgroup above gains.
    #[default]
    PartitionsEnd,
    /// Remote partitions follow `cpuset.cpus.exclusive` of the cgroups above them.
    PartitionsFollow,
    /// In addition, `cpuset.cpus` never conflicts with a sibling, and populated cgroups can be
    /// emptied.
    SiblingsKeepCpus,
}

/// One write into a file of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// `cpuset.cpus`
    Cpus(CpuSet),
    /// `cpuset.cpus.exclusive`
    Exclusive(CpuSet),
    /// `cpuset.cpus.partition`; `None` is `member`.
    Partition(Option<PartitionType>),
}

/// The content of a cgroup's partition files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionFiles {
    /// `cpuset.cpus.exclusive`
    pub exclusive: CpuSet,
    /// `cpuset.cpus.exclusive.effective`
    pub effective: CpuSet,
    /// `cpuset.cpus.partition`
    pub state: PartitionState,
}

/// Cgroups and their CPUs: all of a hierarchy, or those that a plan concerns with all above them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupTree {
    online: CpuSet,
    possible: CpuSet,
    empties_populated: bool,
    rules: KernelRules,
    /// Copies of a tree share the cgroups that are the same in both.
    groups: BTreeMap<CgroupPath, Arc<Cgroup>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cgroup {
    cpus: CpuSet,
    occupied: bool,
    /// The kernel's `CS_CPU_EXCLUSIVE`: siblings cannot have the same CPUs. Set for valid partitions. In
    /// some kernels it stays when a partition ends, which no file shows.
    flagged: bool,
    partition: PartitionFiles,
}

impl PartitionFiles {
    /// The CPUs that no sibling may name while this is a partition, including offline ones.
    pub(super) fn held(self) -> CpuSet {
        self.exclusive | self.effective
    }

    /// Whether the cgroups above do not pass down all that the cgroup asks for.
    pub(super) fn is_cut(self) -> bool {
        self.exclusive != self.effective
    }
}

impl fmt::Display for PartitionFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.state, wording::cpus(self.effective))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no such cgroup")]
    Gone,
    #[error("a populated cgroup cannot be emptied (ENOSPC)")]
    Populated,
    #[error("the machine cannot have these CPUs (ERANGE)")]
    Impossible,
    #[error("a cgroup beside it has some of these exclusive CPUs (EINVAL)")]
    NotExclusive,
}

/// A tree that stands in for a kernel. A plan reads all of this from the kernel's files instead.
#[cfg(any(test, feature = "model"))]
impl CgroupTree {
    pub fn with_rules(self, rules: KernelRules) -> CgroupTree {
        CgroupTree { rules, ..self }
    }

    /// This tree under a newer kernel, which lets populated cgroups be emptied.
    pub fn emptying_populated(self) -> CgroupTree {
        CgroupTree { empties_populated: true, ..self }
    }

    /// Removes a cgroup and those below it. A partition's CPUs return to the cgroups outside it.
    pub fn remove(&mut self, group: &CgroupPath) {
        self.groups.retain(|other, _| other != group && !other.is_below(group));
    }

    /// Whether siblings cannot have the same CPUs. No file shows this: a cgroup whose files were recorded
    /// counts as exclusive if it is a valid partition.
    pub fn is_exclusive(&self, group: &CgroupPath) -> bool {
        self.groups.get(group).is_some_and(|group| group.flagged)
    }

    /// Sets whether a cgroup has processes.
    pub fn occupy(&mut self, group: &CgroupPath, occupied: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            Arc::make_mut(group).occupied = occupied;
        }
    }

    pub fn set_online(&mut self, online: CpuSet) {
        self.online = online;
        KernelModel::of(self).update_online();
    }
}

impl CgroupTree {
    pub fn new(online: CpuSet, possible: CpuSet) -> CgroupTree {
        CgroupTree {
            online,
            possible,
            empties_populated: false,
            rules: KernelRules::default(),
            groups: BTreeMap::new(),
        }
    }

    /// Makes a cgroup and those above it, unless they exist.
    pub fn make(&mut self, group: &CgroupPath) {
        for above in group.ancestors() {
            self.groups.entry(above).or_default();
        }
        self.groups.entry(group.clone()).or_default();
    }

    /// Writes a file; a refusal changes nothing. A write that succeeds may still leave the cgroup, or
    /// another one, an invalid partition.
    pub fn write(&mut self, group: &CgroupPath, write: Write) -> Result<(), Refused> {
        if !self.contains(group) {
            return Err(Refused::Gone);
        }
        match write {
            Write::Cpus(cpus) => self.write_cpus(group, cpus),
            Write::Exclusive(cpus) => self.write_exclusive(group, cpus),
            Write::Partition(kind) => {
                KernelModel::of(self).write_partition(group, kind);
                Ok(())
            }
        }
    }

    fn write_cpus(&mut self, group: &CgroupPath, cpus: CpuSet) -> Result<(), Refused> {
        if !cpus.is_subset(&self.possible) {
            return Err(Refused::Impossible);
        }
        let empties = cpus.is_empty() && !self.cpus(group).unwrap_or_default().is_empty();
        let accepted = self.empties_populated || self.rules >= KernelRules::SiblingsKeepCpus;
        if empties && !accepted && self.is_populated(group) {
            return Err(Refused::Populated);
        }
        if self.has_exclusive_cpus() {
            KernelModel::of(self).write_cpus(group, cpus);
        } else {
            self.put(group, cpus);
        }
        Ok(())
    }

    fn write_exclusive(&mut self, group: &CgroupPath, cpus: CpuSet) -> Result<(), Refused> {
        if !cpus.is_subset(&self.possible) {
            return Err(Refused::Impossible);
        }
        KernelModel::of(self).write_exclusive(group, cpus)
    }

    /// If not, a write of `cpuset.cpus` affects no partition.
    fn has_exclusive_cpus(&self) -> bool {
        self.groups.values().any(|group| group.partition != PartitionFiles::default())
    }

    /// Records the `cpuset.cpus` of a cgroup, which is made if it does not exist.
    pub fn put(&mut self, group: &CgroupPath, cpus: CpuSet) {
        self.make(group);
        self.known(group).cpus = cpus;
    }

    fn known(&mut self, group: &CgroupPath) -> &mut Cgroup {
        Arc::make_mut(self.groups.entry(group.clone()).or_default())
    }

    /// Records the partition files of a cgroup, which is made if it does not exist.
    pub(super) fn put_partition(&mut self, group: &CgroupPath, files: PartitionFiles) {
        self.make(group);
        let group = self.known(group);
        group.partition = files;
        group.flagged = files.state.is_valid();
    }

    pub fn partition(&self, group: &CgroupPath) -> PartitionFiles {
        self.groups.get(group).map(|group| group.partition).unwrap_or_default()
    }

    /// Records the online CPUs, without what their change means for partitions.
    pub(super) fn put_online(&mut self, online: CpuSet) {
        self.online = online;
    }

    pub fn online(&self) -> CpuSet {
        self.online
    }

    pub fn possible(&self) -> CpuSet {
        self.possible
    }

    pub fn contains(&self, group: &CgroupPath) -> bool {
        self.groups.contains_key(group)
    }

    /// Its `cpuset.cpus`; `None` if the cgroup does not exist.
    pub fn cpus(&self, group: &CgroupPath) -> Option<CpuSet> {
        Some(self.groups.get(group)?.cpus)
    }

    /// The CPUs on which a cgroup's processes run, or would run in a new cgroup of that path.
    pub fn effective(&self, group: &CgroupPath) -> CpuSet {
        match self.groups.get(group) {
            Some(known) if known.partition.state.is_valid() => {
                known.partition.effective & self.online
            }
            Some(known) => cut(known.cpus, self.above(group)),
            None => self.above(group),
        }
    }

    /// The effective CPUs of its parent.
    pub fn above(&self, group: &CgroupPath) -> CpuSet {
        match group.parent() {
            Some(parent) => self.effective(&parent),
            None => self.shared(),
        }
    }

    /// The CPUs that a cgroup's parent would have if there were no partitions.
    pub(super) fn above_without_partitions(&self, group: &CgroupPath) -> CpuSet {
        let above =
            |above: CpuSet, group: CgroupPath| cut(self.cpus(&group).unwrap_or_default(), above);
        group.ancestors().into_iter().fold(self.online, above)
    }

    /// The root's effective CPUs.
    pub fn shared(&self) -> CpuSet {
        self.online - self.given_away()
    }

    /// The CPUs of valid partitions, including offline ones.
    pub fn given_away(&self) -> CpuSet {
        let partitions = self.groups.values().map(|group| group.partition);
        partitions.filter(|files| files.state.is_valid()).map(|files| files.effective).collect()
    }

    /// Whether a cgroup has no CPU in common with its parent, so that it runs on all of its parent's.
    pub fn is_cut_empty(&self, group: &CgroupPath) -> bool {
        let set = self.cpus(group).unwrap_or_default();
        !set.is_empty() && !self.is_partition(group) && set.is_disjoint(&self.above(group))
    }

    pub fn is_partition(&self, group: &CgroupPath) -> bool {
        self.partition(group).state.is_valid()
    }

    /// Whether a cgroup or one below it has processes.
    pub fn is_populated(&self, group: &CgroupPath) -> bool {
        let mut all = std::iter::once(group).chain(self.below(group));
        all.any(|group| self.groups.get(group).is_some_and(|group| group.occupied))
    }

    /// All cgroups, parents before children.
    pub fn groups(&self) -> impl Iterator<Item = &CgroupPath> {
        self.groups.keys()
    }

    /// All cgroups below this one, at any depth.
    pub fn below<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        // Paths below `a` sort after `a`, but not all directly after it: `a.b` sorts before `a/b`.
        let rest = self.groups.range(group..).skip(1).map(|(other, _)| other);
        rest.take_while(|other| other.as_str().starts_with(group.as_str()))
            .filter(|other| other.is_below(group))
    }

    pub fn children<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        self.below(group).filter(|other| parent(other) == group.as_str())
    }

    /// The other children of a cgroup's parent.
    pub fn siblings<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        let above = parent(group);
        let first = group.parent().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.groups.range((first, Bound::Unbounded)).map(|(other, _)| other);
        rest.take_while(move |other| other.as_str().starts_with(above))
            .filter(move |other| parent(other) == above && *other != group)
    }
}

/// Empty for the root.
fn parent(group: &CgroupPath) -> &str {
    group.as_str().rsplit_once('/').map_or("", |(parent, _)| parent)
}

pub(super) fn cut(cpus: CpuSet, above: CpuSet) -> CpuSet {
    let left = cpus & above;
    if left.is_empty() { above } else { left }
}

/// How the kernel changes partitions when a file is written, or a CPU goes offline or online.
struct KernelModel<'t> {
    tree: &'t mut CgroupTree,
}

impl Cgroup {
    /// The CPUs that a partition here would have if the cgroups above passed all of them down:
    /// `cpuset.cpus.exclusive`, or `cpuset.cpus` where that is not set.
    fn requested(&self) -> CpuSet {
        if self.partition.exclusive.is_empty() { self.cpus } else { self.partition.exclusive }
    }

    fn is_valid(&self) -> bool {
        self.partition.state.is_valid()
    }

    fn is_member(&self) -> bool {
        self.partition.state == PartitionState::Member
    }

    fn invalidate(&mut self) {
        if let PartitionState::Valid(kind) = self.partition.state {
            self.partition.state = PartitionState::Invalid(kind);
        }
        self.forget_defaults();
    }

    /// Without `cpuset.cpus.exclusive`, only a valid partition has exclusive CPUs.
    fn forget_defaults(&mut self) {
        if self.partition.exclusive.is_empty() {
            self.partition.effective = CpuSet::EMPTY;
            self.flagged = false;
        }
    }
}

impl<'t> KernelModel<'t> {
    fn of(tree: &'t mut CgroupTree) -> KernelModel<'t> {
        KernelModel { tree }
    }

    /// CPUs that conflict with a sibling are accepted: older kernels then make partitions invalid.
    fn write_cpus(&mut self, group: &CgroupPath, cpus: CpuSet) {
        let old = self.cgroup(group);
        if cpus == old.cpus {
            return;
        }
        let mut new = Cgroup { cpus, ..old };
        let requested = if old.is_member() { old.partition.exclusive } else { new.requested() };
        new.partition.effective = self.left_by_siblings(group, self.passed_down(group, requested));
        let conflict = self.conflicts(group, &new);
        if conflict && self.rules() < KernelRules::SiblingsKeepCpus {
            self.invalidate_siblings(group, new.requested());
        }
        self.apply(group, new, conflict);
        self.update_below(group);
    }

    /// CPUs that the cgroup above does not have are accepted, but the cgroup does not get them.
    fn write_exclusive(&mut self, group: &CgroupPath, exclusive: CpuSet) -> Result<(), Refused> {
        let old = self.cgroup(group);
        if exclusive == old.partition.exclusive {
            return Ok(());
        }
        let mut new = old;
        new.partition.exclusive = exclusive;
        let defaults = !old.is_member() && self.rules() >= KernelRules::SiblingsKeepCpus;
        let requested = if defaults { new.requested() } else { exclusive };
        let granted = self.passed_down(group, requested);
        new.partition.effective = granted;
        let taken = self.left_by_siblings(group, granted) != granted;
        if taken || self.conflicts(group, &new) {
            return Err(Refused::NotExclusive);
        }
        self.apply(group, new, false);
        if self.cgroup(group).is_valid() || new.partition.effective != old.partition.effective {
            self.update_below(group);
        }
        Ok(())
    }

    /// The kernel never refuses this write: a partition that is not possible is an invalid one. `None`
    /// is `member`.
    fn write_partition(&mut self, group: &CgroupPath, kind: Option<PartitionType>) {
        use PartitionState::{Invalid, Member, Valid};
        let state = self.cgroup(group).partition.state;
        match (state, kind) {
            (Member, None) => return,
            (Valid(old), Some(kind)) if old == kind => return,
            (Valid(_), Some(kind)) => self.cgroup_mut(group).partition.state = Valid(kind),
            (Valid(_) | Invalid(_), None) => {
                self.lower_flag(group);
                let cgroup = self.cgroup_mut(group);
                cgroup.partition.state = Member;
                cgroup.forget_defaults();
            }
            (Member | Invalid(_), Some(kind)) => self.make_partition(group, kind),
        }
        self.update_below(group);
    }

    fn rules(&self) -> KernelRules {
        self.tree.rules
    }

    fn groups(&self) -> Vec<CgroupPath> {
        self.tree.groups().cloned().collect()
    }

    fn cgroup(&self, group: &CgroupPath) -> Cgroup {
        self.tree.groups.get(group).map(|group| **group).unwrap_or_default()
    }

    fn cgroup_mut(&mut self, group: &CgroupPath) -> &mut Cgroup {
        self.tree.known(group)
    }

    fn siblings(&self, group: &CgroupPath) -> Vec<CgroupPath> {
        self.tree.siblings(group).cloned().collect()
    }

    fn is_remote(&self, group: &CgroupPath) -> bool {
        let parent = group.parent().map(|parent| self.cgroup(&parent));
        self.cgroup(group).is_valid() && parent.is_some_and(|parent| !parent.is_valid())
    }

    /// Those of these exclusive CPUs that the cgroup above has.
    fn passed_down(&self, group: &CgroupPath, requested: CpuSet) -> CpuSet {
        let above = group.parent().map(|parent| self.cgroup(&parent).partition.effective);
        requested & above.unwrap_or(self.tree.possible)
    }

    /// Newer kernels subtract the siblings' exclusive CPUs.
    fn left_by_siblings(&self, group: &CgroupPath, cpus: CpuSet) -> CpuSet {
        if self.rules() < KernelRules::PartitionsFollow || cpus.is_empty() {
            return cpus;
        }
        let siblings = self.siblings(group).into_iter().map(|sibling| {
            let files = self.cgroup(&sibling).partition;
            if files.exclusive.is_empty() { files.effective } else { files.exclusive }
        });
        cpus - siblings.collect::<CpuSet>()
    }

    /// The exclusive CPUs that a cgroup with these files gets. Those that come from `cpuset.cpus` were
    /// not checked when they were written, so siblings may have some of them.
    fn granted(&self, group: &CgroupPath, cgroup: &Cgroup) -> CpuSet {
        let passed = self.passed_down(group, cgroup.requested());
        if cgroup.partition.exclusive.is_empty() {
            self.left_by_siblings(group, passed)
        } else {
            passed
        }
    }

    /// Whether a sibling forbids these files: exclusive CPUs overlap, or they take all of the sibling's
    /// `cpuset.cpus`. Under older rules, `cpuset.cpus` conflict as well if either cgroup is exclusive.
    fn conflicts(&self, group: &CgroupPath, new: &Cgroup) -> bool {
        let old = self.cgroup(group);
        let ours = new.partition.exclusive;
        self.siblings(group).into_iter().any(|sibling| {
            let sibling = self.cgroup(&sibling);
            let theirs = sibling.partition.exclusive;
            if self.rules() >= KernelRules::SiblingsKeepCpus {
                let buried = ours != old.partition.exclusive && is_buried(sibling.cpus, ours);
                buried || !ours.is_disjoint(&theirs)
            } else if new.flagged || sibling.flagged || !(ours.is_empty() || theirs.is_empty()) {
                !new.requested().is_disjoint(&sibling.requested())
            } else {
                is_buried(sibling.cpus, ours) || is_buried(new.cpus, theirs)
            }
        })
    }

    /// Whether a partition of these CPUs would leave tasks without CPUs: those of the cgroup above, or
    /// its own.
    fn leaves_no_cpus(&self, group: &CgroupPath, taken: CpuSet) -> bool {
        let above = self.tree.above(group);
        (above.is_subset(&taken) && self.parent_has_other_tasks(group))
            || (taken.is_disjoint(&self.tree.online) && self.tree.is_populated(group))
    }

    /// Whether the cgroup above has tasks that are neither in this cgroup nor in a partition.
    fn parent_has_other_tasks(&self, group: &CgroupPath) -> bool {
        // The root has the kernel's threads.
        let Some(parent) = group.parent() else { return true };
        let in_partition = |other: &CgroupPath| {
            let mut above = other.ancestors().into_iter().chain([other.clone()]);
            above.any(|above| {
                above.is_below(&parent) && above != *group && self.cgroup(&above).is_valid()
            })
        };
        let mut others = self.tree.below(&parent).filter(|other| *other != group);
        self.cgroup(&parent).occupied
            || others.any(|other| self.tree.is_populated(other) && !in_partition(other))
    }

    /// Whether a valid partition can move to these CPUs.
    fn can_have(&self, group: &CgroupPath, cpus: CpuSet) -> bool {
        !cpus.is_empty()
            && !self.leaves_no_cpus(group, cpus)
            && (!self.is_remote(group)
                || self.can_add(cpus - self.cgroup(group).partition.effective))
    }

    /// Whether the root can give these to a remote partition.
    fn can_add(&self, cpus: CpuSet) -> bool {
        let root = self.tree.shared();
        cpus.is_empty() || (cpus.is_disjoint(&self.tree.given_away()) && !root.is_subset(&cpus))
    }

    /// Sets lists of CPUs. First updates the state of the partition here and, under the oldest rules, of
    /// those below.
    fn apply(&mut self, group: &CgroupPath, new: Cgroup, conflict: bool) {
        let old = self.cgroup(group);
        let cpus = new.partition.effective;
        match old.partition.state {
            PartitionState::Member => {
                if self.rules() == KernelRules::PartitionsEnd && !new.partition.exclusive.is_empty()
                {
                    self.end_partitions_with(old.partition.effective - cpus);
                }
            }
            PartitionState::Valid(_) => {
                if conflict || !self.can_have(group, cpus) {
                    self.invalidate(group);
                }
            }
            PartitionState::Invalid(kind) => {
                let local = group.parent().is_none();
                let had_none = self.leaves_no_cpus(group, old.requested());
                if local && !conflict && !had_none && self.can_have(group, cpus) {
                    self.cgroup_mut(group).partition.state = PartitionState::Valid(kind);
                    self.raise_flag(group);
                }
            }
        }
        let cgroup = self.cgroup_mut(group);
        cgroup.cpus = new.cpus;
        cgroup.partition.exclusive = new.partition.exclusive;
        cgroup.partition.effective = cpus;
        if old.is_valid() && !cgroup.is_valid() {
            cgroup.forget_defaults();
        }
    }

    fn make_partition(&mut self, group: &CgroupPath, kind: PartitionType) {
        let cpus = self.granted(group, &self.cgroup(group));
        let possible = self.raise_flag(group) && self.can_start(group, cpus);
        let cgroup = self.cgroup_mut(group);
        if possible {
            cgroup.partition.state = PartitionState::Valid(kind);
            cgroup.partition.effective = cpus;
        } else {
            cgroup.partition.state = PartitionState::Invalid(kind);
            self.lower_flag(group);
            self.cgroup_mut(group).forget_defaults();
        }
    }

    fn can_start(&self, group: &CgroupPath, cpus: CpuSet) -> bool {
        let Some(parent) = group.parent() else {
            // A first-level partition cannot have remote ones below it.
            let exclusive = self.cgroup(group).partition.exclusive;
            return !cpus.is_empty()
                && exclusive.is_disjoint(&self.tree.given_away())
                && !self.leaves_no_cpus(group, cpus);
        };
        if self.cgroup(&parent).is_valid() {
            return !cpus.is_empty() && !self.leaves_no_cpus(group, cpus);
        }
        let needed = if self.rules() >= KernelRules::SiblingsKeepCpus {
            cpus & self.tree.online
        } else {
            cpus
        };
        !needed.is_empty() && self.can_add(cpus)
    }

    /// A remote partition keeps its flag, which binds its siblings on older kernels.
    fn invalidate(&mut self, group: &CgroupPath) {
        if !self.is_remote(group) {
            self.lower_flag(group);
        }
        self.cgroup_mut(group).invalidate();
    }

    fn invalidate_siblings(&mut self, group: &CgroupPath, cpus: CpuSet) {
        for sibling in self.siblings(group) {
            let cgroup = self.cgroup(&sibling);
            if cgroup.is_valid() && !cgroup.partition.effective.is_disjoint(&cpus) {
                self.invalidate(&sibling);
            }
        }
    }

    /// Makes remote partitions that run on any of these CPUs members. They keep their flags.
    fn end_partitions_with(&mut self, lost: CpuSet) {
        for group in self.groups() {
            if self.is_remote(&group) && !self.tree.effective(&group).is_disjoint(&lost) {
                let cgroup = self.cgroup_mut(&group);
                cgroup.partition.state = PartitionState::Member;
                cgroup.forget_defaults();
            }
        }
    }

    /// Sets the flag that keeps siblings from having the same CPUs; false if they have some.
    fn raise_flag(&mut self, group: &CgroupPath) -> bool {
        self.set_flag(group, true)
    }

    fn lower_flag(&mut self, group: &CgroupPath) {
        self.set_flag(group, false);
    }

    /// Older kernels check siblings also when they clear the flag, so it can stay set.
    fn set_flag(&mut self, group: &CgroupPath, flagged: bool) -> bool {
        let old = self.cgroup(group);
        if old.flagged == flagged {
            return true;
        }
        let fits = !self.conflicts(group, &Cgroup { flagged, ..old });
        if fits {
            self.cgroup_mut(group).flagged = flagged;
        }
        fits
    }

    /// Updates the exclusive CPUs of this cgroup and of those below it.
    fn update_below(&mut self, top: &CgroupPath) {
        let below: Vec<CgroupPath> = self.tree.below(top).cloned().collect();
        self.update_exclusive(top, true);
        for group in below {
            if !self.is_remote(&group) {
                self.update_exclusive(&group, false);
            } else if self.rules() >= KernelRules::PartitionsFollow {
                self.follow(&group);
            }
        }
    }

    fn update_exclusive(&mut self, group: &CgroupPath, is_top: bool) {
        let cgroup = self.cgroup(group);
        let newest = self.rules() >= KernelRules::SiblingsKeepCpus;
        let is_set = !cgroup.partition.exclusive.is_empty();
        if (is_set && (newest || !is_top)) || (!is_set && cgroup.is_valid()) {
            self.cgroup_mut(group).partition.effective = self.granted(group, &cgroup);
        }
        if !cgroup.is_valid() && (newest || !cgroup.is_member()) {
            self.cgroup_mut(group).forget_defaults();
        }
    }

    /// Moves a remote partition to the CPUs that the cgroups above pass down now.
    fn follow(&mut self, group: &CgroupPath) {
        let cgroup = self.cgroup(group);
        let cpus = self.granted(group, &cgroup);
        let added = cpus - cgroup.partition.effective;
        let fits = !cpus.is_empty() && self.can_add(added);
        self.cgroup_mut(group).partition.effective = cpus;
        if !fits {
            self.invalidate(group);
        }
    }
}

#[cfg(any(test, feature = "model"))]
impl KernelModel<'_> {
    /// Call it once the tree has the new online CPUs. An offline CPU stays with its partition.
    ///
    /// Not modelled: under the oldest rules, the root gets all CPUs back when no CPU outside partitions
    /// is left, although the partitions stay valid.
    fn update_online(&mut self) {
        let given_away = self.tree.given_away();
        let nothing_left = !given_away.is_empty() && self.tree.online.is_subset(&given_away);
        let invalidates_all = nothing_left && self.rules() >= KernelRules::PartitionsFollow;
        for group in self.groups() {
            let cgroup = self.cgroup(&group);
            if cgroup.is_valid() {
                let no_cpus = (cgroup.partition.effective & self.tree.online).is_empty();
                if invalidates_all || (no_cpus && self.tree.is_populated(&group)) {
                    self.invalidate(&group);
                }
            } else if !cgroup.is_member() && group.parent().is_none() {
                self.recover(&group);
            }
        }
    }

    /// Makes an invalid first-level partition valid again if that has become possible.
    fn recover(&mut self, group: &CgroupPath) {
        let cgroup = self.cgroup(group);
        let requested = cgroup.requested();
        let PartitionState::Invalid(kind) = cgroup.partition.state else { return };
        let mut siblings = self.siblings(group).into_iter();
        let overlaps =
            siblings.any(|other| !requested.is_disjoint(&self.cgroup(&other).requested()));
        if cgroup.partition.effective.is_empty()
            || overlaps
            || self.leaves_no_cpus(group, requested)
        {
            return;
        }
        self.cgroup_mut(group).partition.state = PartitionState::Valid(kind);
        self.raise_flag(group);
    }
}

/// Whether a cgroup's `cpuset.cpus` has no CPU but these exclusive ones of a sibling.
fn is_buried(cpus: CpuSet, exclusive: CpuSet) -> bool {
    !cpus.is_empty() && cpus.is_subset(&exclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> CgroupPath {
        CgroupPath::new(path).unwrap()
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// `k`, and below it `a` with a container, `a.b`, and `b` with a container.
    fn tree() -> CgroupTree {
        let mut tree = CgroupTree::new(cpus("0-7"), cpus("0-11"));
        for group in ["k/a/c", "k/a.b", "k/b/c"] {
            tree.make(&path(group));
        }
        tree.occupy(&path("k/a/c"), true);
        tree.occupy(&path("k/b/c"), true);
        tree
    }

    #[track_caller]
    fn check(tree: &CgroupTree, expected: &[(&str, &str)]) {
        for (group, list) in expected {
            assert_eq!(tree.effective(&path(group)).to_string(), *list, "{group}");
        }
    }

    #[test]
    fn a_cgroup_runs_on_its_own_cpus_within_those_of_its_parent() {
        let mut tree = tree();
        check(&tree, &[("k/a/c", "0-7"), ("k/new", "0-7")]);
        tree.write(&path("k/a/c"), Write::Cpus(cpus("2-3"))).unwrap();
        tree.write(&path("k/a"), Write::Cpus(cpus("0-1"))).unwrap();
        check(&tree, &[("k/a", "0-1"), ("k/a/c", "0-1"), ("k/b/c", "0-7"), ("k/a/new", "0-1")]);
        assert!(tree.is_cut_empty(&path("k/a/c")) && !tree.is_cut_empty(&path("k/a")));
        tree.write(&path("k/a"), Write::Cpus(cpus("0-2"))).unwrap();
        check(&tree, &[("k/a/c", "2")]);
    }

    #[test]
    fn populated_cgroups_cannot_be_emptied_by_older_kernels() {
        let mut tree = tree();
        tree.write(&path("k/a"), Write::Cpus(cpus("0-1"))).unwrap();
        assert_eq!(tree.write(&path("k/a"), Write::Cpus(CpuSet::EMPTY)), Err(Refused::Populated));
        check(&tree, &[("k/a/c", "0-1")]);
        let mut later = tree.clone().emptying_populated();
        later.write(&path("k/a"), Write::Cpus(CpuSet::EMPTY)).unwrap();
        check(&later, &[("k/a/c", "0-7")]);
        tree.occupy(&path("k/a/c"), false);
        tree.write(&path("k/a"), Write::Cpus(CpuSet::EMPTY)).unwrap();
        assert_eq!(tree.write(&path("k/none"), Write::Cpus(cpus("0"))), Err(Refused::Gone));
    }

    #[test]
    fn offline_cpus_count_once_they_are_online() {
        let mut tree = tree();
        tree.write(&path("k/a"), Write::Cpus(cpus("7-8"))).unwrap();
        assert_eq!(tree.write(&path("k/a"), Write::Cpus(cpus("12"))), Err(Refused::Impossible));
        check(&tree, &[("k/a/c", "7")]);
        tree.set_online(cpus("0-6"));
        check(&tree, &[("k/a/c", "0-6")]);
        tree.set_online(cpus("0-8"));
        check(&tree, &[("k/a/c", "7-8")]);
    }

    #[test]
    fn a_partition_takes_its_cpus_from_all_others() {
        let mut tree = tree();
        for group in ["k", "k/a", "k/a/c"] {
            tree.write(&path(group), Write::Exclusive(cpus("2-3"))).unwrap();
        }
        tree.write(&path("k/a/c"), Write::Partition(Some(PartitionType::Root))).unwrap();
        check(&tree, &[("k", "0-1,4-7"), ("k/a/c", "2-3"), ("k/a", "0-1,4-7")]);
        tree.remove(&path("k/a"));
        check(&tree, &[("k/b/c", "0-7")]);
        assert!(tree.contains(&path("k/a.b")) && !tree.contains(&path("k/a/c")));
    }

    #[test]
    fn children_are_direct_and_descendants_are_those_whose_path_has_the_cgroups() {
        let tree = tree();
        let names =
            |groups: Vec<&CgroupPath>| groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(tree.children(&path("k")).collect()), ["k/a", "k/a.b", "k/b"]);
        assert_eq!(names(tree.below(&path("k/a")).collect()), ["k/a/c"]);
        assert_eq!(names(tree.children(&path("k/a.b")).collect()), Vec::<String>::new());
    }
}

#[cfg(test)]
mod partition_tests {
    use super::*;
    use KernelRules::{PartitionsEnd, PartitionsFollow, SiblingsKeepCpus};
    use PartitionState::{Invalid, Member, Valid};
    use PartitionType::{Isolated, Root};

    const RULES: [KernelRules; 3] = [PartitionsEnd, PartitionsFollow, SiblingsKeepCpus];
    const LEAF: &str = "k/p/a";

    fn path(path: &str) -> CgroupPath {
        CgroupPath::new(path).unwrap()
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn exclusive(tree: &mut CgroupTree, group: &str, list: &str) -> Result<(), Refused> {
        tree.write(&path(group), Write::Exclusive(cpus(list)))
    }

    fn partition(tree: &mut CgroupTree, group: &str, kind: Option<PartitionType>) {
        tree.write(&path(group), Write::Partition(kind)).unwrap();
    }

    /// `k` and `k/p` with 1-5, of which `k/p/a` asks for 1-2; its sibling `k/p/b`. Both have processes.
    fn tree(rules: KernelRules) -> CgroupTree {
        let mut tree = CgroupTree::new(cpus("0-7"), cpus("0-7")).with_rules(rules);
        for group in [LEAF, "k/p/b"] {
            tree.make(&path(group));
            tree.occupy(&path(group), true);
        }
        for (group, list) in [("k", "1-5"), ("k/p", "1-5"), (LEAF, "1-2")] {
            exclusive(&mut tree, group, list).unwrap();
        }
        tree
    }

    fn with_partition(rules: KernelRules) -> CgroupTree {
        let mut tree = tree(rules);
        partition(&mut tree, LEAF, Some(Root));
        check(&tree, LEAF, Valid(Root), "1-2");
        tree
    }

    #[track_caller]
    fn check(tree: &CgroupTree, group: &str, state: PartitionState, effective: &str) {
        assert_eq!(tree.partition(&path(group)).state, state, "{group} {:?}", tree.rules);
        assert_eq!(tree.effective(&path(group)).to_string(), effective, "{group}");
    }

    #[test]
    fn one_write_of_exclusive_cpus_moves_a_partition() {
        for rules in RULES {
            let mut tree = with_partition(rules);
            exclusive(&mut tree, LEAF, "3-5").unwrap();
            check(&tree, LEAF, Valid(Root), "3-5");
            check(&tree, "k/p/b", Member, "0-2,6-7");
            // It does not get CPUs that the cgroup above does not have.
            exclusive(&mut tree, LEAF, "5-6").unwrap();
            check(&tree, LEAF, Valid(Root), "5");
            exclusive(&mut tree, LEAF, "6").unwrap();
            check(&tree, LEAF, Invalid(Root), "0-7");
            // It does not recover by a write of CPUs alone.
            exclusive(&mut tree, LEAF, "3").unwrap();
            check(&tree, LEAF, Invalid(Root), "0-7");
            partition(&mut tree, LEAF, Some(Isolated));
            check(&tree, LEAF, Valid(Isolated), "3");
        }
    }

    #[test]
    fn exclusive_cpus_of_siblings_are_disjoint() {
        for rules in RULES {
            let mut tree = with_partition(rules);
            assert_eq!(exclusive(&mut tree, "k/p/b", "2-3"), Err(Refused::NotExclusive));
            exclusive(&mut tree, "k/p/b", "3-4").unwrap();
            assert_eq!(exclusive(&mut tree, LEAF, "1-3"), Err(Refused::NotExclusive));
            assert_eq!(exclusive(&mut tree, LEAF, "8"), Err(Refused::Impossible));
        }
    }

    #[test]
    fn exclusive_cpus_must_leave_siblings_some_of_their_cpus() {
        for rules in RULES {
            let mut tree = tree(rules);
            tree.write(&path("k/p/b"), Write::Cpus(cpus("4"))).unwrap();
            assert_eq!(exclusive(&mut tree, LEAF, "3-4"), Err(Refused::NotExclusive));
        }
    }

    #[test]
    fn siblings_cpus_prevent_a_partition_until_they_leave() {
        for rules in [PartitionsEnd, PartitionsFollow] {
            let mut tree = tree(rules);
            tree.write(&path("k/p/b"), Write::Cpus(cpus("2-5"))).unwrap();
            partition(&mut tree, LEAF, Some(Root));
            check(&tree, LEAF, Invalid(Root), "0-7");
            tree.write(&path("k/p/b"), Write::Cpus(cpus("3-5"))).unwrap();
            partition(&mut tree, LEAF, Some(Root));
            check(&tree, LEAF, Valid(Root), "1-2");
        }
        let mut tree = tree(SiblingsKeepCpus);
        tree.write(&path("k/p/b"), Write::Cpus(cpus("2-5"))).unwrap();
        partition(&mut tree, LEAF, Some(Root));
        check(&tree, LEAF, Valid(Root), "1-2");
        check(&tree, "k/p/b", Member, "3-5");
    }

    #[test]
    fn an_ancestor_that_narrows_ends_or_moves_a_partition() {
        let mut tree = with_partition(PartitionsEnd);
        exclusive(&mut tree, "k/p", "2-5").unwrap();
        check(&tree, LEAF, Member, "0-7");
        assert!(tree.is_exclusive(&path(LEAF)), "no file shows it");
        partition(&mut tree, LEAF, Some(Root));
        partition(&mut tree, LEAF, None);
        assert!(!tree.is_exclusive(&path(LEAF)));
        for rules in [PartitionsFollow, SiblingsKeepCpus] {
            let mut tree = with_partition(rules);
            exclusive(&mut tree, "k", "2-5").unwrap();
            check(&tree, LEAF, Valid(Root), "2");
            exclusive(&mut tree, "k/p", "3-5").unwrap();
            check(&tree, LEAF, Invalid(Root), "0-7");
        }
    }

    #[test]
    fn a_partition_that_takes_all_cpus_of_its_parent_becomes_invalid() {
        for rules in RULES {
            let mut tree = with_partition(rules);
            tree.write(&path("k/p"), Write::Cpus(cpus("4"))).unwrap();
            exclusive(&mut tree, LEAF, "3-4").unwrap();
            check(&tree, LEAF, Invalid(Root), "4");
            // This condition does not apply to a partition that starts.
            partition(&mut tree, LEAF, Some(Root));
            check(&tree, LEAF, Valid(Root), "3-4");
            check(&tree, "k/p", Member, "0-2,5-7");
        }
    }

    #[test]
    fn a_partition_cannot_take_all_of_the_roots_cpus() {
        for rules in RULES {
            let mut tree = tree(rules);
            tree.set_online(cpus("1-2"));
            partition(&mut tree, LEAF, Some(Root));
            check(&tree, LEAF, Invalid(Root), "1-2");
        }
    }

    #[test]
    fn offline_cpus_stay_with_their_partition() {
        for rules in RULES {
            let mut tree = with_partition(rules);
            tree.set_online(cpus("0-1,3-7"));
            check(&tree, LEAF, Valid(Root), "1");
            tree.set_online(cpus("0,3-7"));
            check(&tree, LEAF, Invalid(Root), "0,3-7");
            tree.set_online(cpus("0-7"));
            check(&tree, LEAF, Invalid(Root), "0-7");
        }
    }

    #[test]
    fn first_level_partitions_need_no_ancestors_and_have_no_remote_ones_below() {
        for rules in RULES {
            let mut tree = with_partition(rules);
            tree.make(&path("other"));
            assert_eq!(exclusive(&mut tree, "other", "5-6"), Err(Refused::NotExclusive));
            exclusive(&mut tree, "other", "6").unwrap();
            partition(&mut tree, "other", Some(Isolated));
            check(&tree, "other", Valid(Isolated), "6");
            check(&tree, "k", Member, "0,3-5,7");
            partition(&mut tree, "k", Some(Root));
            check(&tree, "k", Invalid(Root), "0,3-5,7");
            tree.remove(&path("other"));
            check(&tree, "k/p/b", Member, "0,3-7");
        }
    }
}
