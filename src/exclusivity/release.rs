//! Undoes what this program has left in cgroups, for its removal from a node.

use super::files::{self, end_partition};
use super::groups::{Groups, Undone};
use super::hierarchy::{CPUS, CgroupVersion, FileError, Hierarchy, unless_gone};
use super::memory::Memory;
use super::quota;
use cpuset::{CgroupPath, CpuSet, PartitionType};
use ledger::Claim;

/// Where kubelets put pods: partitions and containers below are this program's.
const KUBEPODS: &str = "kubepods";

/// What runtimes put before a container's id in the name of its cgroup. CRI-O's `crio-conmon-` is
/// not among them: its id is a container's, and its cgroup is not.
const PREFIXES: [&str; 3] = ["cri-containerd-", "crio-", ""];

/// Runtimes make ids of 32 random bytes. In a container's own cgroups no name looks like that.
const ID_DIGITS: usize = 64;

/// Where crun keeps the processes of a container that systemd has a scope for. The limits of the
/// scope are set there once more.
const OF_CRUN: &str = "container";

/// Undoes everything in a hierarchy. Containers keep the CPUs that are set for themselves, unless
/// they are freed, for which the exclusive ones among them have to be known.
pub fn undo(on: &Hierarchy, memory: Memory, widest: CpuSet, freed: Option<&[Claim]>) -> Undone {
    if on.version() == CgroupVersion::V1 {
        return Undone::default();
    }
    let mut undone = Undone::default();
    for top in on.tops() {
        end_partitions(on, &top, &mut undone);
    }
    let mut written = Groups::new(on.clone(), memory, PartitionType::default());
    let Undone { groups, quotas, errors, .. } = written.release(widest);
    undone.groups = groups;
    undone.quotas = quotas;
    undone.errors.extend(errors);
    if let Some(claims) = freed {
        for top in on.tops() {
            Freedom { on, claims, widest }.below(&top, &mut undone);
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

/// Gives containers back what the runtime was told to take from them.
///
/// Only claims record what that was. systemd's and runtimes' defaults name no CPUs, so whatever is
/// set for a container of a pod counts as this program's.
struct Freedom<'a> {
    on: &'a Hierarchy,
    claims: &'a [Claim],
    widest: CpuSet,
}

impl Freedom<'_> {
    fn below(&self, group: &CgroupPath, undone: &mut Undone) {
        match container_id(group) {
            // What is further down the container has made itself.
            Some(id) if is_of_pods(group) => self.container(group, id, undone),
            _ => self.on.children(group).iter().for_each(|child| self.below(child, undone)),
        }
    }

    fn container(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        self.group(group, id, undone);
        let of_crun = CgroupPath::new(&format!("{group}/{OF_CRUN}"));
        if let Some(group) = of_crun.filter(|group| self.on.has(group)) {
            // The same container: only its errors count.
            let mut inner = Undone::default();
            self.group(&group, id, &mut inner);
            undone.errors.extend(inner.errors);
        }
    }

    fn group(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        let claim = self.claims.iter().find(|claim| claim.id.0 == id);
        if let Some(limit) = claim.and_then(|claim| claim.cpu.limit) {
            let (quota, period) = limit.quota();
            let set = quota::set(self.on, group, &format!("{quota} {period}"));
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

/// What is gone needs nothing.
fn count(done: Result<bool, FileError>, total: &mut u64, errors: &mut Vec<FileError>) {
    match unless_gone(done) {
        Ok(done) => *total += u64::from(done == Some(true)),
        Err(error) => errors.push(error),
    }
}

/// The id of the container that a runtime has made a cgroup for.
fn container_id(group: &CgroupPath) -> Option<&str> {
    let name = group.as_str().rsplit('/').next()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Some(id) } else { None }
}

pub(super) fn is_of_pods(group: &CgroupPath) -> bool {
    group.as_str().split(['/', '-']).any(|part| part.starts_with(KUBEPODS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_ids() {
        let id = "0123456789abcdef".repeat(4);
        for (group, is_one) in [
            (format!("kubepods/burstable/poda/{id}"), true),
            (format!("kubepods.slice/kubepods-poda.slice/cri-containerd-{id}.scope"), true),
            (format!("kubepods.slice/kubepods-poda.slice/crio-{id}.scope"), true),
            (format!("kubepods/poda/crio-{id}"), true),
            (format!("kubepods.slice/kubepods-poda.slice/crio-conmon-{id}.scope"), false),
            (format!("kubepods/poda/{}", &id[1..]), false),
            (format!("kubepods/poda/{id}/init.scope"), false),
            ("kubepods/pod0e2b5f0c-94a5-4a57-8a9e-2f4bd6e7a001".to_owned(), false),
        ] {
            let group = CgroupPath::new(&group).unwrap();
            assert_eq!(container_id(&group) == Some(&*id), is_one, "{group}");
        }
    }
}
