//! Reads the groups that a plan is about, and makes its writes.

use super::cgroup_tree::Tree;
use super::hierarchy::{FileError, Hierarchy};
use super::partition;
use super::wanted::{Layout, Level, Wanted};
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;
use crate::partition::PartitionType;
use std::time::Instant;

pub(super) const CPUS: &str = "cpuset.cpus";

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The groups that bind. What is below a loose one is bound, whatever it says.
    Binding,
    /// All groups of pods and containers.
    All,
}

/// With containers that are to be partitions and are none yet kept by groups.
pub(super) fn wanted_now(on: &Hierarchy, layout: &Layout) -> Wanted {
    let mut wanted = layout.wanted.clone();
    for (leaf, claim) in &layout.partitions {
        let kept = PartitionType::ALL.into_iter();
        let mut kept = kept.map(|kind| partition::holds(on, leaf, *claim, kind));
        if !kept.any(|kept| kept.unwrap_or(true)) {
            wanted.apart.remove(leaf);
            wanted.exclusive.insert(leaf.clone(), *claim);
            wanted.pool -= *claim;
        }
    }
    if wanted.pool.is_empty() {
        wanted.pool = layout.wanted.pool;
    }
    wanted
}

/// Whether the kernel still keeps some of these CPUs for a partition that is gone.
pub(super) fn is_early(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> bool {
    let added = cpus - on.cpus(group, CPUS).unwrap_or_default();
    partition::await_removed(on, group, added, Instant::now()).is_err_and(|why| !why.is_gone())
}

/// Writes a group's CPUs, and sees whether they are there: systemd may clear them at the same
/// moment.
pub(super) fn write(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> Result<(), FileError> {
    let list = cpus.to_string();
    on.write(group, CPUS, &list)?;
    if on.cpus(group, CPUS)? != cpus {
        on.write(group, CPUS, &list)?;
    }
    Ok(())
}

/// Nothing can be cleared while pods run: the widest set is as good.
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

/// The groups concerned, as they are. What cannot be read is left out.
pub(super) fn read(on: &Hierarchy, wanted: &Wanted, scope: Scope) -> Tree {
    let mut tree = Tree::new(on.free(), wanted.widest);
    for (top, level) in &wanted.tops {
        for above in top.ancestors() {
            if !tree.contains(&above) {
                tree.put(&above, on.cpus(&above, CPUS).unwrap_or_default());
            }
        }
        read_below(on, wanted, scope, &mut tree, top, *level);
    }
    tree
}

fn read_below(
    on: &Hierarchy,
    wanted: &Wanted,
    scope: Scope,
    tree: &mut Tree,
    group: &CgroupPath,
    level: Level,
) {
    let Ok(cpus) = on.cpus(group, CPUS) else { return };
    tree.put(group, cpus);
    if level == Level::Leaf || (scope == Scope::Binding && wanted.is_loose(group)) {
        return;
    }
    for child in on.children(group) {
        read_below(on, wanted, scope, tree, &child, level.below());
    }
}
