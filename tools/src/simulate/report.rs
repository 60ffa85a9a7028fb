//! [`SimulationReport`]: the result of simulations, for people and programs. The names are a promise to
//! scripts; docs/simulate.md is the reference.

use ledger::{Ledger, Phase};
use placement::memory_manager::NodeMemoryClaim;
use serde::Serialize;
use simulate::Figures;
use status::badge::Badges;
use status::domains::Spread;
use status::explanation::why_shared;
use status::memory::MemoryStatus;
use status::picture::{Occupancy, Picture, Tenant};
use status::snapshot::{by_name, full_name};

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
    /// At the end; absent if memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<MemoryStatus>,
    /// The containers at the end.
    pub(super) placements: Vec<PlacementReport>,
    /// The first refusal of each pod and container, in their order.
    pub(super) refusals: Vec<RefusalReport>,
}

/// A container that was refused, or a pod for which the node has no room.
#[derive(Debug, Serialize)]
pub(super) struct RefusalReport {
    /// In seconds.
    pub(super) time: f64,
    pub(super) namespace: String,
    pub(super) pod: String,
    /// Empty for a pod.
    pub(super) container: String,
    pub(super) why: String,
}

impl RefusalReport {
    pub(super) fn full_name(&self) -> String {
        full_name(&self.namespace, &self.pod, &self.container)
    }
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
    /// Why it has no exclusive CPUs; `null` if it has some.
    pub(super) why_shared: Option<String>,
    /// Its exclusive CPUs; without any, where it runs.
    pub(super) cpus: String,
    #[serde(flatten)]
    pub(super) placement: Spread,
    /// Absent if its memory is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<NodeMemoryClaim>,
}

impl PlacementReport {
    fn name_parts(&self) -> [&str; 3] {
        [&self.namespace, &self.pod, &self.container]
    }

    pub(super) fn full_name(&self) -> String {
        full_name(&self.namespace, &self.pod, &self.container)
    }
}

/// The node in the present state of the ledger, and its containers by name.
pub(super) fn node(ledger: &Ledger) -> (Picture, Vec<PlacementReport>) {
    let view = ledger.view();
    let mut badges = Badges::default();
    badges.follow(&view);
    let mut tenants = Vec::new();
    let mut placements = Vec::new();
    for container in &view.containers {
        // CPUs of an ended container are lent to the shared pool.
        let cpus = container.exclusive.unwrap_or_default() - view.figures.cpus.shared;
        let exclusive = !cpus.is_empty();
        if container.phase == Phase::Ended && !exclusive {
            continue;
        }
        let badge = badges.of(container);
        let report = PlacementReport {
            badge: badge.map(|badge| badge.to_string()),
            namespace: container.pod.namespace.clone(),
            pod: container.pod.name.clone(),
            container: container.name.clone(),
            exclusive,
            why_shared: if exclusive { None } else { Some(why_shared(&view, container)) },
            cpus: if exclusive { cpus } else { *container.runs_on }.to_string(),
            placement: Spread::of(&view.topology, &cpus),
            memory: view.memory_of(container).cloned(),
        };
        tenants.extend(badge.map(|badge| Tenant {
            badge,
            is_pod: false,
            name: report.full_name(),
            cpus,
            idle: *container.idle,
            placement: report.placement.words(&container.idle),
        }));
        placements.push(report);
    }
    placements.sort_by(|a, b| by_name(a.name_parts(), b.name_parts()));
    let occupancy = Occupancy {
        tenants,
        reserved: ledger.settings().placement.reserved,
        shared: ledger.pool(),
        isolated: view.figures.cpus.isolated,
        ..Occupancy::default()
    };
    (Picture::of(&view.topology, occupancy), placements)
}
