//! Reads the cgroups that a plan is about, and makes its writes.

use super::cgroup_tree::CgroupTree;
use super::goal::{CgroupLevel, Goal, Layout};
use super::hierarchy::{CPUS, FileError, Hierarchy};
use super::partition;
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The cgroups that bind. What is below a loose one is bound, whatever it says.
    Binding,
    /// All cgroups of pods and containers.
    All,
}

/// The layout's goal, where a container that is not a partition yet is kept apart by cgroups.
pub(super) fn goal_now(on: &Hierarchy, layout: &Layout) -> Goal {
    let mut goal = layout.goal.clone();
    for (leaf, claim) in &layout.partitions {
        if !partition::is_partition_of(on, leaf, *claim).unwrap_or(true) {
            goal.apart.remove(leaf);
            goal.exclusive.insert(leaf.clone(), *claim);
            goal.pool -= *claim;
        }
    }
    if goal.pool.is_empty() {
        goal.pool = layout.goal.pool;
    }
    goal
}

/// Whether some of these CPUs still belong to a partition that is gone, or to one beside the cgroup.
pub(super) fn is_early(on: &Hierarchy, layout: &Layout, group: &CgroupPath, cpus: CpuSet) -> bool {
    let added = cpus - on.cpus(group, CPUS).unwrap_or_default();
    // A class has as many siblings as there are pods, and no partition among them.
    let pod = group.parent();
    let is_beside = layout.goal.apart.iter().any(|leaf| leaf != group && leaf.parent() == pod);
    let free = if is_beside { partition::check_siblings(on, group, added) } else { Ok(()) };
    let free = free.and_then(|()| partition::await_removed(on, group, added, on.kernel().now()));
    free.is_err_and(|why| !why.is_gone())
}

/// Writes a cgroup's CPUs, and once more if they are not there: systemd may clear them at the same
/// moment.
pub(super) fn write(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    let list = cpus.to_string();
    on.write(group, CPUS, &list)?;
    if on.cpus(group, CPUS)? != cpus {
        on.write(group, CPUS, &list)?;
    }
    Ok(())
}

/// Restores the CPUs `before`. Nothing can be cleared while pods run: the widest set is as good.
pub(super) fn undo(
    on: &Hierarchy,
    group: &CgroupPath,
    before: CpuSet,
    widest: CpuSet,
) -> Result<(), FileError> {
    if !before.is_empty() {
        return on.write(group, CPUS, &before.to_string());
    }
    match on.write(group, CPUS, "") {
        Err(error) if !error.is_gone() => on.write(group, CPUS, &widest.to_string()),
        result => result,
    }
}

/// The cgroups concerned, as they are. What cannot be read is left out.
pub(super) fn read(on: &Hierarchy, goal: &Goal, scope: Scope) -> CgroupTree {
    let mut tree = CgroupTree::new(on.free(), goal.widest);
    let mut left: Vec<(CgroupPath, CgroupLevel)> = Vec::new();
    for (top, level) in &goal.tops {
        for above in top.ancestors() {
            if !tree.contains(&above) {
                tree.put(&above, on.cpus(&above, CPUS).unwrap_or_default());
            }
        }
        left.push((top.clone(), *level));
    }
    while let Some((group, level)) = left.pop() {
        let Ok(cpus) = on.cpus(&group, CPUS) else { continue };
        tree.put(&group, cpus);
        let is_bound = scope == Scope::Binding && goal.is_loose(&group);
        if level != CgroupLevel::Leaf && !is_bound {
            left.extend(on.children(&group).into_iter().map(|child| (child, level.below())));
        }
    }
    tree
}
