//! [`SimulationReport`]: the result of simulations, for people and programs. The names are a promise to
//! scripts; docs/simulate.md is the reference.

use crate::view::badge::Badges;
use crate::view::picture::{Occupancy, Picture, Tenant, names};
use crate::view::status::alignment::LiveScore;
use cpuset::CpuSet;
use ledger::MoveOutcome;
use ledger::{ContainerView, Ledger, Phase, View};
use serde::Serialize;
use std::collections::BTreeMap;
use wording::printable;

/// Changes when a field is removed or changes its meaning, not when one is added.
pub(crate) const VERSION: u32 = 1;

/// The results of one workload, one for each configuration.
#[derive(Debug, Serialize)]
pub struct SimulationReport {
    pub version: u32,
    /// As on the command line.
    pub machine: String,
    /// Online.
    pub cpus: usize,
    pub uncore_caches: usize,
    /// With CPUs.
    pub numa_nodes: usize,
    /// The file.
    pub workload: String,
    pub runs: Vec<RunReport>,
}

/// The configuration of a simulation.
#[derive(Debug, Default, Serialize)]
pub struct Setup {
    /// The file.
    pub config: String,
    /// The settings in force, in a line.
    pub settings: String,
    /// The first lines of the applied entries of `nodes`, the most specific last.
    pub overrides: Vec<usize>,
}

#[derive(Debug, Default, Serialize)]
pub struct RunReport {
    #[serde(flatten)]
    pub setup: Setup,
    /// In seconds.
    pub end: f64,
    pub pods: Pods,
    /// Refused pods and containers, by reason; each counts once.
    pub refused: BTreeMap<&'static str, usize>,
    /// The same by whether enough CPUs were free.
    pub refused_by_free_cpus: RefusedByFreeCpus,
    /// Further refusals of containers that had been refused.
    pub refused_again: usize,
    /// Admitted containers without exclusive CPUs.
    pub shared: usize,
    pub exclusive: ExclusiveCounts,
    pub live: LiveScore,
    pub moves: Moves,
    /// Changes of existing containers.
    pub updates: usize,
    pub exclusive_cpus: Values,
    /// Fragmentation of free CPUs, 0 best, by boundary: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<&'static str, Values>,
    /// The containers at the end.
    pub placements: Vec<PlacementReport>,
}

#[derive(Debug, Default, Serialize)]
pub struct Pods {
    pub arrived: usize,
    /// The pods with all containers admitted at some time.
    pub complete: usize,
    /// The complete pods that had to wait.
    pub waited: usize,
    /// In seconds.
    pub mean_wait: f64,
    pub longest_wait: f64,
}

/// Refused pods and containers; each counts once, for its first refusal.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RefusedByFreeCpus {
    /// As many CPUs were free as requested, but not those that the configuration asks for.
    pub enough: usize,
    pub too_few: usize,
}

/// Moves of running containers to better CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moves {
    pub containers: u64,
    pub cpus: u64,
    /// Containers that got CPUs in a NUMA node where they had none.
    pub across_numa_nodes: u64,
    /// Containers that waited on other CPUs until their new ones were free.
    pub staged: u64,
}

impl Moves {
    pub(super) fn of(ledger: &Ledger) -> Moves {
        let totals = ledger.move_totals();
        Moves {
            containers: totals.all(MoveOutcome::Done),
            cpus: totals.cpus,
            across_numa_nodes: totals.across_numa_nodes,
            staged: totals.all(MoveOutcome::Staged),
        }
    }
}

/// The number of exclusive sets, and of those in the fewest possible domains for their size.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ExclusiveCounts {
    pub containers: usize,
    pub fewest_uncore_caches: usize,
    pub fewest_numa_nodes: usize,
    pub fewest_sockets: usize,
    pub whole_cores: usize,
}

/// A value over time.
#[derive(Debug, Default, Serialize)]
pub struct Values {
    pub mean: f64,
    pub most: f64,
    pub last: f64,
    /// At regular moments, from the beginning to the end.
    pub samples: Vec<f64>,
}

/// A container at the end.
#[derive(Debug, Serialize)]
pub struct PlacementReport {
    /// Its letters in the picture, if it has exclusive CPUs.
    pub badge: Option<String>,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub exclusive: bool,
    /// Its exclusive CPUs; without any, where it runs.
    pub cpus: String,
    pub numa_nodes: Vec<usize>,
    pub uncore_caches: Vec<usize>,
    pub whole_cores: bool,
}

/// The node in the present state of the ledger.
pub(crate) fn picture(ledger: &Ledger) -> Picture {
    let view = ledger.view();
    let badges = badges(&view);
    let tenants = view.containers.iter().filter_map(|container| {
        let cpus = kept(&view, container)?;
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
fn kept(view: &View, container: &ContainerView) -> Option<CpuSet> {
    let cpus = container.exclusive? - view.pool;
    if cpus.is_empty() { None } else { Some(cpus) }
}

pub(super) fn placements(ledger: &Ledger) -> Vec<PlacementReport> {
    let view = ledger.view();
    let badges = badges(&view);
    let mut placements = Vec::new();
    for container in &view.containers {
        if container.phase != Phase::Ended || kept(&view, container).is_some() {
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
    let cpus = kept(view, container).unwrap_or_default();
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
