//! [`Request`]: everything that an engine's answer depends on beside the machine.

use super::devices::DeviceNodes;
use super::hint::Hint;
use super::rejection::Rejection;
use super::settings::Settings;
use super::wishes::Wishes;
use cpuset::CpuSet;
use topology::Topology;

/// A request for exclusive CPUs. The ledger builds it once before the decision, and keeps it to
/// explain the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number of CPUs that the container asks for.
    pub cpus: usize,
    /// CPUs that are exclusive to no other container, those of the container itself included.
    /// Reserved and offline ones may be among them; an engine never gives them out. Which of the
    /// isolated ones it may give out is in the settings.
    pub free: CpuSet,
    /// CPUs of ended containers of the pod.
    pub reuse: Reuse,
    /// How many CPUs of `free` that this container may get are promised to other pods.
    pub promised: usize,
    /// In pod scope (KEP-693), what the NUMA affinity of the pod follows from; `None` in container
    /// scope.
    pub pod: Option<PodDemand>,
    pub wishes: Wishes,
    pub devices: DeviceNodes,
    /// The node's settings, with the wishes applied ([`Wishes::settings`]).
    pub settings: Settings,
}

/// How a container uses the CPUs of ended containers of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Beside the free ones, as they fit best. Mostly the CPUs of init containers.
    Beside(CpuSet),
    /// Before the free ones, as otherwise the pod would hold more than its budget.
    First(CpuSet),
}

impl Reuse {
    pub fn cpus(&self) -> CpuSet {
        match self {
            Reuse::Beside(cpus) | Reuse::First(cpus) => *cpus,
        }
    }
}

/// What the NUMA affinity of a pod follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDemand {
    /// The number of CPUs that the affinity has to hold.
    pub cpus: usize,
    /// CPUs that containers of the pod hold. Their NUMA nodes have to be in it.
    pub held: CpuSet,
    /// The affinity, if the engine has chosen it for as many CPUs with an earlier container of the
    /// pod.
    pub chosen: Option<Hint>,
}

/// What a running container holds when its request changes, or what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// Nothing: it shared CPUs so far.
    Shared,
    /// Exclusive CPUs, more or fewer than it asks for from now on.
    Exclusive(CpuSet),
    /// The rest of its exclusive CPUs, maybe none: the others went offline. It did not ask for a
    /// change.
    Reduced {
        left: CpuSet,
        /// CPUs of cores of which a part went offline.
        broken: CpuSet,
    },
}

impl Running {
    /// The exclusive CPUs that it holds.
    pub fn held(&self) -> CpuSet {
        match self {
            Running::Shared => CpuSet::EMPTY,
            Running::Exclusive(held) => *held,
            Running::Reduced { left, .. } => *left,
        }
    }
}

impl Request {
    /// The refusal of this request, which the whole caches that are free cannot hold. `usable` is
    /// what it could choose from otherwise; it holds `held`.
    pub(super) fn too_few_caches(
        &self,
        topology: &Topology,
        usable: &CpuSet,
        held: &CpuSet,
    ) -> Rejection {
        let reserved = &self.settings.reserved;
        let offered = self.wishes.offered(topology, usable, held) | *held;
        let caches = || topology.uncores().iter().map(|cache| cache.cpus);
        let free = caches().filter(|cache| !cache.is_disjoint(&offered)).count();
        let blocked = caches().filter(|cache| !cache.is_disjoint(reserved)).count();
        Rejection::not_enough_whole_caches(self.cpus, free, offered.len(), blocked)
    }

    /// A request for so many CPUs on the machine without other containers.
    pub(super) fn alone(&self, machine: &Topology, cpus: usize) -> Request {
        let pod = self.pod.map(|pod| PodDemand {
            cpus: pod.cpus.saturating_sub(self.cpus) + cpus,
            held: CpuSet::EMPTY,
            chosen: None,
        });
        let reuse = Reuse::Beside(CpuSet::EMPTY);
        Request { cpus, free: machine.online(), reuse, promised: 0, pod, ..*self }
    }

    /// These CPUs, with those that stay idle for the container ([`Margin`](super::wishes::Margin)).
    pub fn footprint(&self, machine: &Topology, cpus: &CpuSet) -> CpuSet {
        self.wishes.footprint(machine, &self.settings.reserved, cpus)
    }
}
