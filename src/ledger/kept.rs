//! Who keeps others off exclusive CPUs, and what outsiders need to know for it.

use super::cgroup::CgroupPath;
use super::containers::Instance;
use super::entry::{Entry, Life};
use super::event::{Pin, Update};
use super::hands_off::Stance;
use super::model::{Container, ContainerId, MilliCpu, Pod, PodUid, SandboxId};
use super::note::Subject;
use super::pods::PodEntry;
use super::{Exclusivity, Ledger};
use crate::cpuset::CpuSet;

/// A container that exists, and where it should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Which it is, for people; the runtime's id in it is for everybody.
    pub subject: Subject,
    /// Its control group, where known.
    pub cgroup: Option<CgroupPath>,
    /// What the runtime was told to set.
    pub pin: Pin,
    /// Where its processes may really run: less than it was told, if the kernel keeps some of it for others.
    pub runs_on: CpuSet,
    /// Who keeps others off its CPUs, if it has exclusive ones.
    pub kept_by: Exclusivity,
    /// Whether its process was told to run, as far as the runtime says.
    pub running: bool,
    /// Whether the pod's own CFS quota would throttle exclusive CPUs, so that it should be lifted: a pod's quota is the
    /// sum of its containers', and so are its CPUs.
    pub lifts_pod_quota: bool,
}

impl Placed {
    /// Whether the kernel keeps others off its CPUs.
    pub fn is_partition(&self) -> bool {
        self.pin.is_exclusive() && self.kept_by == Exclusivity::Kernel
    }
}

/// Somebody who has exclusive CPUs, running or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The last instance of the container.
    pub id: ContainerId,
    /// The sandbox of its pod.
    pub sandbox: SandboxId,
    /// The control group of that instance, where known.
    pub group: Option<CgroupPath>,
    /// That of its pod.
    pub pod_group: CgroupPath,
    /// Whether it has ended, as far as was told.
    pub ended: bool,
}

/// A pod that has exclusive CPUs and no instance of any container: either it is over, and the runtime does not say so
/// (containerd does not of pods that are older than its last start), or its containers are between two tries to create
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deserted {
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// Its control group, which is there as long as the pod is; `None` where the runtime does not tell.
    pub group: Option<CgroupPath>,
}

impl Ledger {
    /// Everybody with exclusive CPUs whose control group is known, in order of pod uid and container name.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.entries().filter_map(|(uid, _, entry)| {
            entry.claim?;
            let pod = self.pods.get(uid)?;
            Some(Holder {
                id: entry.id.clone(),
                sandbox: pod.pod.sandbox.clone(),
                group: entry.cgroup.clone(),
                pod_group: pod.group()?,
                ended: entry.life == Life::Stopped,
            })
        })
    }

    /// Pods whose end has to be looked for, as there is nothing left of which the runtime could tell it.
    pub fn deserted(&self) -> impl Iterator<Item = Deserted> {
        self.pods
            .deserted()
            .map(|pod| Deserted { sandbox: pod.pod.sandbox.clone(), group: pod.group() })
    }

    /// All containers that exist and are told anything here, in order of pod uid and container name.
    pub fn placed(&self) -> impl Iterator<Item = Placed> {
        self.entries().filter_map(|(uid, name, entry)| self.place_of(uid, name, entry))
    }

    /// One of them; `None` if there is no such container or it has ended.
    pub fn placed_one(&self, id: &ContainerId) -> Option<Placed> {
        let (uid, name) = self.ids.get(id)?;
        self.place_of(uid, name, self.entry(uid, name)?)
    }

    fn place_of(&self, uid: &PodUid, name: &str, entry: &Entry) -> Option<Placed> {
        // While somebody else assigns CPUs nothing is decided here that anybody should see to.
        if entry.life == Life::Stopped || self.stance != Stance::Assign {
            return None;
        }
        let pod = self.pods.get(uid)?;
        let pin = self.wish(pod, entry)?;
        let by_now = entry.applied.filter(|_| entry.waits);
        let pin = by_now.and_then(|applied| pin.on(applied.cpus)).unwrap_or(pin);
        Some(Placed {
            subject: Subject {
                namespace: pod.pod.namespace.clone(),
                pod: pod.pod.name.clone(),
                container: name.to_owned(),
                id: entry.id.clone(),
            },
            cgroup: entry.cgroup.clone(),
            pin,
            runs_on: if pin.is_exclusive() { pin.cpus() } else { self.left_of(pin.cpus()) },
            kept_by: entry.kept_by,
            running: entry.life == Life::Running,
            lifts_pod_quota: pod.lifts_quota(),
        })
    }

    /// Where a shared container runs that is told these CPUs. The kernel lets a group that has none left run where its
    /// parent does.
    pub(super) fn left_of(&self, told: CpuSet) -> CpuSet {
        let kept = self.pods.held().by_kernel;
        let left = told - kept;
        if left.is_empty() { self.topology.online() - kept } else { left }
    }

    /// A container's process is about to run. Only one that is not known changes anything.
    pub(super) fn starting(&mut self, pod: Pod, mut container: Container) {
        let uid = self.whose(pod, &mut container);
        if self.instance(&uid, &container) == Instance::Unknown {
            self.adopt_late(&uid, &container);
        }
    }

    /// The kernel does not keep others off this container's CPUs: the runtime has to, by updates of the shared
    /// containers, which [`take_updates`](Self::take_updates) gives.
    pub fn fall_back(&mut self, container: &ContainerId) {
        let Some((uid, name)) = self.ids.get(container) else { return };
        self.pods.change_entry(uid, name, |entry| entry.kept_by = Exclusivity::Runtime);
        self.refresh_pool();
    }

    /// What was decided for these containers, to be told once more at once.
    pub fn changes_of(&mut self, containers: &[ContainerId]) -> Vec<Update> {
        let changes: Vec<Update> = containers
            .iter()
            .filter_map(|id| Some(Update { container: id.clone(), pin: self.placed_one(id)?.pin }))
            .collect();
        changes.iter().for_each(|change| self.mark_told(change));
        changes
    }

    /// Something else than what was decided is set for these containers: they are told again.
    pub fn drifted(&mut self, containers: &[ContainerId]) {
        for id in containers {
            let Some((uid, name)) = self.ids.get(id) else { continue };
            if self.pods.change_entry(uid, name, |entry| entry.doubt()).is_some() {
                self.pending = true;
            }
        }
    }
}

impl PodEntry {
    /// Its control group: as the runtime tells, or the one that its containers are in.
    fn group(&self) -> Option<CgroupPath> {
        let of_container = |entry: &Entry| entry.cgroup.as_ref()?.parent();
        self.pod.cgroup.clone().or_else(|| self.containers.values().find_map(of_container))
    }

    /// As the kubelet: with any exclusive container; in a pod with resources of its own, if all are. Such a pod shows by
    /// its containers having more in sum than the pod, as those without any inherit the pod's limit.
    fn lifts_quota(&self) -> bool {
        let alive = || self.containers.values().filter(|entry| entry.life != Life::Stopped);
        let exclusive = alive().filter(|entry| entry.claim.is_some()).count();
        let sum: MilliCpu = alive().filter_map(|entry| entry.cpu.amount()).sum();
        let inherits = self.pod.budget.is_some_and(|budget| sum > budget);
        exclusive > 0 && (!inherits || exclusive == alive().count())
    }
}
