//! [`hazard`]: the writes that must not be made, because some kernel then, or later, loses CPUs, gives
//! them away twice, or warns. Pure.
//!
//! Source: writes tried on Linux 6.12 (old and new rules, see `KernelRules`) and 7.x. Each variant
//! begins a sequence that breaks one of them. A broken kernel stays broken until the next boot, and
//! some kernels log nothing.

use super::cgroup_tree::{CgroupTree, Write};
use cpuset::{CgroupPath, CpuSet, PartitionState};
use std::fmt;

/// CPUs that partitions leave to all other cgroups. Linux 6.12 lets the last of these go offline, and
/// then lets every cgroup run on CPUs of partitions.
pub(super) const LEFT_TO_OTHERS: usize = 2;

/// Why a write breaks some kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hazard {
    /// `cpuset.cpus` of a cgroup without exclusive CPUs would have some CPUs of a sibling's partition:
    /// the partition becomes invalid and keeps its CPUs.
    MeetsPartition,
    /// A cgroup would become a partition while a sibling's `cpuset.cpus` has some of its CPUs. Kernels
    /// that check this skip the check where it was a partition before, and `MeetsPartition` follows.
    MeetsSibling,
    /// `cpuset.cpus.exclusive` of a cgroup above a partition would be empty: the partition's CPUs
    /// are lost when it ends.
    EmptiedAbove,
    /// `cpuset.cpus.exclusive` would get CPUs that a partition below asked for and did not get: the
    /// kernel gives back more than it took when the partition ends.
    WidenedAboveCut,
    /// A partition would have no `cpuset.cpus.exclusive`: it does not survive a change of
    /// `cpuset.cpus`.
    WithoutExclusive,
    /// A partition would be above or below another one: shrinking the upper one warns.
    Nested,
    /// `cpuset.cpus.exclusive` would lose CPUs that a cgroup below has: offline ones are lost.
    NarrowedAbove,
    /// `cpuset.cpus.exclusive` of a cgroup within a partition would lose CPUs: the partition ends,
    /// and cgroups within it keep its CPUs.
    NarrowedWithin,
    /// Fewer than two CPUs outside partitions would be online: one more going offline breaks the
    /// kernel's accounting.
    LeavesTooFewShared,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MeetsPartition => "cpuset.cpus would have CPUs of a partition beside it",
            Self::MeetsSibling => "cpuset.cpus of a cgroup beside the partition has some of its CPUs",
            Self::EmptiedAbove => "cpuset.cpus.exclusive would be empty above a partition",
            Self::WidenedAboveCut => {
                "cpuset.cpus.exclusive would grow above a partition that does not have all of its own"
            }
            Self::WithoutExclusive => "the partition would have no cpuset.cpus.exclusive",
            Self::Nested => "the partition would be above or below another one",
            Self::NarrowedAbove => "cpuset.cpus.exclusive would lose CPUs that a cgroup below has",
            Self::NarrowedWithin => "cpuset.cpus.exclusive would lose CPUs within a partition",
            Self::LeavesTooFewShared => "fewer than two online CPUs would be in no partition",
        })
    }
}

/// Whether a write begins a sequence that breaks a kernel, whatever its rules. It does not matter
/// whether the kernel at hand would refuse the write.
pub fn hazard(tree: &CgroupTree, group: &CgroupPath, write: Write) -> Option<Hazard> {
    match write {
        Write::Cpus(cpus) => hazard_of_cpus(tree, group, cpus),
        Write::Exclusive(cpus) => hazard_of_exclusive(tree, group, cpus),
        Write::Partition(Some(_)) => hazard_of_partition(tree, group),
        Write::Partition(None) => None,
    }
}

fn hazard_of_cpus(tree: &CgroupTree, group: &CgroupPath, cpus: CpuSet) -> Option<Hazard> {
    let has_exclusive = !tree.partition(group).exclusive.is_empty();
    if has_exclusive || tree.cpus(group) == Some(cpus) {
        return None;
    }
    let mut partitions = tree.siblings(group).filter(|sibling| tree.is_partition(sibling));
    let meets = partitions.any(|sibling| !cpus.is_disjoint(&tree.partition(sibling).held()));
    if meets { Some(Hazard::MeetsPartition) } else { None }
}

fn hazard_of_exclusive(tree: &CgroupTree, group: &CgroupPath, cpus: CpuSet) -> Option<Hazard> {
    let old = tree.partition(group).exclusive;
    if cpus == old {
        return None;
    }
    let mut partitions = tree.below(group).filter(|below| tree.is_partition(below));
    if cpus.is_empty() && tree.is_partition(group) {
        return Some(Hazard::WithoutExclusive);
    }
    if cpus.is_empty() && partitions.next().is_some() {
        return Some(Hazard::EmptiedAbove);
    }
    let lost = old - cpus;
    if tree.below(group).any(|below| !tree.partition(below).held().is_disjoint(&lost)) {
        return Some(Hazard::NarrowedAbove);
    }
    let ancestors = group.ancestors();
    if !lost.is_empty() && ancestors.iter().any(|above| tree.is_partition(above)) {
        return Some(Hazard::NarrowedWithin);
    }
    if !cpus.is_subset(&old) && partitions.any(|below| tree.partition(below).is_cut()) {
        return Some(Hazard::WidenedAboveCut);
    }
    if tree.is_partition(group) { too_few_shared(tree, group, cpus) } else { None }
}

fn hazard_of_partition(tree: &CgroupTree, group: &CgroupPath) -> Option<Hazard> {
    let files = tree.partition(group);
    if files.exclusive.is_empty() {
        return Some(Hazard::WithoutExclusive);
    }
    let ancestors = group.ancestors();
    let mut lineage = ancestors.iter().chain(tree.below(group));
    if lineage.any(|other| tree.partition(other).state != PartitionState::Member) {
        return Some(Hazard::Nested);
    }
    let mut siblings = tree.siblings(group).filter(|sibling| {
        let cpus = tree.cpus(sibling).unwrap_or_default();
        tree.partition(sibling).exclusive.is_empty() && !cpus.is_disjoint(&files.exclusive)
    });
    if siblings.next().is_some() {
        return Some(Hazard::MeetsSibling);
    }
    too_few_shared(tree, group, files.exclusive)
}

fn too_few_shared(tree: &CgroupTree, group: &CgroupPath, exclusive: CpuSet) -> Option<Hazard> {
    let above = group.parent().map(|parent| tree.partition(&parent).effective);
    let own =
        if tree.is_partition(group) { tree.partition(group).effective } else { CpuSet::EMPTY };
    let cpus = exclusive & above.unwrap_or(tree.possible());
    let others = tree.given_away() - own;
    let takes = !cpus.is_subset(&own);
    if takes && (tree.online() - others - cpus).len() < LEFT_TO_OTHERS {
        Some(Hazard::LeavesTooFewShared)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpuset::PartitionType;

    fn path(path: &str) -> CgroupPath {
        CgroupPath::new(path).unwrap()
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    const ROOT: Write = Write::Partition(Some(PartitionType::Root));

    fn exclusive(list: &str) -> Write {
        Write::Exclusive(cpus(list))
    }

    /// `k` and `k/p` with 1-5, of which `k/p/a` has 1-2, and its sibling `k/p/b`.
    fn tree() -> CgroupTree {
        let mut tree = CgroupTree::new(cpus("0-7"), cpus("0-7"));
        tree.make(&path("k/p/a"));
        tree.make(&path("k/p/b"));
        for (group, list) in [("k", "1-5"), ("k/p", "1-5"), ("k/p/a", "1-2")] {
            tree.write(&path(group), exclusive(list)).unwrap();
        }
        tree
    }

    fn with_partition() -> CgroupTree {
        let mut tree = tree();
        tree.write(&path("k/p/a"), ROOT).unwrap();
        assert!(tree.is_partition(&path("k/p/a")));
        tree
    }

    #[track_caller]
    fn check(tree: &CgroupTree, group: &str, write: Write, expected: Option<Hazard>) {
        assert_eq!(hazard(tree, &path(group), write), expected, "{group}: {write:?}");
    }

    #[test]
    fn cpus_must_not_overlap_with_a_siblings_partition() {
        let mut tree = with_partition();
        check(&tree, "k/p/b", Write::Cpus(cpus("0-7")), Some(Hazard::MeetsPartition));
        check(&tree, "k/p/b", Write::Cpus(cpus("0,3-7")), None);
        check(&tree, "k/p/b", Write::Cpus(CpuSet::EMPTY), None);
        check(&tree, "k/p/a", Write::Cpus(cpus("0-7")), None);
        check(&tree, "k/p", Write::Cpus(cpus("0-7")), None);
        tree.write(&path("k/p/b"), exclusive("5")).unwrap();
        check(&tree, "k/p/b", Write::Cpus(cpus("0-7")), None);
    }

    #[test]
    fn cpus_must_not_overlap_with_those_that_a_siblings_partition_asked_for_and_did_not_get() {
        let mut tree = tree();
        tree.write(&path("k/p/a"), exclusive("5-6")).unwrap();
        tree.write(&path("k/p/a"), ROOT).unwrap();
        check(&tree, "k/p/b", Write::Cpus(cpus("6")), Some(Hazard::MeetsPartition));
    }

    #[test]
    fn a_partition_must_not_have_cpus_that_a_sibling_names() {
        let mut tree = tree();
        tree.write(&path("k/p/b"), Write::Cpus(cpus("2-5"))).unwrap();
        check(&tree, "k/p/a", ROOT, Some(Hazard::MeetsSibling));
        tree.write(&path("k/p/b"), Write::Cpus(cpus("3-5"))).unwrap();
        check(&tree, "k/p/a", ROOT, None);
    }

    #[test]
    fn exclusive_cpus_above_a_partition_must_not_be_emptied() {
        let tree = with_partition();
        check(&tree, "k", exclusive(""), Some(Hazard::EmptiedAbove));
        check(&tree, "k/p", exclusive(""), Some(Hazard::EmptiedAbove));
        check(&tree, "k/p/b", exclusive(""), None);
    }

    #[test]
    fn exclusive_cpus_above_a_cut_partition_must_not_grow() {
        let mut tree = tree();
        tree.write(&path("k/p"), exclusive("1-3")).unwrap();
        tree.write(&path("k/p/a"), exclusive("3-4")).unwrap();
        tree.write(&path("k/p/a"), ROOT).unwrap();
        check(&tree, "k/p", exclusive("1-4"), Some(Hazard::WidenedAboveCut));
        check(&tree, "k/p", exclusive("1,3"), None);
        check(&with_partition(), "k/p", exclusive("1-6"), None);
    }

    #[test]
    fn a_partition_must_have_exclusive_cpus() {
        let mut tree = with_partition();
        check(&tree, "k/p/a", exclusive(""), Some(Hazard::WithoutExclusive));
        tree.write(&path("k/p/b"), Write::Cpus(cpus("3-4"))).unwrap();
        check(&tree, "k/p/b", ROOT, Some(Hazard::WithoutExclusive));
        check(&tree, "k/p/b", Write::Partition(None), None);
    }

    #[test]
    fn partitions_must_not_be_nested() {
        let mut tree = with_partition();
        check(&tree, "k/p", ROOT, Some(Hazard::Nested));
        check(&tree, "k", ROOT, Some(Hazard::Nested));
        tree.make(&path("k/p/a/x"));
        tree.write(&path("k/p/a/x"), exclusive("1")).unwrap();
        check(&tree, "k/p/a/x", ROOT, Some(Hazard::Nested));
    }

    #[test]
    fn a_cgroup_must_not_lose_exclusive_cpus_that_one_below_has() {
        let mut tree = with_partition();
        tree.set_online(cpus("0,2-7"));
        check(&tree, "k/p", exclusive("2-5"), Some(Hazard::NarrowedAbove));
        check(&tree, "k", exclusive("3-5"), Some(Hazard::NarrowedAbove));
        check(&tree, "k/p", exclusive("1-2"), None);
        tree.write(&path("k/p/b"), exclusive("4")).unwrap();
        check(&tree, "k/p", exclusive("1-3"), Some(Hazard::NarrowedAbove));
    }

    #[test]
    fn a_cgroup_within_a_partition_must_not_lose_exclusive_cpus() {
        let mut tree = with_partition();
        tree.make(&path("k/p/a/x"));
        check(&tree, "k/p/a/x", exclusive("1-2"), None);
        tree.write(&path("k/p/a/x"), exclusive("1-2")).unwrap();
        check(&tree, "k/p/a/x", exclusive("1"), Some(Hazard::NarrowedWithin));
    }

    #[test]
    fn partitions_must_leave_two_online_cpus_to_others() {
        let mut tree = tree();
        tree.set_online(cpus("0-3"));
        check(&tree, "k/p/a", ROOT, None);
        tree.set_online(cpus("0-2"));
        check(&tree, "k/p/a", ROOT, Some(Hazard::LeavesTooFewShared));
        let mut tree = with_partition();
        tree.set_online(cpus("0-3"));
        check(&tree, "k/p/a", exclusive("1-3"), Some(Hazard::LeavesTooFewShared));
        check(&tree, "k/p/a", exclusive("1"), None);
    }
}
