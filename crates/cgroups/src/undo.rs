//! Reverts what this program has written into cgroups, for its removal from a node.

use super::files::{self, end_partition};
use super::groups::{Groups, Undone};
use super::hierarchy::{CPUS, CgroupVersion, FileError, Hierarchy, unless_gone};
use super::names::{container_id, is_of_pods};
use super::quota;
use super::records::CgroupRecords;
use cpuset::{CgroupPath, CpuSet, PartitionType};
use std::collections::BTreeMap;

/// Below a container's systemd scope, crun puts its processes into a cgroup with this name, and sets
/// the limits of the scope there, too.
const OF_CRUN: &str = "container";

/// The CFS quotas that were lifted from containers' own cgroups, in the format of `cpu.max`, by the
/// runtime's ids of the containers.
pub type LiftedQuotas = BTreeMap<String, String>;

/// Reverts everything in a hierarchy. Containers keep the CPUs in their own cgroups if `freed` is
/// `None`. Otherwise they get all CPUs and these quotas.
pub fn undo(
    on: &Hierarchy,
    records: CgroupRecords,
    widest: CpuSet,
    freed: Option<&LiftedQuotas>,
) -> Undone {
    if on.version() == CgroupVersion::V1 {
        return Undone::default();
    }
    let mut undone = Undone::default();
    for top in on.tops() {
        end_partitions(on, &top, &mut undone);
    }
    let mut written = Groups::new(on.clone(), records, PartitionType::default());
    let Undone { groups, quotas, errors, .. } = written.undo(widest);
    undone.groups = groups;
    undone.quotas = quotas;
    undone.errors.extend(errors);
    if let Some(quotas) = freed {
        for top in on.tops() {
            Freedom { on, quotas, widest }.below(&top, &mut undone);
        }
    }
    undone
}

/// Children first: ending a partition returns its CPUs to the parent.
fn end_partitions(on: &Hierarchy, group: &CgroupPath, undone: &mut Undone) {
    for child in on.children(group) {
        end_partitions(on, &child, undone);
    }
    if is_of_pods(group) {
        count(end_partition(on, group), &mut undone.partitions, &mut undone.errors);
    }
}

/// Gives containers all CPUs, and restores their quotas.
///
/// The defaults of systemd and of runtimes name no CPUs, so any that are set for a pod's container
/// count as this program's.
struct Freedom<'a> {
    on: &'a Hierarchy,
    quotas: &'a LiftedQuotas,
    widest: CpuSet,
}

impl Freedom<'_> {
    fn below(&self, group: &CgroupPath, undone: &mut Undone) {
        match container_id(group) {
            // The container has made the cgroups below.
            Some(id) if is_of_pods(group) => self.container(group, id, undone),
            _ => self.on.children(group).iter().for_each(|child| self.below(child, undone)),
        }
    }

    fn container(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        self.group(group, id, undone);
        let of_crun = CgroupPath::new(&format!("{group}/{OF_CRUN}"));
        if let Some(group) = of_crun.filter(|group| self.on.has(group)) {
            // The container is counted already: of this cgroup only the errors count.
            let mut inner = Undone::default();
            self.group(&group, id, &mut inner);
            undone.errors.extend(inner.errors);
        }
    }

    fn group(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        if let Some(quota) = self.quotas.get(id) {
            let set = quota::set(self.on, group, quota);
            count(set, &mut undone.quotas, &mut undone.errors);
        }
        count(self.cpus(group), &mut undone.containers, &mut undone.errors);
    }

    fn cpus(&self, group: &CgroupPath) -> Result<bool, FileError> {
        let set = self.on.cpus(group, CPUS)?;
        if set.is_empty() || self.widest.is_subset(&set) {
            return Ok(false);
        }
        files::undo(self.on, group, CpuSet::EMPTY, self.widest).map(|()| true)
    }
}

/// A cgroup that is gone counts as neither done nor failed.
fn count(done: Result<bool, FileError>, total: &mut u64, errors: &mut Vec<FileError>) {
    match unless_gone(done) {
        Ok(done) => *total += u64::from(done == Some(true)),
        Err(error) => errors.push(error),
    }
}
