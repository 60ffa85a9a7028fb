//! Reads the cgroups that a plan concerns, and makes its writes.

use super::cgroup_tree::{CgroupTree, PartitionFiles, Write};
use super::goal::{CgroupLevel, Goal};
use super::hierarchy::{CPUS, EFFECTIVE, EXCLUSIVE, FileError, Hierarchy};
use cpuset::{CgroupPath, CpuSet, PartitionState};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The cgroups that bind. A loose one binds all cgroups below it, whatever these say.
    Binding,
    /// All cgroups of pods and containers.
    All,
    /// In addition, the plan sets the CPUs of the containers with exclusive CPUs: the runtime has listed
    /// them, and may lose the updates in the answer, as containerd does while it starts.
    Listed,
}

/// Makes a write, and returns what the cgroup's partition files say then. CPUs that do not read back
/// are written once more: systemd may clear them at the same moment.
pub fn write(
    on: &Hierarchy,
    group: &CgroupPath,
    write: Write,
) -> Result<PartitionFiles, FileError> {
    on.make(group, write)?;
    if let Write::Cpus(cpus) = write {
        if on.cpus(group, CPUS)? != cpus {
            on.make(group, write)?;
        }
        // `carry_out` ignores the partition files after a write of `cpuset.cpus`.
        return Ok(PartitionFiles::default());
    }
    Ok(partition(on, group, on.free()).0)
}

/// Restores the CPUs `before`. Where these were none and the kernel does not let a cgroup with
/// processes be cleared, the widest set has the same effect.
pub(super) fn undo(
    on: &Hierarchy,
    group: &CgroupPath,
    before: CpuSet,
    widest: CpuSet,
) -> Result<(), FileError> {
    let cpus = on.held_by_siblings(group);
    let has = on.cpus(group, EXCLUSIVE).unwrap_or_default();
    // The kernel would end a sibling's partition with some of these CPUs (`Hazard::MeetsPartition`).
    if has.is_empty() && !cpus.is_disjoint(&if before.is_empty() { widest } else { before }) {
        return Err(FileError::HeldBySibling { path: on.directory(group).join(CPUS), cpus });
    }
    if !before.is_empty() {
        return on.write(group, CPUS, &before.to_string());
    }
    match on.write(group, CPUS, "") {
        Err(error) if !error.is_gone() => on.write(group, CPUS, &widest.to_string()),
        result => result,
    }
}

/// Makes a cgroup an ordinary one, whose exclusive CPUs are those of the cgroups in it: partitions of
/// other programs there need them. Returns whether it was a partition.
pub fn end_partition(on: &Hierarchy, group: &CgroupPath) -> Result<bool, FileError> {
    let before = on.partition(group);
    let was_one = before.state != PartitionState::Member;
    if was_one {
        on.make(group, Write::Partition(None))?;
    }
    if !before.exclusive.is_empty() {
        let below = on.children(group).into_iter().map(|child| on.partition(&child).exclusive);
        on.make(group, Write::Exclusive(below.collect()))?;
    }
    Ok(was_one)
}

/// Reads the cgroups that a goal concerns. Those that cannot be read are left out.
pub(super) fn read(on: &Hierarchy, goal: &Goal, scope: Scope) -> CgroupTree {
    let free = on.free();
    let mut reader = TreeReader { on, free, tree: CgroupTree::new(free, goal.widest) };
    let mut left: Vec<(CgroupPath, CgroupLevel)> = Vec::new();
    for (top, level) in &goal.tops {
        for above in top.ancestors() {
            if !reader.tree.contains(&above) {
                reader.add(&above, on.cpus(&above, CPUS).unwrap_or_default());
            }
        }
        left.push((top.clone(), *level));
    }
    while let Some((group, level)) = left.pop() {
        let Ok(cpus) = on.cpus(&group, CPUS) else { continue };
        reader.add(&group, cpus);
        let has_partitions = !reader.tree.partition(&group).exclusive.is_empty();
        let is_bound = scope == Scope::Binding && goal.is_loose(&group) && !has_partitions;
        if is_bound {
            left.extend(goal.narrower_in(&group).map(|pod| (pod.clone(), CgroupLevel::Pod)));
        } else if level != CgroupLevel::Leaf {
            left.extend(on.children(&group).into_iter().map(|child| (child, level.below())));
        }
    }
    reader.add_holders();
    reader.tree
}

struct TreeReader<'a> {
    on: &'a Hierarchy,
    /// The CPUs that no partition has.
    free: CpuSet,
    tree: CgroupTree,
}

impl TreeReader<'_> {
    /// Adds cgroups with exclusive CPUs that belong to no known pod: to one that has just ended, or to
    /// another program.
    fn add_holders(&mut self) {
        let mut left: Vec<CgroupPath> = self.tree.groups().cloned().collect();
        while let Some(group) = left.pop() {
            let has = self.tree.partition(&group).exclusive;
            let below =
                self.tree.children(&group).map(|child| self.tree.partition(child).exclusive);
            if has.is_empty() || self.tree.is_partition(&group) || has == below.collect() {
                continue;
            }
            for child in self.on.children(&group) {
                if !self.tree.contains(&child)
                    && let Ok(cpus) = self.on.cpus(&child, CPUS)
                {
                    self.add(&child, cpus);
                    left.push(child);
                }
            }
        }
    }

    fn add(&mut self, group: &CgroupPath, cpus: CpuSet) {
        self.tree.put(group, cpus);
        // A remote partition gets its CPUs from its parent's exclusive ones: without any there is none.
        let parent = group.parent();
        if parent.is_some_and(|above| self.tree.partition(&above).exclusive.is_empty()) {
            return;
        }
        let (files, online) = partition(self.on, group, self.free);
        if files != PartitionFiles::default() {
            self.tree.put_online(self.tree.online() | online);
            self.tree.put_partition(group, files);
        }
    }
}

/// What a cgroup's partition files say, and the CPUs that it runs on as a partition. A partition whose
/// CPUs are missing or also in `free`, the CPUs that no partition has, counts as invalid: both were
/// observed after the last CPU of `free` had gone offline.
fn partition(on: &Hierarchy, group: &CgroupPath, free: CpuSet) -> (PartitionFiles, CpuSet) {
    let files = on.partition(group);
    let PartitionState::Valid(kind) = files.state else { return (files, CpuSet::EMPTY) };
    let cpus = on.cpus(group, EFFECTIVE).unwrap_or_default();
    if cpus.is_empty() || !cpus.is_subset(&files.effective) || !cpus.is_disjoint(&free) {
        return (PartitionFiles { state: PartitionState::Invalid(kind), ..files }, CpuSet::EMPTY);
    }
    (files, cpus)
}

/// Whether a container's cgroup is a valid partition of exactly these CPUs, of either type.
pub fn is_partition_of(on: &Hierarchy, group: &CgroupPath, cpus: CpuSet) -> bool {
    on.partition(group).state.is_valid() && on.cpus(group, EFFECTIVE).is_ok_and(|has| has == cpus)
}
