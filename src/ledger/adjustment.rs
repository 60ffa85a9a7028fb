//! [`Adjustment`]: what the runtime sets for a container.

use super::model::{ContainerId, MilliCpu};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;

/// Where a container runs: its CPUs, its memory, its CFS quota. The set of CPUs is never empty: the
/// runtime would read that as "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment {
    cpus: CpuSet,
    /// Those of them that are used together with others: all, some or none. One set more would make
    /// each decision a tenth slower.
    beside: CpuSet,
    /// Whether these others are of its pod only.
    in_pod: bool,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

impl Adjustment {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<Adjustment> {
        Some(Adjustment { beside: CpuSet::EMPTY, ..Adjustment::shared(cpus)? })
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<Adjustment> {
        let shared = Adjustment { cpus, beside: cpus, in_pod: false, mems: None, limit: None };
        (!cpus.is_empty()).then_some(shared)
    }

    /// CPUs used together with other containers of its pod only.
    pub(super) fn in_pod(cpus: CpuSet) -> Option<Adjustment> {
        Some(Adjustment { in_pod: true, ..Adjustment::shared(cpus)? })
    }

    /// The same, and CPUs used together with other containers of its pod only.
    pub(super) fn and_in_pod(self, cpus: CpuSet) -> Adjustment {
        Adjustment { in_pod: true, ..self.and_shared(cpus) }
    }

    /// The same, and CPUs used together with others.
    pub(super) fn and_shared(self, cpus: CpuSet) -> Adjustment {
        let beside = self.beside | (cpus - self.exclusive_cpus());
        Adjustment { cpus: self.cpus | cpus, beside, ..self }
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
        let beside = if self.beside == self.cpus { cpus } else { self.beside & cpus };
        (!cpus.is_empty()).then_some(Adjustment { cpus, beside, ..self })
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
        if self.in_pod { self.cpus } else { self.exclusive_cpus() }
    }

    pub fn exclusive_cpus(&self) -> CpuSet {
        self.cpus - self.beside
    }

    /// Whether it alone uses some of the CPUs. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        self.beside != self.cpus
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub adjustment: Adjustment,
}
