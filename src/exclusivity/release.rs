//! Undoes what this program has left in cgroups, for its end on a node.

use super::files::{self, CPUS};
use super::groups::{Groups, Released};
use super::hierarchy::{FileError, Hierarchy, Version};
use super::memory::Memory;
use super::partition;
use super::quota;
use crate::cpuset::CpuSet;
use crate::ledger::{CgroupPath, Claim};

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

/// What was undone, and what could not be.
#[derive(Debug, Default)]
pub struct Undone {
    /// Groups that have the CPUs again which others had set, or all.
    pub pools: u64,
    /// Groups that are no cpuset partitions any more.
    pub partitions: u64,
    /// CFS quotas of pods and containers that are in force again.
    pub quotas: u64,
    /// Containers that have all CPUs again.
    pub containers: u64,
    /// What the kernel refused. Everything else was undone all the same.
    pub errors: Vec<FileError>,
}

/// Undoes everything in a hierarchy. Containers keep the CPUs that are set for themselves, unless
/// they are freed, for which the exclusive ones among them have to be known.
pub fn undo(on: &Hierarchy, memory: Memory, widest: CpuSet, freed: Option<&[Claim]>) -> Undone {
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
    let Released { groups, quotas, errors } = Groups::new(on.clone(), memory).release(widest);
    undone.pools = groups;
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
    if is_of_pods(group) && partition::is_one(on, group) {
        match partition::release(on, group) {
            Ok(()) => undone.partitions += 1,
            Err(error) if error.is_gone() => {}
            Err(error) => undone.errors.push(error),
        }
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
        match container_id(group).filter(|_| is_of_pods(group)) {
            // What is further down the container has made itself.
            Some(id) => self.container(group, id, undone),
            None => self.on.children(group).iter().for_each(|child| self.below(child, undone)),
        }
    }

    fn container(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        self.group(group, id, undone);
        let of_crun = CgroupPath::new(&format!("{group}/{OF_CRUN}"));
        if let Some(group) = of_crun.filter(|group| self.on.has(group)) {
            let mut same = Undone::default();
            self.group(&group, id, &mut same);
            undone.errors.extend(same.errors);
        }
    }

    fn group(&self, group: &CgroupPath, id: &str, undone: &mut Undone) {
        let claim = self.claims.iter().find(|claim| claim.id.0 == id);
        let limit = claim.and_then(|claim| claim.cpu.limit);
        let quota = limit.map_or(Ok(false), |limit| quota::set(self.on, group, limit));
        let done = [(self.cpus(group), &mut undone.containers), (quota, &mut undone.quotas)];
        for (result, count) in done {
            match result {
                Ok(done) => *count += u64::from(done),
                Err(error) if error.is_gone() => {}
                Err(error) => undone.errors.push(error),
            }
        }
    }

    fn cpus(&self, group: &CgroupPath) -> Result<bool, FileError> {
        let set = self.on.cpus(group, CPUS)?;
        if set.is_empty() || self.widest.is_subset(&set) {
            return Ok(false);
        }
        files::undo(self.on, group, CpuSet::EMPTY, self.widest).map(|()| true)
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

fn is_of_pods(group: &CgroupPath) -> bool {
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
