//! [`CpuSetting`]: what is to be set for a container, or was sent. [`Reach`]: its exclusive and its
//! shared CPUs.

use super::model::{ContainerId, MilliCpu};
use cpuset::{CpuSet, NodeSet};
use std::sync::Arc;

/// The CPUs on which a container may run; no CPU is in both sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// CPUs that no other container uses.
    pub exclusive: CpuSet,
    /// CPUs that other containers use, too: all or, with `cpus: exclusive+shared`, some.
    pub shared: CpuSet,
}

impl Reach {
    pub fn exclusive(cpus: CpuSet) -> Reach {
        Reach { exclusive: cpus, shared: CpuSet::EMPTY }
    }

    pub fn shared(cpus: CpuSet) -> Reach {
        Reach { exclusive: CpuSet::EMPTY, shared: cpus }
    }

    /// These CPUs; those that are also in `exclusive` are used by no other container.
    pub(super) fn divided(cpus: CpuSet, exclusive: CpuSet) -> Reach {
        Reach { exclusive: cpus & exclusive, shared: cpus - exclusive }
    }

    pub fn all(&self) -> CpuSet {
        self.exclusive | self.shared
    }

    pub fn is_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.shared.is_empty()
    }

    /// This kind of use of other CPUs. CPUs that were shared stay shared.
    fn on(&self, cpus: CpuSet) -> Reach {
        if self.is_exclusive() {
            Reach { exclusive: cpus - self.shared, shared: cpus & self.shared }
        } else {
            Reach::shared(cpus)
        }
    }
}

/// The setting of a container: its CPUs, its memory nodes, its CFS quota. It has at least one CPU:
/// the runtime would read an empty set as "no change".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSetting {
    /// Thousands of containers may have the same.
    reach: Arc<Reach>,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl CpuSetting {
    /// CPUs that no other container uses; the CFS quota is lifted. `None` without any CPU.
    pub fn exclusive(cpus: CpuSet) -> Option<CpuSetting> {
        CpuSetting::of(Reach::exclusive(cpus))
    }

    /// CPUs that other containers use, too. `None` without any CPU.
    pub fn shared(cpus: CpuSet) -> Option<CpuSetting> {
        CpuSetting::of(Reach::shared(cpus))
    }

    /// `None` without any CPU.
    pub(super) fn of(reach: impl Into<Arc<Reach>>) -> Option<CpuSetting> {
        let reach = reach.into();
        let is_empty = reach.is_empty();
        (!is_empty).then_some(CpuSetting { reach, mems: None, limit: None })
    }

    /// This setting with memory on these NUMA nodes; `None` or an empty set leaves memory as it is.
    pub fn with_mems(self, mems: Option<NodeSet>) -> CpuSetting {
        CpuSetting { mems: mems.filter(|mems| !mems.is_empty()), ..self }
    }

    /// This setting with the CFS quota of this limit. `None` leaves the quota as it is.
    pub fn with_limit(self, limit: Option<MilliCpu>) -> CpuSetting {
        CpuSetting { limit, ..self }
    }

    /// This setting with other CPUs; `None` without any CPU.
    pub(super) fn on(&self, cpus: CpuSet) -> Option<CpuSetting> {
        self.reaching(self.reach.on(cpus))
    }

    /// This setting with this reach; `None` without any CPU.
    pub(super) fn reaching(&self, reach: Reach) -> Option<CpuSetting> {
        (!reach.is_empty()).then(|| CpuSetting { reach: reach.into(), ..*self })
    }

    /// The limit whose quota has to be restored, as the container shares CPUs again.
    pub fn limit(&self) -> Option<MilliCpu> {
        self.limit
    }

    /// The NUMA nodes for its memory, at least one; `None` leaves memory as it is.
    pub fn mems(&self) -> Option<NodeSet> {
        self.mems
    }

    pub(super) fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    /// At least one CPU.
    pub fn cpus(&self) -> CpuSet {
        self.reach.all()
    }

    /// The CPUs that no other container uses: none or all, or with `cpus: exclusive+shared` some.
    pub fn exclusive_cpus(&self) -> CpuSet {
        self.reach.exclusive
    }

    /// Whether some CPUs are exclusive. Then the CFS quota is lifted, as by the kubelet.
    pub fn is_exclusive(&self) -> bool {
        self.reach.is_exclusive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub setting: CpuSetting,
}
