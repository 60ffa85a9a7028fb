//! Views of containers and pods for the code that writes and checks their cgroups.

use super::books::{ContainerEntry, ContainerRef, Phase, PodEntry};
use super::due::Targets;
use super::model::{PodUid, Qos, SandboxId};
use super::node::{Node, Pool};
use super::note::Subject;
use super::policy::Mechanism;
use super::setting::{CpuSetting, Reach};
use cpuset::{CgroupPath, CpuSet};

/// Where a container should run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub subject: Subject,
    pub cgroup: Option<CgroupPath>,
    /// The setting that the runtime has, or gets.
    pub setting: CpuSetting,
    /// Where its processes can run: without the CPUs that cgroups and partitions keep for others.
    pub runs_on: CpuSet,
    /// For a container that cgroups keep in the pool: the CPUs of its own pod that its cpuset must
    /// not name (`PodEntry::kept_from_siblings`). It may name any other CPUs.
    pub kept_from_siblings: Option<CpuSet>,
    /// What keeps others off its CPUs, if it has exclusive ones.
    pub enforced_by: Mechanism,
    /// Whether its cgroup has to be a partition.
    pub partition: bool,
    pub running: bool,
    /// Whether the CFS quota of the pod's cgroup has to be lifted, as it would throttle exclusive
    /// CPUs. It is the sum of the containers' quotas.
    pub lifts_pod_quota: bool,
}

impl Target {
    pub fn pod_group(&self) -> Option<CgroupPath> {
        self.cgroup.as_ref()?.parent()
    }

    /// Whether its cgroup has to be a partition now, of the CPUs in `setting`.
    pub fn is_partition(&self) -> bool {
        self.setting.is_exclusive() && self.partition
    }
}

/// A container with exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub subject: Subject,
    pub sandbox: SandboxId,
    pub group: Option<CgroupPath>,
    pub pod_group: CgroupPath,
    pub ended: bool,
}

/// A pod without an instance of any container, which has exclusive CPUs or had containers. Either
/// it has ended and the runtime does not report that (containerd does not for pods that are older
/// than its last start), or the kubelet is between two attempts to create its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deserted {
    /// For people.
    pub name: String,
    pub sandbox: SandboxId,
    /// Its cgroup, which exists as long as the pod does; `None` if the runtime does not report it.
    pub group: Option<CgroupPath>,
    /// Whether the runtime has removed all instances. Otherwise its list had none, as for a
    /// container that the kubelet restarts after a delay: then only the missing cgroup shows the
    /// end of the pod.
    pub removed: bool,
}

/// Where a container should run; `None` if it has ended or the ledger does not decide about it.
pub(super) fn target(
    node: &Node,
    pool: &Pool,
    targets: &Targets<'_>,
    container: ContainerRef<'_>,
) -> Option<Target> {
    let ContainerRef { pod, entry, .. } = container;
    if !entry.is_alive() || !node.assigns() {
        return None;
    }
    let setting = targets.setting(entry)?;
    // Until others have left its new CPUs, a container keeps the applied ones.
    let applied = if entry.waits() { entry.applied.cpus() } else { None };
    let exclusive = entry.applied.exclusive().unwrap_or_default();
    let applied = applied.and_then(|cpus| setting.reaching(Reach::divided(cpus, exclusive)));
    let setting = applied.unwrap_or(setting);
    let bound = !setting.is_exclusive() && !targets.is_updated;
    let kept_from_siblings = targets.kept_from_siblings;
    let may_use =
        if bound { CpuSetting::shared(pool.possible.shared - kept_from_siblings) } else { None };
    let runs_on = effective_cpus(node, &targets.bound.shared, may_use.as_ref().unwrap_or(&setting));
    Some(Target {
        subject: container.subject(),
        cgroup: entry.cgroup.clone(),
        setting,
        runs_on,
        kept_from_siblings: bound.then_some(kept_from_siblings),
        enforced_by: entry.enforced_by,
        partition: is_partition(pod, entry),
        running: entry.phase() == Phase::Running,
        lifts_pod_quota: targets.lifts_quota,
    })
}

/// The CPUs that a container has once no update is due; `None` without exclusive ones.
pub(super) fn reach(
    node: &Node,
    pool: &Pool,
    ContainerRef { pod, entry, .. }: ContainerRef<'_>,
) -> Option<Reach> {
    let exclusive = entry.claim()?;
    let mut shared = CpuSet::EMPTY;
    if entry.is_mixed() {
        let targets = Targets::of(node, pool, pod);
        shared = effective_cpus(node, &targets.bound.shared, &targets.setting(entry)?) - exclusive;
    }
    Some(Reach { exclusive, shared })
}

pub(super) fn holder(container: ContainerRef<'_>) -> Option<Holder> {
    let ContainerRef { pod, entry, .. } = container;
    entry.claim()?;
    Some(Holder {
        subject: container.subject(),
        sandbox: pod.pod.sandbox.clone(),
        group: entry.cgroup.clone(),
        pod_group: pod.group()?,
        ended: !entry.is_alive(),
    })
}

/// Where a container with this setting runs, if its pod is kept within `bound`
/// (`cpuset.cpus.effective`). A cgroup whose CPUs are all outside its parent's runs where the
/// parent does.
pub(super) fn effective_cpus(node: &Node, bound: &CpuSet, setting: &CpuSetting) -> CpuSet {
    let cpus = setting.cpus();
    let own = setting.exclusive_cpus();
    if cpus == own {
        return own;
    }
    let everywhere = node.topology.online();
    let bound = *bound & everywhere;
    let by_groups = node.mechanism != Mechanism::Runtime && !bound.is_empty();
    let parent = if by_groups { bound } else { everywhere };
    let effective = own | (cpus & parent);
    if effective.is_empty() { parent } else { effective }
}

/// Whether a container's cgroup has to be a partition now.
///
/// Linux before 7.0 ends a partition, and loses its CPUs, if a sibling cgroup names some of them.
/// The runtime may still write the cpuset of a sibling that has not started, with CPUs that it was
/// sent before they became the partition's. So the partition waits until then.
fn is_partition(pod: &PodEntry, entry: &ContainerEntry) -> bool {
    let Some(claim) = entry.claim() else { return false };
    let may_name = |other: &ContainerEntry| {
        other.phase() == Phase::Created
            && other.id() != entry.id()
            && other.applied.cpus().is_some_and(|sent| !sent.is_disjoint(&claim))
    };
    entry.enforced_by == Mechanism::Partitions
        && !pod.containers().any(|(_, other)| may_name(other))
}

#[derive(Debug, Clone)]
pub struct PodPlace<'a> {
    pub uid: &'a PodUid,
    /// `NAMESPACE/NAME`, for messages.
    pub name: String,
    pub group: Option<CgroupPath>,
    pub qos: Qos,
    /// Where its containers without exclusive CPUs have to run.
    pub bound: CpuSet,
    /// CPUs on which containers of other pods must not run, besides exclusive ones.
    pub own_pool: CpuSet,
    /// The CPUs that the cpusets of its containers without exclusive CPUs must not name.
    pub kept_from_siblings: CpuSet,
    /// The containers that have not ended.
    pub containers: Vec<LeafPlace<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct LeafPlace<'a> {
    pub group: Option<&'a CgroupPath>,
    pub exclusive: Option<&'a CpuSet>,
    /// Whether it uses the shared pool in addition to these.
    pub mixed: bool,
    /// Whether its cgroup has to be a partition now.
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
        bound: pool.bound_of(pod).shared,
        own_pool: pod.own_pool(),
        kept_from_siblings: pod.kept_from_siblings(),
        containers: alive
            .map(|(_, entry)| LeafPlace {
                group: entry.cgroup.as_ref(),
                exclusive: entry.exclusive(),
                mixed: entry.is_mixed(),
                partitioned: is_partition(pod, entry),
                running: entry.phase() == Phase::Running,
            })
            .collect(),
    }
}
