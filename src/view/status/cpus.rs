//! CPUs by use and by domain. In JSON, sets of CPUs are lists in the kernel's format.

use crate::view::badge::Badge;
use cpuset::CpuSet;
use ledger::{Phase, View};
use placement::OddSizes;
use placement::cores::CoreSizes;
use placement::quality::{LiveScore, Scorer, fragmentation};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
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
    /// Without CPUs of other programs' partitions.
    pub online: CpuSet,
    /// Never exclusive.
    pub reserved: CpuSet,
    /// Exclusive to a container that uses them.
    pub exclusive: CpuSet,
    /// Could become exclusive now, to a container without a pod option.
    pub free: CpuSet,
    /// CPUs of containers without exclusive ones.
    pub shared: CpuSet,
    /// Of `shared`, those that belong to a container which has ended, until it is back or its pod
    /// ends.
    pub lent: CpuSet,
    /// In cpuset partitions of other programs: no container can run there.
    pub foreign: CpuSet,
    /// Isolated when the kernel was booted (`isolcpus=`), and not reserved: never shared.
    pub isolated: CpuSet,
    /// Of `isolated`, those that could become exclusive now to a container that may have isolated
    /// CPUs.
    pub isolated_free: CpuSet,
    /// How many cores have a number of online CPUs, where cores differ.
    pub core_sizes: BTreeMap<usize, usize>,
    /// Numbers of CPUs that no container gets here, not even without others; a list like `1,3-7`.
    pub never_fit: String,
}

impl CpuStatus {
    pub fn of(view: &View, foreign: CpuSet) -> CpuStatus {
        let sizes = OddSizes::of(&view.topology, &view.settings.placement);
        CpuStatus {
            never_fit: sizes.numbers(),
            core_sizes: sizes.cores.iter().flat_map(CoreSizes::counts).collect(),
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

    /// How scattered the free CPUs of domains of one kind are, from 0 to 1.
    pub fn fragmentation(view: &View, domains: &[DomainStatus]) -> f64 {
        let settings = &view.settings.placement;
        let assignable = view.topology.online() - settings.reserved;
        let assignable = settings.isolated.allowed(&view.topology, &assignable);
        let sizes: Vec<(usize, usize)> =
            domains.iter().map(|one| ((one.cpus & assignable).len(), one.free.len())).collect();
        fragmentation(&sizes)
    }
}

/// Where exclusive CPUs are; empty without any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementStatus {
    pub numa_nodes: Vec<usize>,
    pub uncore_caches: Vec<usize>,
    /// Whether they are whole cores.
    pub whole_cores: bool,
}

impl PlacementStatus {
    pub fn of(topology: &Topology, cpus: &CpuSet) -> PlacementStatus {
        PlacementStatus {
            numa_nodes: nodes_of(topology, cpus),
            uncore_caches: uncores_of(topology, cpus),
            whole_cores: !cpus.is_empty() && are_whole_cores(topology, cpus),
        }
    }

    /// `uncore cache 3`, `NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial cores`; empty without
    /// CPUs. One node needs no mention: its caches say which it is. `idle` CPUs stay idle for these.
    pub fn words(&self, idle: &CpuSet) -> String {
        let PlacementStatus { numa_nodes, uncore_caches, whole_cores } = self;
        let mut parts = Vec::new();
        if numa_nodes.len() > 1 {
            parts.push(format!("NUMA nodes {}", listed(numa_nodes)));
        }
        match uncore_caches.as_slice() {
            [] => {}
            [one] => parts.push(format!("uncore cache {one}")),
            several => parts.push(format!("uncore caches {}", listed(several))),
        }
        if !uncore_caches.is_empty() && !whole_cores {
            let rest = if idle.is_empty() { "partial cores" } else { "idle siblings" };
            parts.push(rest.to_owned());
        }
        parts.join(", ")
    }
}

/// Numbers in a sentence: `2, 3 and 4`.
fn listed(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// The placement quality of the exclusive CPUs of all containers that have not ended.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_names_caches_and_only_several_nodes() {
        let placement = |numa_nodes: &[usize], uncore_caches: &[usize], whole_cores| {
            let (numa_nodes, uncore_caches) = (numa_nodes.to_vec(), uncore_caches.to_vec());
            PlacementStatus { numa_nodes, uncore_caches, whole_cores }
        };
        let none = CpuSet::EMPTY;
        assert_eq!(placement(&[0], &[3], true).words(&none), "uncore cache 3");
        let isolated = placement(&[0], &[3], false);
        assert_eq!(isolated.words(&CpuSet::of(9).unwrap()), "uncore cache 3, idle siblings");
        assert_eq!(
            placement(&[0, 1], &[2, 3, 4], false).words(&none),
            "NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial cores"
        );
        assert_eq!(PlacementStatus::default().words(&none), "");
    }
}
