//! [`SimulationReport`]: the result of simulations, for people and programs. The names are a promise to
//! scripts; docs/simulate.md is the reference.

use crate::view::badge::Badges;
use crate::view::picture::{Occupancy, Picture, Tenant, names};
use cpuset::CpuSet;
use ledger::{ContainerView, Ledger, Phase, View};
use serde::Serialize;
use simulate::Figures;
use wording::printable;

/// Changes when a field is removed or changes its meaning, not when one is added.
pub(super) const VERSION: u32 = 1;

/// The results of one workload, one for each configuration.
#[derive(Debug, Serialize)]
pub(super) struct SimulationReport {
    pub(super) version: u32,
    /// As on the command line.
    pub(super) machine: String,
    /// Online.
    pub(super) cpus: usize,
    pub(super) uncore_caches: usize,
    /// With CPUs.
    pub(super) numa_nodes: usize,
    /// The file.
    pub(super) workload: String,
    pub(super) runs: Vec<RunReport>,
}

/// The configuration of a simulation.
#[derive(Debug, Default, Serialize)]
pub(super) struct Setup {
    /// The file.
    pub(super) config: String,
    /// The settings in force, in a line.
    pub(super) settings: String,
    /// The first lines of the applied entries of `nodes`, the most specific last.
    pub(super) overrides: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    #[serde(flatten)]
    pub(super) setup: Setup,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// The containers at the end.
    pub(super) placements: Vec<PlacementReport>,
}

/// A container at the end.
#[derive(Debug, Serialize)]
pub(super) struct PlacementReport {
    /// Its letters in the picture, if it has exclusive CPUs.
    pub(super) badge: Option<String>,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) exclusive: bool,
    /// Its exclusive CPUs; without any, where it runs.
    pub(super) cpus: String,
    pub(super) numa_nodes: Vec<usize>,
    pub(super) uncore_caches: Vec<usize>,
    pub(super) whole_cores: bool,
}

/// The node in the present state of the ledger.
pub(super) fn picture(ledger: &Ledger) -> Picture {
    let view = ledger.view();
    let badges = badges(&view);
    let tenants = view.containers.iter().filter_map(|container| {
        let cpus = exclusive_now(&view, container)?;
        let badge = badges.of(container)?;
        let placement = placement(&view, container, None);
        let name = format!("{}/{}/{}", placement.namespace, placement.pod, placement.container);
        let remark = names::alignment(
            &placement.numa_nodes,
            &placement.uncore_caches,
            placement.whole_cores,
        );
        Some(Tenant { badge, name: printable(&name), cpus, idle: container.idle, remark })
    });
    let occupancy = Occupancy {
        tenants: tenants.collect(),
        reserved: ledger.settings().placement.reserved,
        shared: ledger.pool(),
        isolated: view.isolated,
    };
    Picture::of(&view.topology, occupancy)
}

fn badges(view: &View) -> Badges {
    let mut badges = Badges::default();
    badges.follow(view);
    badges
}

/// The exclusive CPUs of a container, without those that it has lent to the shared pool; `None` if
/// there are none.
fn exclusive_now(view: &View, container: &ContainerView) -> Option<CpuSet> {
    let cpus = container.exclusive? - view.pool;
    if cpus.is_empty() { None } else { Some(cpus) }
}

pub(super) fn placements(ledger: &Ledger) -> Vec<PlacementReport> {
    let view = ledger.view();
    let badges = badges(&view);
    let mut placements = Vec::new();
    for container in &view.containers {
        if container.phase != Phase::Ended || exclusive_now(&view, container).is_some() {
            let badge = badges.of(container).map(|badge| badge.to_string());
            placements.push(placement(&view, container, badge));
        }
    }
    placements
        .sort_by_cached_key(|one| (one.namespace.clone(), one.pod.clone(), one.container.clone()));
    placements
}

fn placement(view: &View, container: &ContainerView, badge: Option<String>) -> PlacementReport {
    let topology = &view.topology;
    let cpus = exclusive_now(view, container).unwrap_or_default();
    let shown = if cpus.is_empty() { container.runs_on } else { cpus };
    let used = topology.tally(&cpus);
    let numbers = |used: &[usize], ids: Vec<usize>| -> Vec<usize> {
        used.iter().zip(ids).filter(|(count, _)| **count > 0).map(|(_, id)| id).collect()
    };
    PlacementReport {
        badge,
        namespace: container.pod.namespace.clone(),
        pod: container.pod.name.clone(),
        container: container.name.to_owned(),
        exclusive: !cpus.is_empty(),
        cpus: shown.to_string(),
        numa_nodes: numbers(&used.nodes, topology.nodes().iter().map(|one| one.id).collect()),
        uncore_caches: numbers(
            &used.uncores,
            topology.uncores().iter().map(|one| one.id).collect(),
        ),
        whole_cores: !cpus.is_empty() && used.is_whole_cores(topology.sizes()),
    }
}
