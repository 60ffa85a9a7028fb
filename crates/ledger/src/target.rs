//! What the enforcer and the verifier need to know of a container.

use super::books::{ContainerEntry, ContainerRef, Phase, PodEntry};
use super::desired::desired;
use super::model::{ContainerId, PodUid, Qos, SandboxId};
use super::node::{Node, Pool};
use super::note::Subject;
use super::policy::Mechanism;
use super::setting::{CpuSetting, Reach};
use cpuset::{CgroupPath, CpuSet};

/// A container that exists, and where it should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which it is, for people; with the runtime's id.
    pub subject: Subject,
    pub cgroup: Option<CgroupPath>,
    /// What the runtime sets for it.
    pub setting: CpuSetting,
    /// Where its processes may really run: without the CPUs that the kernel keeps for others.
    pub runs_on: CpuSet,
    /// For a container that cgroups keep in the pool: the CPUs of its own pod that it must not name
    /// (`PodEntry::kept_from_siblings`). Whatever else is set for it is right.
    pub kept_from_siblings: Option<CpuSet>,
    /// What keeps others off its CPUs, if it has exclusive ones.
    pub enforced_by: Mechanism,
    /// Whether its cgroup is to be a partition now.
    pub partition: bool,
    pub running: bool,
    /// Whether the pod's own CFS quota would throttle exclusive CPUs and should be lifted. A pod's
    /// quota is the sum of its containers' quotas.
    pub lifts_pod_quota: bool,
}

impl Target {
    /// The cgroup of its pod.
    pub fn pod_group(&self) -> Option<CgroupPath> {
        self.cgroup.as_ref()?.parent()
    }

    /// Whether the kernel is to keep others off its CPUs now, too.
    pub fn is_partition(&self) -> bool {
        self.setting.is_exclusive() && self.partition
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    /// The cgroup of that instance, where known.
    pub group: Option<CgroupPath>,
    /// That of its pod.
    pub pod_group: CgroupPath,
    pub ended: bool,
}

/// A pod that has exclusive CPUs and no instance of any container. Either it has ended and the
/// runtime does not report it (containerd does not for pods that are older than its last start), or
/// the kubelet is between two tries to create its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deserted {
    pub sandbox: SandboxId,
    /// Its cgroup, which is there as long as the pod is; `None` where the runtime does not
    /// tell.
    pub group: Option<CgroupPath>,
    /// Whether the runtime has removed all instances. Otherwise its list had none, as for a
    /// container that the kubelet restarts after a pause: only the missing group shows the end.
    pub removed: bool,
}

/// Where a container should run; `None` if it has ended or the ledger decides nothing about it.
pub(super) fn target(node: &Node, pool: &Pool, found: ContainerRef<'_>) -> Option<Target> {
    let ContainerRef { pod, entry, .. } = found;
    if !entry.is_alive() || !node.assigns() {
        return None;
    }
    let setting = desired(node, pool, pod, entry)?;
    // One that waits has what was set last.
    let by_now = entry.applied.cpus().filter(|_| entry.waits());
    let exclusive = entry.applied.exclusive().unwrap_or_default();
    let by_now = by_now.and_then(|cpus| setting.reaching(Reach::divided(cpus, exclusive)));
    let setting = by_now.unwrap_or(setting);
    let bound = !setting.is_exclusive() && !node.is_updated(found.uid);
    let kept_from_siblings = pod.kept_from_siblings();
    let may_use = if bound { CpuSetting::shared(pool.possible - kept_from_siblings) } else { None };
    Some(Target {
        subject: found.subject(),
        cgroup: entry.cgroup.clone(),
        setting,
        runs_on: left_of(node, pool.bound_of(pod), &may_use.unwrap_or(setting)),
        kept_from_siblings: bound.then_some(kept_from_siblings),
        enforced_by: entry.enforced_by,
        partition: is_partition(pod, entry),
        running: entry.phase() == Phase::Running,
        lifts_pod_quota: pod.lifts_quota(),
    })
}

/// Which CPUs a container is to use in the end; `None` without exclusive ones.
pub(super) fn reach(node: &Node, pool: &Pool, found: ContainerRef<'_>) -> Option<Reach> {
    let exclusive = found.entry.claim()?;
    let mut shared = CpuSet::EMPTY;
    if found.entry.is_mixed() {
        let setting = desired(node, pool, found.pod, found.entry)?;
        shared = left_of(node, pool.bound_of(found.pod), &setting) - exclusive;
    }
    Some(Reach { exclusive, shared })
}

pub(super) fn holder(ContainerRef { pod, entry, .. }: ContainerRef<'_>) -> Option<Holder> {
    entry.claim()?;
    Some(Holder {
        id: entry.id().clone(),
        sandbox: pod.pod.sandbox.clone(),
        group: entry.cgroup.clone(),
        pod_group: pod.group()?,
        ended: !entry.is_alive(),
    })
}

/// Where a container with this setting runs, if its pod is kept within `bound`. The kernel lets a group that has no CPU left run
/// where its parent does.
pub(super) fn left_of(node: &Node, bound: CpuSet, setting: &CpuSetting) -> CpuSet {
    let (cpus, own) = (setting.cpus(), setting.exclusive_cpus());
    if cpus == own {
        return own;
    }
    let everywhere = node.topology.online();
    let bound = bound & everywhere;
    let by_groups = node.mechanism != Mechanism::Runtime && !bound.is_empty();
    let around = if by_groups { bound } else { everywhere };
    let left = own | (cpus & around);
    if left.is_empty() { around } else { left }
}

/// Whether a container's cgroup is to be a partition now.
///
/// Linux before 7.0 ends a partition, and loses its CPUs, if the runtime sets some of these for another
/// container of the pod: one that has not started may have been sent CPUs which the partition has got
/// since.
fn is_partition(pod: &PodEntry, entry: &ContainerEntry) -> bool {
    let Some(claim) = entry.claim() else { return false };
    let names = |other: &ContainerEntry| {
        let sent = other.applied.cpus().filter(|_| other.phase() != Phase::Running);
        other.is_alive()
            && other.id() != entry.id()
            && sent.is_some_and(|cpus| !cpus.is_disjoint(&claim))
    };
    entry.enforced_by == Mechanism::Partitions && !pod.containers().any(|(_, other)| names(other))
}

#[derive(Debug, Clone)]
pub struct PodPlace<'a> {
    pub uid: &'a PodUid,
    /// For people: `NAMESPACE/NAME`.
    pub name: String,
    pub group: Option<CgroupPath>,
    pub qos: Qos,
    /// Where its containers without exclusive CPUs are to run.
    pub bound: CpuSet,
    /// The CPUs that its containers without exclusive CPUs must not name.
    pub kept_from_siblings: CpuSet,
    /// Of its containers that exist.
    pub containers: Vec<LeafPlace<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct LeafPlace<'a> {
    pub group: Option<&'a CgroupPath>,
    /// Its exclusive CPUs.
    pub exclusive: Option<CpuSet>,
    /// Whether it uses the shared pool beside these.
    pub mixed: bool,
    /// Whether a partition keeps others off them.
    pub partitioned: bool,
    pub running: bool,
}

pub(super) fn place<'a>(pool: &Pool, uid: &'a PodUid, pod: &'a PodEntry) -> PodPlace<'a> {
    let alive = pod.containers().filter(|(_, entry)| entry.is_alive());
    PodPlace {
        uid,
        name: format!("{}/{}", pod.pod.namespace, pod.pod.name),
        group: pod.group(),
        qos: pod.pod.qos,
        bound: pool.bound_of(pod),
        kept_from_siblings: pod.kept_from_siblings(),
        containers: alive
            .map(|(_, entry)| LeafPlace {
                group: entry.cgroup.as_ref(),
                exclusive: entry.claim(),
                mixed: entry.is_mixed(),
                partitioned: is_partition(pod, entry),
                running: entry.phase() == Phase::Running,
            })
            .collect(),
    }
}
