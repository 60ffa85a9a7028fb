//! [`CpuSetting`]: what is to be set for a container, or was sent. [`Reach`]: its CPUs, by whether
//! others may use them too.

use super::model::{ContainerId, MilliCpu};
use cpuset::{CpuSet, NodeSet};

/// The CPUs on which a container may run; no CPU is in both sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// CPUs that no other container uses.
    pub exclusive: CpuSet,
    /// CPUs that it uses together with others (`cpus: exclusive+shared`, or all of its CPUs).
    pub shared: CpuSet,
}

impl Reach {
    pub fn exclusive(cpus: CpuSet) -> Reach {
        Reach { exclusive: cpus, shared: CpuSet::EMPTY }
    }

    pub fn shared(cpus: CpuSet) -> Reach {
        Reach { exclusive: CpuSet::EMPTY, shared: cpus }
    }

    /// These CPUs, of which those that are among `exclusive` are used by no other container.
    pub(super) fn divided(cpus: CpuSet, exclusive: CpuSet) -> Reach {
        Reach { exclusive: cpus & exclusive, shared: cpus - exclusive }
    }

    pub fn all(&self) -> CpuSet {
        self.exclusive | self.shared
    }

    pub fn is_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// The same kind of use of other CPUs: what was shared stays so.
    fn on(&self, cpus: CpuSet) -> Reach {
        if self.is_exclusive() {
            Reach { exclusive: cpus - self.shared, shared: cpus & self.shared }
        } else {
            Reach::shared(cpus)
        }
    }
}

/// What is set for a container: its CPUs, its memory, its CFS quota. There is at least one CPU: the
/// runtime would read an empty set as "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSetting {
    reach: Reach,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl CpuSetting {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<CpuSetting> {
        CpuSetting::of(Reach::exclusive(cpus))
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<CpuSetting> {
        CpuSetting::of(Reach::shared(cpus))
    }

    /// `None` without any CPU.
    pub(super) fn of(reach: Reach) -> Option<CpuSetting> {
        let setting = CpuSetting { reach, mems: None, limit: None };
        (!reach.all().is_empty()).then_some(setting)
    }

    /// The same with memory on these NUMA nodes only. `None`, as no nodes at all, leaves memory as
    /// it is.
    pub fn with_mems(self, mems: Option<NodeSet>) -> CpuSetting {
        CpuSetting { mems: mems.filter(|mems| !mems.is_empty()), ..self }
    }

    /// The same with the CFS quota of this limit set. `None` leaves the quota as it is.
    pub fn with_limit(self, limit: Option<MilliCpu>) -> CpuSetting {
        CpuSetting { limit, ..self }
    }

    /// The same on other CPUs; `None` if there are none.
    pub(super) fn on(self, cpus: CpuSet) -> Option<CpuSetting> {
        self.reaching(self.reach.on(cpus))
    }

    /// The same with this reach; `None` without any CPU.
    pub(super) fn reaching(self, reach: Reach) -> Option<CpuSetting> {
        (!reach.all().is_empty()).then_some(CpuSetting { reach, ..self })
    }

    /// The limit of a container that shares CPUs and had its quota lifted; `None` leaves the quota
    /// as it is.
    pub fn limit(&self) -> Option<MilliCpu> {
        self.limit
    }

    /// The NUMA nodes for its memory, at least one; `None` leaves memory as it is.
    pub fn mems(&self) -> Option<NodeSet> {
        self.mems
    }

    /// At least one CPU.
    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The CPUs, at least one.
    pub fn cpus(&self) -> CpuSet {
        self.reach.all()
    }

    /// Those of the CPUs that no other container uses; as a rule none or all.
    pub fn exclusive_cpus(&self) -> CpuSet {
        self.reach.exclusive
    }

    /// Whether it alone uses some of the CPUs. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        self.reach.is_exclusive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub setting: CpuSetting,
}
