//! What this program has left in control groups, found by walking all of them, and undone.
//!
//! For the end of the program on a node: no ledger says what there is.

use super::hierarchy::{FileError, Hierarchy, Version};
use super::partition;
use super::pool::SharedPool;
use super::quota;
use crate::ledger::CgroupPath;

/// Where kubelets put pods: partitions below are the program's own.
const KUBEPODS: &str = "kubepods";

/// What was undone, and what could not be.
#[derive(Debug, Default)]
pub struct Undone {
    /// Groups that have the CPUs again which others had set, or none.
    pub pools: u64,
    /// Groups that are no cpuset partitions any more.
    pub partitions: u64,
    /// Pods that have their CFS quota again.
    pub quotas: u64,
    /// What the kernel refused. Everything else was undone all the same.
    pub errors: Vec<FileError>,
}

/// Undoes everything in a hierarchy. Containers keep the CPUs that are set for themselves.
pub fn undo(on: &Hierarchy) -> Undone {
    let mut undone = Undone::default();
    if on.version() == Version::V1 {
        return undone;
    }
    let pool = SharedPool::new(on.clone());
    for top in on.tops() {
        undo_in(on, &pool, &top, &mut undone);
        if is_of_pods(&top) {
            partition::tidy(on, &top);
        }
    }
    undone
}

/// The groups within first: a partition hands its CPUs back to those above.
fn undo_in(on: &Hierarchy, pool: &SharedPool, group: &CgroupPath, undone: &mut Undone) {
    for child in on.children(group) {
        undo_in(on, pool, &child, undone);
    }
    let Undone { pools, partitions, quotas, errors } = undone;
    let mut count = |counter: &mut u64, result: Result<bool, FileError>| match result {
        Ok(done) => *counter += u64::from(done),
        Err(error) if error.is_gone() => {}
        Err(error) => errors.push(error),
    };
    if is_of_pods(group) && partition::is_one(on, group) {
        count(partitions, partition::release(on, group).map(|()| true));
    }
    count(pools, pool.release_one(group));
    count(quotas, quota::restore(on, group));
}

fn is_of_pods(group: &CgroupPath) -> bool {
    group.as_str().split('/').any(|part| part.starts_with(KUBEPODS))
}
