//! Pods and containers as the ledger sees them.

use super::annotations::Annotations;
use super::device::Device;
use cpuset::{CgroupPath, CpuSet, NodeSet};
use placement::memory_manager::Amounts;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::sync::Arc;

/// A pod's uid: the same for the pod's whole life, also when its sandbox is created again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodUid(pub Arc<str>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxId(pub Arc<str>);

/// A container's id, given by the runtime; a restarted container gets a new one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerId(pub Arc<str>);

impl ContainerId {
    /// The id of a container of which only the name is known. No runtime creates an id of this form.
    pub(super) fn made_up(pod: &PodUid, container: &str) -> ContainerId {
        ContainerId(format!("{pod}/{container}").into())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An amount of CPU time in thousandths of a CPU, as Kubernetes counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MilliCpu(pub u64);

impl MilliCpu {
    /// The lowest value of `cpu.shares`: no request, or one of at most 2m.
    const MIN_SHARES: u64 = 2;
    /// The highest value of `cpu.shares`: any request of 256 CPUs or more.
    const MAX_SHARES: u64 = 262_144;

    /// The smallest request that the kubelet writes as [`MilliCpu::MAX_SHARES`].
    const SHARES_END: MilliCpu = MilliCpu(Self::MAX_SHARES * 1000 / 1024);

    /// The request that the kubelet wrote as `cpu.shares` (cgroup v1 units, also under cgroup v2).
    ///
    /// The kubelet rounds `milli * 1024 / 1000` down, so this rounds up; exact from 3m to 256 CPUs.
    /// `None` at both ends: the lowest value may mean no request, the highest any larger one.
    pub fn from_shares(shares: u64) -> Option<MilliCpu> {
        match shares {
            0..=MilliCpu::MIN_SHARES => None,
            MilliCpu::MAX_SHARES.. => None,
            shares => Some(MilliCpu((shares * 1000).div_ceil(1024))),
        }
    }

    /// The limit that the kubelet wrote as CFS quota and period, both in microseconds.
    ///
    /// The kubelet rounds `milli * period / 1000` down, so this rounds up; exact from 10m with the
    /// usual period of 100 ms. `None` without a limit (quota zero or less), or with a period of
    /// zero.
    pub fn from_quota(quota: i64, period: u64) -> Option<MilliCpu> {
        let quota = u128::try_from(quota).ok().filter(|&quota| quota > 0)?;
        let milli = (quota * 1000).checked_div(u128::from(period))?;
        let exact = milli * u128::from(period) == quota * 1000;
        u64::try_from(if exact { milli } else { milli + 1 }).ok().map(MilliCpu)
    }

    /// The CFS quota and period of this limit, in microseconds; the inverse of
    /// [`MilliCpu::from_quota`].
    pub fn quota(self) -> (i64, u64) {
        /// The kernel rejects smaller quotas.
        const LEAST: i64 = 1000;
        let quota = i64::try_from(self.0.saturating_mul(100)).unwrap_or(i64::MAX);
        (quota.max(LEAST), 100_000)
    }

    /// The number of CPUs, if this is a whole number of them and not zero.
    pub fn whole_cpus(self) -> Option<usize> {
        (self.0 > 0 && self.0.is_multiple_of(1000))
            .then(|| usize::try_from(self.0 / 1000).ok())
            .flatten()
    }

    pub fn cpus_floor(self) -> usize {
        usize::try_from(self.0 / 1000).unwrap_or(usize::MAX)
    }
}

/// The sum saturates: a runtime may report any amounts.
impl Sum for MilliCpu {
    fn sum<I: Iterator<Item = MilliCpu>>(amounts: I) -> MilliCpu {
        amounts.fold(MilliCpu(0), |sum, amount| MilliCpu(sum.0.saturating_add(amount.0)))
    }
}

impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole_cpus() {
            Some(cpus) => write!(f, "{cpus}"),
            None => write!(f, "{}m", self.0),
        }
    }
}

/// A pod's quality of service class, as its cgroup shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Qos {
    /// Limits equal requests in every container: the class that exclusive CPUs are for.
    Guaranteed,
    /// Some requests or limits.
    Burstable,
    /// No requests, no limits.
    BestEffort,
    /// No kubelet created the pod, or its cgroup parent is not known yet.
    Unknown,
}

/// Which CPUs the containers without exclusive CPUs of a pod share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The shared pool.
    #[default]
    General,
    /// The reserved CPUs. No container of such a pod gets exclusive CPUs.
    Reserved,
}

/// The kind of a container in its pod. The runtime's events do not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContainerKind {
    /// Runs to its end before the next container of the pod starts.
    Init,
    /// A sidecar: an init container with `restartPolicy: Always`, which runs as long as the others.
    RestartableInit,
    App,
    /// The source of the event does not have it.
    #[default]
    Unknown,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pod {
    #[serde(skip)]
    pub sandbox: SandboxId,
    /// The same for the pod's whole life.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its quality of service class.
    pub qos: Qos,
    /// The pool that its cgroup shows: the kubelet's system partition (KEP-5894) is for the
    /// reserved CPUs. The settings can also reserve them for the pod's namespace
    /// ([`Settings::reserved_namespaces`](super::Settings::reserved_namespaces)).
    #[serde(skip)]
    pub pool: PoolKind,
    /// The most CPUs that can be exclusive in the pod at a time; its NUMA affinity in pod scope is
    /// for that many CPUs. From the runtime this is the CPU time of the whole pod; from a source
    /// that knows the containers, the sum of their requests for whole CPUs. `None` if the event
    /// does not have it.
    #[serde(skip)]
    pub budget: Option<MilliCpu>,
    /// Its memory limit and its huge pages; empty if the event does not have them.
    #[serde(skip)]
    pub limits: Amounts,
    /// Whether it has resources of its own (`spec.resources`); `None` if the event does not have it, as
    /// those of runtimes.
    #[serde(skip)]
    pub own_resources: Option<bool>,
    /// The annotations for this plugin; empty if the pod has none, or if the event has none.
    #[serde(skip)]
    pub annotations: Annotations,
    /// It exists as long as the pod does; `None` if the event does not have it.
    #[serde(skip)]
    pub cgroup: Option<CgroupPath>,
}

/// How much CPU time a container asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuRequest {
    /// In thousandths of a CPU; `null` if `cpu.shares` does not show it: for 2 or fewer, and for 256 CPUs or more.
    pub request: Option<MilliCpu>,
    /// In thousandths of a CPU; `null` without a limit, or when the kubelet sets no CFS quotas at all.
    pub limit: Option<MilliCpu>,
}

impl CpuRequest {
    /// The budget of a pod with this request and limit: the larger of the two. Shares do not show
    /// requests of 256 CPUs or more, so the limit can be the larger one. It can also be too small:
    /// the kubelet sums the limits that the containers declare, and some may declare none.
    pub fn budget(self) -> Option<MilliCpu> {
        self.limit.max(self.request)
    }

    /// This request after a change; a part that is `None` in `requested` does not change.
    ///
    /// Shares do not show requests of 256 CPUs or more: with a limit of that size, a missing
    /// request is unknown.
    pub fn changed_by(self, requested: CpuRequest) -> CpuRequest {
        let unknown = requested.limit.is_some_and(|limit| limit >= MilliCpu::SHARES_END);
        CpuRequest {
            request: if unknown { requested.request } else { requested.request.or(self.request) },
            limit: requested.limit.or(self.limit),
        }
    }

    /// The requested amount, unless request and limit differ.
    ///
    /// One of them suffices: without CFS quotas the kubelet sends no limit, and the quota of an
    /// exclusive container is lifted.
    pub(super) fn amount(&self) -> Option<MilliCpu> {
        match (self.request, self.limit) {
            (Some(request), Some(limit)) => (request == limit).then_some(limit),
            (request, limit) => limit.or(request),
        }
    }
}

/// Why a container stays on CPUs that another program has set for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeftAlone {
    /// It is in one of CRI-O's workloads.
    Workload,
    /// Its namespace is one of `reservedNamespaces`.
    Namespace,
    /// They are all reserved.
    Reserved,
    /// Nothing explains them. One such pod is no sufficient sign that the kubelet assigns CPUs.
    Unexplained,
}

impl LeftAlone {
    pub const ALL: [LeftAlone; 4] =
        [LeftAlone::Workload, LeftAlone::Namespace, LeftAlone::Reserved, LeftAlone::Unexplained];

    /// Its word in the state file.
    pub fn name(self) -> &'static str {
        match self {
            LeftAlone::Workload => "workload",
            LeftAlone::Namespace => "namespace",
            LeftAlone::Reserved => "reserved",
            LeftAlone::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftAlone::Workload => "its annotation target.workload.openshift.io puts it into a workload of CRI-O",
            LeftAlone::Namespace => "its namespace is one of reservedNamespaces",
            LeftAlone::Reserved => "they are reserved",
            LeftAlone::Unexplained => {
                "by the kubelet's own CPU manager, or another NRI plugin. If another pod arrives with CPUs, the kubelet's \
                 counts as active: set cpuManagerPolicy: none in the kubelet's configuration, or remove the other plugin"
            }
        })
    }
}

/// A device as the runtime describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceRef {
    File {
        /// A block device; otherwise a character device.
        block: bool,
        major: i64,
        minor: i64,
    },
    /// The UUID of a GPU. NVIDIA's hook adds the device files later, so the runtime lists none.
    Gpu(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub name: String,
    pub kind: ContainerKind,
    pub cpu: CpuRequest,
    /// Its memory limit and its huge pages; empty without any.
    pub limits: Amounts,
    /// The CPUs that the runtime has set; `None` if it has set none.
    pub cpus: Option<CpuSet>,
    /// The part of `cpus` that the cgroups above the container allow. The daemon reads it.
    pub runs_on: Option<CpuSet>,
    /// Whether annotations put it into one of CRI-O's workloads (`[crio.runtime.workloads]`), for
    /// which CRI-O sets CPUs.
    pub in_workload: bool,
    /// Why it stays on the CPUs that another program has set for it, or names in an update; `None`
    /// if it does not. The daemon finds the reason.
    pub left_alone: Option<LeftAlone>,
    /// The NUMA nodes that the runtime has set for its memory; `None` if it has set none.
    pub mems: Option<NodeSet>,
    /// Empty for a container that may use all devices.
    pub described_devices: Vec<DeviceRef>,
    /// Whether the description has more devices than are read of a container.
    pub too_many_devices: bool,
    /// The described devices whose NUMA nodes are known. The daemon finds these nodes.
    pub devices: Vec<Device>,
    /// Whether its cgroup is a partition, so that the kernel keeps other containers off
    /// `cpus`. The daemon reads it from the kernel; runtimes do not report it.
    pub partitioned: bool,
    /// Whether the runtime's description is older than the present settings: CRI-O, after a
    /// restart, lists containers as it created them, `cpu` included.
    pub outdated: bool,
    /// Whether a standby has recorded its creation or its last update: `cpu` and `limits` are the present
    /// ones then, even if `cpus` is not.
    pub followed: bool,
    pub not_started: bool,
    pub cgroup: Option<CgroupPath>,
    /// When it was created, in nanoseconds since 1970; `None` if the runtime does not report it.
    pub created_at: Option<i64>,
}

impl Container {
    /// A container of unknown kind without any setting.
    pub fn new(
        id: ContainerId,
        sandbox: SandboxId,
        name: impl Into<String>,
        cpu: CpuRequest,
    ) -> Self {
        Self {
            id,
            sandbox,
            name: name.into(),
            kind: ContainerKind::Unknown,
            cpu,
            limits: Amounts::new(),
            cpus: None,
            in_workload: false,
            left_alone: None,
            runs_on: None,
            mems: None,
            described_devices: Vec::new(),
            too_many_devices: false,
            devices: Vec::new(),
            partitioned: false,
            outdated: false,
            followed: false,
            not_started: false,
            cgroup: None,
            created_at: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kubelet computes shares as floor(milli * 1024 / 1000).
    #[test]
    fn requests_are_read_exactly_from_shares() {
        for milli in 3..256_000 {
            assert_eq!(MilliCpu::from_shares(milli * 1024 / 1000), Some(MilliCpu(milli)));
        }
        for ambiguous in [0, 1, 2, 262_144, u64::MAX] {
            assert_eq!(MilliCpu::from_shares(ambiguous), None);
        }
    }

    #[test]
    fn limits_are_read_exactly_from_quotas() {
        for milli in 10..300_000_i64 {
            let amount = MilliCpu(milli as u64);
            assert_eq!(amount.quota(), (milli * 100, 100_000));
            assert_eq!(MilliCpu::from_quota(milli * 100, 100_000), Some(amount));
        }
        for (quota, period) in [(-1, 100_000), (0, 100_000), (1000, 0)] {
            assert_eq!(MilliCpu::from_quota(quota, period), None);
        }
        assert_eq!(MilliCpu::from_quota(i64::MAX, 1), None, "more than can be counted is no limit");
    }

    #[test]
    fn sums_saturate() {
        let much = MilliCpu(u64::MAX - 1);
        assert_eq!([MilliCpu(2), MilliCpu(3)].into_iter().sum::<MilliCpu>(), MilliCpu(5));
        assert_eq!([much, much].into_iter().sum::<MilliCpu>(), MilliCpu(u64::MAX));
    }

    #[test]
    fn only_multiples_of_1000_are_whole_cpus() {
        for (milli, cpus) in
            [(0, None), (500, None), (1000, Some(1)), (2500, None), (64_000, Some(64))]
        {
            assert_eq!(MilliCpu(milli).whole_cpus(), cpus);
        }
        assert_eq!(MilliCpu(2500).to_string(), "2500m");
        assert_eq!(MilliCpu(2000).to_string(), "2");
    }
}
