//! Undoes what this program has left in cgroups, for its end on a node.

use super::groups::Groups;
use super::hierarchy::{FileError, Hierarchy, Version};
use super::memory::Memory;
use super::partition;
use crate::cpuset::CpuSet;
use crate::ledger::CgroupPath;

/// Where kubelets put pods: partitions below are this program's.
const KUBEPODS: &str = "kubepods";

/// What was undone, and what could not be.
#[derive(Debug, Default)]
pub struct Undone {
    /// Groups that have the CPUs again which others had set, or all.
    pub pools: u64,
    /// Groups that are no cpuset partitions any more.
    pub partitions: u64,
    /// Pods that have their CFS quota again.
    pub quotas: u64,
    /// What the kernel refused. Everything else was undone all the same.
    pub errors: Vec<FileError>,
}

/// Undoes everything in a hierarchy. Containers keep the CPUs that are set for themselves.
pub fn undo(on: &Hierarchy, memory: Memory, widest: CpuSet) -> Undone {
    let mut undone = Undone::default();
    if on.version() == Version::V1 {
        return undone;
    }
    for top in on.tops() {
        end_partitions(on, &top, &mut undone);
        if is_of_pods(&top) {
            partition::tidy(on, &top);
        }
    }
    let mut groups = Groups::new(on.clone(), memory);
    let (quotas, errors) = groups.restore_quotas();
    undone.quotas = quotas;
    undone.errors.extend(errors);
    let (pools, errors) = groups.release(widest);
    undone.pools = pools;
    undone.errors.extend(errors);
    undone
}

/// Children first: ending a partition returns its CPUs to the parent.
fn end_partitions(on: &Hierarchy, group: &CgroupPath, undone: &mut Undone) {
    for child in on.children(group) {
        end_partitions(on, &child, undone);
    }
    if is_of_pods(group) && partition::is_one(on, group) {
        match partition::release(on, group) {
            Ok(()) => undone.partitions += 1,
            Err(error) if error.is_gone() => {}
            Err(error) => undone.errors.push(error),
        }
    }
}

fn is_of_pods(group: &CgroupPath) -> bool {
    group.as_str().split(['/', '-']).any(|part| part.starts_with(KUBEPODS))
}
