//! [`Adjustment`]: what the runtime sets for a container.

use super::model::{ContainerId, MilliCpu};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;

/// Where a container runs: its CPUs, its memory, its CFS quota. The set of CPUs is never empty: the
/// runtime would read that as "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment {
    cpus: CpuSet,
    /// Subset of `cpus`.
    own: CpuSet,
    /// Subset of `own`.
    exclusive: CpuSet,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl Adjustment {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<Adjustment> {
        Some(Adjustment { exclusive: cpus, ..Adjustment::in_pod(cpus)? })
    }

    /// CPUs used together with other containers of its pod only.
    pub(super) fn in_pod(cpus: CpuSet) -> Option<Adjustment> {
        Some(Adjustment { own: cpus, ..Adjustment::shared(cpus)? })
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<Adjustment> {
        let (own, exclusive) = (CpuSet::EMPTY, CpuSet::EMPTY);
        let shared = Adjustment { cpus, own, exclusive, mems: None, limit: None };
        (!cpus.is_empty()).then_some(shared)
    }

    /// The same, and CPUs used together with other containers of its pod only.
    pub(super) fn and_in_pod(self, cpus: CpuSet) -> Adjustment {
        Adjustment { own: self.own | cpus, ..self.and_shared(cpus) }
    }

    /// The same, and CPUs used together with others.
    pub(super) fn and_shared(self, cpus: CpuSet) -> Adjustment {
        Adjustment { cpus: self.cpus | cpus, ..self }
    }

    /// The same with memory on these NUMA nodes only. `None`, as no nodes at all, leaves memory as
    /// it is.
    pub fn with_mems(self, mems: Option<NodeSet>) -> Adjustment {
        Adjustment { mems: mems.filter(|mems| !mems.is_empty()), ..self }
    }

    /// The same with the CFS quota of this limit set. `None` leaves the quota as it is.
    pub fn with_limit(self, limit: Option<MilliCpu>) -> Adjustment {
        Adjustment { limit, ..self }
    }

    /// The same on other CPUs; `None` if there are none.
    pub(super) fn on(self, cpus: CpuSet) -> Option<Adjustment> {
        let part = |of: CpuSet| if of == self.cpus { cpus } else { of & cpus };
        let (own, exclusive) = (part(self.own), part(self.exclusive));
        (!cpus.is_empty()).then_some(Adjustment { cpus, own, exclusive, ..self })
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

    /// The CPUs, at least one.
    pub fn cpus(&self) -> CpuSet {
        self.cpus
    }

    /// Those of the CPUs that no other pod's containers use; for a container with exclusive CPUs as a
    /// rule just these, and these are all.
    pub fn own(&self) -> CpuSet {
        self.own
    }

    pub fn exclusive_cpus(&self) -> CpuSet {
        self.exclusive
    }

    /// Whether it alone uses some of the CPUs. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub adjustment: Adjustment,
}
