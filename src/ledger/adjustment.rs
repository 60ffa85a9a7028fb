//! [`Adjustment`]: what the runtime sets for a container.

use super::model::{ContainerId, MilliCpu};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;

/// Where a container runs: its CPUs, its memory, its CFS quota. The set of CPUs is never empty: the
/// runtime would read that as "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment {
    cpus: CpuSet,
    exclusive: bool,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl Adjustment {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<Adjustment> {
        (!cpus.is_empty()).then_some(Adjustment { cpus, exclusive: true, mems: None, limit: None })
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<Adjustment> {
        (!cpus.is_empty()).then_some(Adjustment { cpus, exclusive: false, mems: None, limit: None })
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
        (!cpus.is_empty()).then_some(Adjustment { cpus, ..self })
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

    /// Whether this container alone uses them. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub adjustment: Adjustment,
}
