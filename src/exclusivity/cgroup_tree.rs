//! [`CgroupTree`]: cgroup v2 cpusets as the kernel treats them. Pure: no files.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` ("Cpuset") and `kernel/cgroup/cpuset.c` of
//! Linux 6.12. What matters here:
//!
//! * processes of a cgroup run on its *effective* CPUs: its `cpuset.cpus` cut with the parent's
//!   effective CPUs, or all of the parent's where it has none set or nothing is left of the cut;
//! * a new cgroup has no CPUs set; one with processes in it or below it cannot be emptied;
//! * offline CPUs can be set and count once they are online; CPUs that cannot exist are refused;
//! * a partition takes its CPUs from every cgroup outside it; `partitions` has the rules.
//!
//! The lab holds this model against real kernels.

use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use crate::partition::{PartitionState, PartitionType};
use std::collections::BTreeMap;

mod partitions;

use partitions::Kernel;

/// What a kernel does to partitions, oldest first. Versions do not tell: Linux 6.12 changed from the
/// first rules to the second within its stable series. 7.0 has the third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum KernelRules {
    /// Where `cpuset.cpus.exclusive` of a cgroup loses CPUs that a remote partition below it runs
    /// on, the partition ends. CPUs that a cgroup gains, partitions below it do not get.
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

/// What a cgroup's files for partitions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionFiles {
    /// `cpuset.cpus.exclusive`
    pub exclusive: CpuSet,
    /// `cpuset.cpus.exclusive.effective`
    pub effective: CpuSet,
    /// `cpuset.cpus.partition`
    pub state: PartitionState,
}

/// Cgroups and their CPUs: all of a hierarchy, or those that a plan is about and the ones above
/// these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupTree {
    online: CpuSet,
    possible: CpuSet,
    empties_populated: bool,
    rules: KernelRules,
    groups: BTreeMap<CgroupPath, Cgroup>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cgroup {
    cpus: CpuSet,
    occupied: bool,
    /// Siblings cannot have the same CPUs. Set for valid partitions; in some kernels it stays when a
    /// partition ends, which no file shows.
    flagged: bool,
    partition: PartitionFiles,
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

    pub fn with_rules(self, rules: KernelRules) -> CgroupTree {
        CgroupTree { rules, ..self }
    }

    /// This tree under a kernel that lets populated cgroups be emptied, as newer ones do.
    pub fn emptying_populated(self) -> CgroupTree {
        CgroupTree { empties_populated: true, ..self }
    }

    /// Makes a cgroup, and those above it that do not exist. An existing one stays as it is.
    pub fn make(&mut self, group: &CgroupPath) {
        for above in group.ancestors() {
            self.groups.entry(above).or_default();
        }
        self.groups.entry(group.clone()).or_default();
    }

    /// A partition's CPUs return to the cgroups outside it.
    pub fn remove(&mut self, group: &CgroupPath) {
        self.groups.retain(|other, _| other != group && !other.is_below(group));
    }

    pub fn occupy(&mut self, group: &CgroupPath, occupied: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            group.occupied = occupied;
        }
    }

    pub fn set_online(&mut self, online: CpuSet) {
        self.online = online;
        Kernel::of(self).update_online();
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
                Kernel::of(self).write_partition(group, kind);
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
            Kernel::of(self).write_cpus(group, cpus);
        } else {
            self.put(group, cpus);
        }
        Ok(())
    }

    fn write_exclusive(&mut self, group: &CgroupPath, cpus: CpuSet) -> Result<(), Refused> {
        if !cpus.is_subset(&self.possible) {
            return Err(Refused::Impossible);
        }
        Kernel::of(self).write_exclusive(group, cpus)
    }

    /// Without any, `cpuset.cpus` concerns no partition.
    fn has_exclusive_cpus(&self) -> bool {
        self.groups.values().any(|group| group.partition != PartitionFiles::default())
    }

    /// Records what is set for a cgroup; makes it where it does not exist.
    pub fn put(&mut self, group: &CgroupPath, cpus: CpuSet) {
        self.make(group);
        self.groups.entry(group.clone()).or_default().cpus = cpus;
    }

    /// Records what a cgroup's files for partitions say; makes it where it does not exist.
    pub fn put_partition(&mut self, group: &CgroupPath, files: PartitionFiles) {
        self.make(group);
        let group = self.groups.entry(group.clone()).or_default();
        group.partition = files;
        group.flagged = files.state.is_valid();
    }

    pub fn partition(&self, group: &CgroupPath) -> PartitionFiles {
        self.groups.get(group).map(|group| group.partition).unwrap_or_default()
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

    /// What is set for a cgroup; `None` if it does not exist.
    pub fn cpus(&self, group: &CgroupPath) -> Option<CpuSet> {
        Some(self.groups.get(group)?.cpus)
    }

    /// The CPUs that a cgroup's processes run on. For one that does not exist, those that a new one
    /// would have.
    pub fn effective(&self, group: &CgroupPath) -> CpuSet {
        match self.groups.get(group) {
            Some(known) if known.partition.state.is_valid() => {
                known.partition.effective & self.online
            }
            Some(known) => cut(known.cpus, self.above(group)),
            None => self.above(group),
        }
    }

    pub fn above(&self, group: &CgroupPath) -> CpuSet {
        match group.parent() {
            Some(parent) => self.effective(&parent),
            None => self.shared(),
        }
    }

    /// The root's effective CPUs.
    pub fn shared(&self) -> CpuSet {
        self.online - self.given_away()
    }

    /// The CPUs of valid partitions, offline ones too.
    pub fn given_away(&self) -> CpuSet {
        let partitions = self.groups.values().map(|group| group.partition);
        partitions.filter(|files| files.state.is_valid()).map(|files| files.effective).collect()
    }

    /// Whether a cgroup's CPUs and its parent's have nothing in common, so that it runs on all of
    /// its parent's.
    pub fn is_cut_empty(&self, group: &CgroupPath) -> bool {
        let set = self.cpus(group).unwrap_or_default();
        !set.is_empty() && !self.is_partition(group) && set.is_disjoint(&self.above(group))
    }

    /// Whether siblings cannot have the same CPUs. No file shows this; for cgroups that were recorded,
    /// it is whether they are valid partitions.
    pub fn is_exclusive(&self, group: &CgroupPath) -> bool {
        self.groups.get(group).is_some_and(|group| group.flagged)
    }

    pub fn is_partition(&self, group: &CgroupPath) -> bool {
        self.partition(group).state.is_valid()
    }

    /// Whether a cgroup or one below it has processes.
    pub fn is_populated(&self, group: &CgroupPath) -> bool {
        let mut all = std::iter::once(group).chain(self.below(group));
        all.any(|group| self.groups.get(group).is_some_and(|group| group.occupied))
    }

    /// All cgroups, those above before those below.
    pub fn groups(&self) -> impl Iterator<Item = &CgroupPath> {
        self.groups.keys()
    }

    /// All cgroups below this one, at any depth.
    pub fn below<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        // Paths below `a` sort behind `a`, though not all directly: `a.b` sorts before `a/b`.
        let rest = self.groups.range(group..).skip(1).map(|(other, _)| other);
        rest.take_while(|other| other.as_str().starts_with(group.as_str()))
            .filter(|other| other.is_below(group))
    }

    pub fn children<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        self.below(group).filter(|other| parent(other) == group.as_str())
    }

    /// The other children of a cgroup's parent.
    pub fn siblings<'a>(&'a self, group: &'a CgroupPath) -> impl Iterator<Item = &'a CgroupPath> {
        let others = self.groups.keys().filter(move |other| *other != group);
        others.filter(move |other| parent(other) == parent(group))
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
    fn a_group_runs_on_what_is_left_of_its_parents_cpus() {
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
    fn populated_groups_cannot_be_emptied() {
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
    fn offline_cpus_count_when_they_come() {
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
    fn families() {
        let tree = tree();
        let names =
            |groups: Vec<&CgroupPath>| groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(tree.children(&path("k")).collect()), ["k/a", "k/a.b", "k/b"]);
        assert_eq!(names(tree.below(&path("k/a")).collect()), ["k/a/c"]);
        assert_eq!(names(tree.children(&path("k/a.b")).collect()), Vec::<String>::new());
    }
}
