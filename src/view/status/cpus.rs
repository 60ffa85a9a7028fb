//! CPUs by use and by domain. In JSON, sets of CPUs are lists in the kernel's format.

use crate::view::badge::Badge;
use cpuset::CpuSet;
use ledger::{Phase, View};
use placement::quality::{LiveScore, Scorer, fragmentation};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use topology::Topology;

impl Serialize for Badge {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Badge {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Badge, D::Error> {
        let letters = String::deserialize(from)?;
        letters.parse().map_err(|()| D::Error::custom(format!("{letters:?} are no badge")))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Without those of other programs' partitions.
    pub online: CpuSet,
    /// Never exclusive.
    pub reserved: CpuSet,
    /// Exclusive to a container that uses them.
    pub exclusive: CpuSet,
    /// Could become exclusive now, to a container without a wish.
    pub free: CpuSet,
    /// What shared containers run on.
    pub shared: CpuSet,
    /// Those of the shared ones that belong to a container which has ended, until it is back or its
    /// pod ends.
    #[serde(default)]
    pub lent: CpuSet,
    /// In cpuset partitions of other programs: no container can run there.
    #[serde(default)]
    pub foreign: CpuSet,
    /// Isolated when the kernel was booted (`isolcpus=`), and not reserved: never shared.
    #[serde(default)]
    pub isolated: CpuSet,
    /// Those of them that could become exclusive now, to a container that may have isolated ones.
    #[serde(default)]
    pub isolated_free: CpuSet,
}

impl CpuStatus {
    pub fn of(view: &View, foreign: CpuSet) -> CpuStatus {
        CpuStatus {
            online: view.topology.online(),
            reserved: view.settings.placement.reserved,
            exclusive: view.exclusive - view.pool,
            free: view.free,
            shared: view.pool,
            lent: view.exclusive & view.pool,
            foreign,
            isolated: view.isolated,
            isolated_free: view.free_isolated,
        }
    }
}

/// The online CPUs of a NUMA node or an uncore cache, by use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainStatus {
    pub id: usize,
    pub cpus: CpuSet,
    pub exclusive: CpuSet,
    /// Could become exclusive now.
    pub free: CpuSet,
}

impl DomainStatus {
    /// The NUMA nodes that have CPUs.
    pub fn numa_nodes(view: &View) -> Vec<DomainStatus> {
        let nodes = view.topology.nodes().iter().filter(|node| !node.cpus.is_empty());
        nodes.map(|node| DomainStatus::of(view, node.id, node.cpus)).collect()
    }

    pub fn uncore_caches(view: &View) -> Vec<DomainStatus> {
        let caches = view.topology.uncores().iter();
        caches.map(|cache| DomainStatus::of(view, cache.id, cache.cpus)).collect()
    }

    fn of(view: &View, id: usize, cpus: CpuSet) -> DomainStatus {
        DomainStatus { id, cpus, exclusive: cpus & view.exclusive, free: cpus & view.free }
    }

    /// How scattered the free CPUs of some domains are, see `fragmentation`.
    pub fn fragmentation(view: &View, domains: &[DomainStatus]) -> f64 {
        let settings = &view.settings.placement;
        let assignable = view.topology.online() - settings.reserved;
        let assignable = settings.isolated.allowed(&view.topology, &assignable);
        let sizes: Vec<(usize, usize)> =
            domains.iter().map(|one| ((one.cpus & assignable).len(), one.free.len())).collect();
        fragmentation(&sizes)
    }
}

/// How the exclusive CPUs of what runs now lie on the machine.
pub(crate) fn live_score(view: &View) -> LiveScore {
    let alive = view.containers.iter().filter(|container| container.phase != Phase::Ended);
    let live = alive.filter_map(|container| container.exclusive);
    let mut score = LiveScore::default();
    Scorer::new(&view.topology).sample(&view.topology, live, &mut score);
    score
}

/// The NUMA nodes that have some of these CPUs.
pub(crate) fn nodes_of(topology: &Topology, cpus: &CpuSet) -> Vec<usize> {
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus));
    nodes.map(|node| node.id).collect()
}

/// The uncore caches that have some of these CPUs.
pub(crate) fn uncores_of(topology: &Topology, cpus: &CpuSet) -> Vec<usize> {
    let uncores = topology.uncores().iter().filter(|uncore| !uncore.cpus.is_disjoint(cpus));
    uncores.map(|uncore| uncore.id).collect()
}

pub(crate) fn are_whole_cores(topology: &Topology, cpus: &CpuSet) -> bool {
    let mut touched = topology.cores().iter().filter(|core| !core.cpus.is_disjoint(cpus));
    touched.all(|core| core.cpus.is_subset(cpus))
}
