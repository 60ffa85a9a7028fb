//! What follows from sets of CPUs on a machine: domains by use, placements, scores.

use cpuset::CpuSet;
use ledger::{ContainerView, CpuFigures, Phase};
use placement::quality::{LiveScore, Scorer, fragmentation};
use serde::Serialize;
use topology::Topology;

/// The online CPUs of a NUMA node or an uncore cache, by use.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainUse {
    pub id: usize,
    pub cpus: CpuSet,
    pub exclusive: CpuSet,
    /// Could become exclusive now.
    pub free: CpuSet,
}

/// The NUMA nodes that have CPUs.
pub fn numa_nodes(machine: &Topology, cpus: &CpuFigures) -> Vec<DomainUse> {
    let nodes = machine.nodes().iter().filter(|node| !node.cpus.is_empty());
    nodes.map(|node| DomainUse::of(cpus, node.id, node.cpus)).collect()
}

pub fn uncore_caches(machine: &Topology, cpus: &CpuFigures) -> Vec<DomainUse> {
    machine.uncores().iter().map(|cache| DomainUse::of(cpus, cache.id, cache.cpus)).collect()
}

impl DomainUse {
    fn of(of: &CpuFigures, id: usize, cpus: CpuSet) -> DomainUse {
        DomainUse { id, cpus, exclusive: cpus & of.exclusive, free: cpus & of.free }
    }
}

/// How scattered the free CPUs of domains of one kind are, from 0 to 1.
pub fn scattered(cpus: &CpuFigures, domains: &[DomainUse]) -> f64 {
    let size = |one: &DomainUse| ((one.cpus & cpus.assignable).len(), one.free.len());
    fragmentation(&domains.iter().map(size).collect::<Vec<_>>())
}

/// Where exclusive CPUs are; empty without any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub numa_nodes: Vec<usize>,
    pub uncore_caches: Vec<usize>,
    /// Whether they are whole cores.
    pub whole_cores: bool,
}

impl Spread {
    pub fn of(topology: &Topology, cpus: &CpuSet) -> Spread {
        Spread {
            numa_nodes: nodes_of(topology, cpus),
            uncore_caches: uncores_of(topology, cpus),
            whole_cores: !cpus.is_empty() && are_whole_cores(topology, cpus),
        }
    }

    /// `uncore cache 3`, `NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial cores`; empty without
    /// CPUs. One node needs no mention: its caches say which it is. `idle` CPUs stay idle for these.
    pub fn words(&self, idle: &CpuSet) -> String {
        let Spread { numa_nodes, uncore_caches, whole_cores } = self;
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
pub(crate) fn live_score<'a>(
    machine: &Topology,
    containers: impl IntoIterator<Item = &'a ContainerView>,
) -> LiveScore {
    let alive = containers.into_iter().filter(|container| container.phase != Phase::Ended);
    let live = alive.filter_map(|container| container.exclusive);
    let mut score = LiveScore::default();
    Scorer::new(machine).sample(machine, live, &mut score);
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
            Spread { numa_nodes, uncore_caches, whole_cores }
        };
        let none = CpuSet::EMPTY;
        assert_eq!(placement(&[0], &[3], true).words(&none), "uncore cache 3");
        let isolated = placement(&[0], &[3], false);
        assert_eq!(isolated.words(&CpuSet::of(9).unwrap()), "uncore cache 3, idle siblings");
        assert_eq!(
            placement(&[0, 1], &[2, 3, 4], false).words(&none),
            "NUMA nodes 0 and 1, uncore caches 2, 3 and 4, partial cores"
        );
        assert_eq!(Spread::default().words(&none), "");
    }
}
