//! [`Report`]: the result of simulations, for people and programs. The names are a promise to
//! scripts; docs/simulate.md is the reference.

use super::record::{Course, Recorder};
use super::workload::{Time, Workload};
use crate::ledger::{ContainerView, Ledger, Phase, View};
use crate::topology::Topology;
use crate::view::badge::Badges;
use crate::view::picture::{Occupancy, Picture, Tenant, names};
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the form. It changes when something is taken away or means something else, not
/// when something is added.
pub(crate) const VERSION: u32 = 1;

/// The results of one workload, one for each configuration.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of this form.
    pub version: u32,
    /// The name of the machine on the command line.
    pub machine: String,
    /// Its online CPUs.
    pub cpus: usize,
    /// Its uncore caches.
    pub uncore_caches: usize,
    /// Its NUMA nodes with CPUs.
    pub numa_nodes: usize,
    /// The file of the workload.
    pub workload: String,
    /// The simulations.
    pub runs: Vec<RunReport>,
}

/// The result of one simulation.
#[derive(Debug, Serialize)]
pub struct RunReport {
    /// The file of the configuration.
    pub config: String,
    /// The settings in force, in a line.
    pub settings: String,
    /// The first lines of the applied entries of `nodes`, the most specific last.
    pub overrides: Vec<usize>,
    /// The end, in seconds.
    pub end: f64,
    /// The pods that arrived.
    pub pods: Pods,
    /// Refused pods and containers, by reason; each counts once.
    pub refused: BTreeMap<&'static str, usize>,
    /// Further refusals of containers that had been refused.
    pub refused_again: usize,
    /// Admitted containers without exclusive CPUs.
    pub shared: usize,
    /// Containers with exclusive CPUs, and their alignment.
    pub exclusive: Exclusive,
    /// Changes of existing containers.
    pub updates: usize,
    /// The number of exclusive CPUs over time, and at the end.
    pub exclusive_cpus: Values,
    /// Fragmentation of free CPUs, 0 best, by boundary: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<&'static str, Values>,
    /// The containers at the end.
    pub placements: Vec<Placement>,
}

/// Numbers of pods.
#[derive(Debug, Serialize)]
pub struct Pods {
    pub arrived: usize,
    /// The pods with all containers admitted at some time.
    pub complete: usize,
    /// The complete pods that had to wait.
    pub waited: usize,
    /// Their mean wait, in seconds.
    pub mean_wait: f64,
    /// The longest wait, in seconds.
    pub longest_wait: f64,
}

/// Numbers of exclusive sets: all, and those in as few domains as sets of their size can be in.
#[derive(Debug, Serialize)]
pub struct Exclusive {
    pub containers: usize,

    pub fewest_uncore_caches: usize,
    pub fewest_numa_nodes: usize,
    pub fewest_sockets: usize,
    pub whole_cores: usize,
}

/// A value over time.
#[derive(Debug, Serialize)]
pub struct Values {
    pub mean: f64,
    pub most: f64,
    pub last: f64,
    /// At regular moments, from the beginning to the end.
    pub samples: Vec<f64>,
}

/// A container at the end.
#[derive(Debug, Serialize)]
pub struct Placement {
    /// Its letters in the picture, if it has exclusive CPUs.
    pub badge: Option<String>,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub exclusive: bool,
    /// Where it runs.
    pub cpus: String,
    pub numa_nodes: Vec<usize>,
    pub uncore_caches: Vec<usize>,
    pub whole_cores: bool,
}

impl RunReport {
    /// The result from the figures and from the ledger at the end.
    pub fn of(
        config: &str,
        settings: String,
        overrides: Vec<usize>,
        workload: &Workload,
        end: Time,
        ledger: &Ledger,
        record: &Recorder,
    ) -> RunReport {
        let seconds = |time: Time| time as f64 / 1000.0;
        let waited = record.waited;
        let values = |course: &Course, last: f64| Values {
            mean: course.mean(),
            most: course.most.max(last),
            last,
            samples: course.samples.clone(),
        };
        let (by_cache, by_node) = record.scattered(ledger);
        let alignment = record.alignment;
        RunReport {
            config: config.to_owned(),
            settings,
            overrides,
            end: seconds(end),
            pods: Pods {
                arrived: workload.pods.iter().filter(|pod| pod.arrive <= end).count(),
                complete: record.complete,
                waited: waited.pods,
                mean_wait: seconds(waited.sum) / waited.pods.max(1) as f64,
                longest_wait: seconds(waited.most),
            },
            refused: record.refused.clone(),
            refused_again: record.refused_again,
            shared: record.shared,
            exclusive: Exclusive {
                containers: alignment.containers,
                fewest_uncore_caches: alignment.uncore_caches,
                fewest_numa_nodes: alignment.numa_nodes,
                fewest_sockets: alignment.sockets,
                whole_cores: alignment.whole_cores,
            },
            updates: record.updates,
            exclusive_cpus: values(&record.exclusive, ledger.exclusive().len() as f64),
            fragmentation: BTreeMap::from([
                ("numa_node", values(&record.by_node, by_node)),
                ("uncore_cache", values(&record.by_cache, by_cache)),
            ]),
            placements: placements(ledger),
        }
    }
}

/// The node in its present state.
pub(crate) fn picture(ledger: &Ledger) -> Picture {
    let view = ledger.view();
    let (topology, badges) = (&view.topology, badges(&view));
    let tenants = view.containers.iter().filter_map(|seen| {
        let (cpus, idle, badge) = (seen.exclusive?, seen.idle, badges.of(seen)?);
        let placement = placement(topology, seen, None);
        let name = format!("{}/{}/{}", placement.namespace, placement.pod, placement.container);
        let remark = names::alignment(
            &placement.numa_nodes,
            &placement.uncore_caches,
            placement.whole_cores,
        );
        Some(Tenant { badge, name: names::printable(&name), cpus, idle, remark })
    });
    let occupancy = Occupancy {
        tenants: tenants.collect(),
        reserved: ledger.settings().placement.reserved,
        shared: ledger.pool(),
    };
    Picture::of(topology, occupancy)
}

fn badges(view: &View) -> Badges {
    let mut badges = Badges::default();
    badges.follow(view);
    badges
}

fn placements(ledger: &Ledger) -> Vec<Placement> {
    let view = ledger.view();
    let (topology, badges) = (&view.topology, badges(&view));
    let alive = view
        .containers
        .iter()
        .filter(|seen| seen.phase != Phase::Ended || seen.exclusive.is_some());
    let mut placements: Vec<Placement> = alive
        .map(|seen| placement(topology, seen, badges.of(seen).map(|badge| badge.to_string())))
        .collect();
    placements
        .sort_by_cached_key(|one| (one.namespace.clone(), one.pod.clone(), one.container.clone()));
    placements
}

fn placement(topology: &Topology, seen: &ContainerView, badge: Option<String>) -> Placement {
    let cpus = seen.exclusive.unwrap_or_default();
    let lie = topology.tally(&cpus);
    let numbers = |lie: &[usize], ids: Vec<usize>| -> Vec<usize> {
        lie.iter().zip(ids).filter(|(count, _)| **count > 0).map(|(_, id)| id).collect()
    };
    let mut cores = lie.cores.iter().zip(&topology.sizes().cores);
    Placement {
        badge,
        namespace: seen.pod.namespace.clone(),
        pod: seen.pod.name.clone(),
        container: seen.name.to_owned(),
        exclusive: seen.exclusive.is_some(),
        cpus: seen.runs_on.to_string(),
        numa_nodes: numbers(&lie.nodes, topology.nodes().iter().map(|one| one.id).collect()),
        uncore_caches: numbers(&lie.uncores, topology.uncores().iter().map(|one| one.id).collect()),
        whole_cores: !cpus.is_empty() && cores.all(|(lie, all)| *lie == 0 || lie == all),
    }
}
