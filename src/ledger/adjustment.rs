//! [`Adjustment`]: what the runtime sets for a container.

use super::model::{ContainerId, MilliCpu};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;

/// Where a container runs: its CPUs, its memory, its CFS quota. The set of CPUs is never empty: the
/// runtime would read that as "no change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment {
    cpus: CpuSet,
    /// Used together with others.
    shared: Part,
    mems: Option<NodeSet>,
    limit: Option<MilliCpu>,
}

/// Which of a container's CPUs. Nearly always it is all or none, and then no set is worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    None,
    All,
    /// At least one, and not all.
    Some(CpuSet),
}

impl Adjustment {
    /// CPUs that this container alone uses; its CFS quota is lifted.
    pub fn exclusive(cpus: CpuSet) -> Option<Adjustment> {
        Some(Adjustment { shared: Part::None, ..Adjustment::shared(cpus)? })
    }

    /// CPUs used together with others.
    pub fn shared(cpus: CpuSet) -> Option<Adjustment> {
        let shared = Adjustment { cpus, shared: Part::All, mems: None, limit: None };
        (!cpus.is_empty()).then_some(shared)
    }

    /// The same, and CPUs used together with others.
    pub(super) fn and_shared(self, cpus: CpuSet) -> Adjustment {
        let all = self.cpus | cpus;
        let shared = Part::of(&all, all - self.exclusive_cpus());
        Adjustment { cpus: all, shared, ..self }
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
        let shared = match self.shared {
            Part::Some(part) => Part::of(&cpus, part & cpus),
            shared => shared,
        };
        (!cpus.is_empty()).then_some(Adjustment { cpus, shared, ..self })
    }

    /// The same on other CPUs, of which these are exclusive; `None` if there are none.
    pub(super) fn divided(self, cpus: CpuSet, exclusive: CpuSet) -> Option<Adjustment> {
        let shared = Part::of(&cpus, cpus - exclusive);
        (!cpus.is_empty()).then_some(Adjustment { cpus, shared, ..self })
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

    /// Those of the CPUs that no other container uses; as a rule none or all.
    pub fn exclusive_cpus(&self) -> CpuSet {
        match self.shared {
            Part::None => self.cpus,
            Part::All => CpuSet::EMPTY,
            Part::Some(part) => self.cpus - part,
        }
    }

    /// Whether it alone uses some of the CPUs. The CFS quota is lifted then, as the kubelet does.
    pub fn is_exclusive(&self) -> bool {
        !matches!(self.shared, Part::All)
    }
}

impl Part {
    /// This part of these CPUs.
    pub(super) fn of(cpus: &CpuSet, part: CpuSet) -> Part {
        if part.is_empty() {
            Part::None
        } else if part == *cpus {
            Part::All
        } else {
            Part::Some(part)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub container: ContainerId,
    pub adjustment: Adjustment,
}
