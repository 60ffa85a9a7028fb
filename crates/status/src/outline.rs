//! [`Outline`]: what a reader without rights may see of a node. It has no text that a pod, the runtime or another program
//! chose.

use super::badge::Badge;
use super::domains::{Spread, scattered, uncore_caches};
use super::picture::Usage;
use super::snapshot::{Container, Node, Snapshot};
use cpuset::CpuSet;
use ledger::{CpuFigures, Mechanism, Phase, Stance};
use noise::Verdict;
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Topology;
use wording::Moment;

#[derive(Debug, Clone)]
pub struct Outline {
    /// From the plugin's own command line.
    pub node_name: Option<String>,
    pub at: Moment,
    pub ready: bool,
    pub connected: bool,
    pub plugin_version: &'static str,
    /// `None` without a configuration.
    pub node: Option<NodeOutline>,
}

#[derive(Debug, Clone)]
pub struct NodeOutline {
    pub machine: Arc<Topology>,
    pub stance: Stance,
    pub mechanism: Mechanism,
    pub cpus: CpuFigures,
    /// CPUs of other programs' cpuset partitions.
    pub foreign: CpuSet,
    /// How scattered free CPUs are over uncore caches, from 0 to 1.
    pub scattered: f64,
    /// How many exclusive CPUs are noisy; `None` if that is not known: none is, and some were not observed.
    pub noisy: Option<usize>,
    /// CPUs of containers that the reader has left out.
    pub elsewhere: CpuSet,
    /// Whether the configuration that is there was rejected, and the last good one is in force.
    pub is_rejected: bool,
    /// When the settings in force were read.
    pub settings_since: Moment,
    /// The own pools of pods.
    pub own_pools: BTreeMap<Badge, CpuSet>,
    /// In the order of lists below a picture.
    pub containers: Vec<ContainerOutline>,
}

#[derive(Debug, Clone, Copy)]
pub struct ContainerOutline {
    pub usage: Usage,
    /// The letters of its exclusive CPUs, or of the own pool of its pod.
    pub badge: Option<Badge>,
    /// Its exclusive CPUs; `None` if it has none, or only the own pool of its pod.
    pub exclusive: Option<CpuSet>,
    pub runs_on: CpuSet,
    pub idle: CpuSet,
    pub phase: Phase,
    pub mechanism: Mechanism,
    /// Since when it has its CPUs, or when it was created.
    pub since: Option<Moment>,
}

impl Outline {
    pub fn of(snapshot: &Snapshot) -> Outline {
        Outline {
            node_name: snapshot.node_name.clone(),
            at: snapshot.at,
            ready: snapshot.health.is_ready(),
            connected: snapshot.runtime.connected,
            plugin_version: env!("CARGO_PKG_VERSION"),
            node: snapshot.node.as_ref().map(NodeOutline::of),
        }
    }
}

impl NodeOutline {
    pub fn of(node: &Node) -> NodeOutline {
        let cpus = node.figures.cpus;
        NodeOutline {
            machine: node.machine.shared(),
            stance: node.figures.stance,
            mechanism: node.figures.mechanism,
            cpus,
            foreign: node.parts.exclusivity.foreign(),
            scattered: scattered(&cpus, &uncore_caches(&node.machine, &cpus)),
            noisy: node.noise.recent.as_ref().and_then(|noise| {
                let noisy = noise.with_verdict(Verdict::Noisy);
                let is_known =
                    !noisy.is_empty() || noise.with_verdict(Verdict::Unobserved).is_empty();
                is_known.then_some(noisy.len())
            }),
            elsewhere: node.filter.as_ref().map_or(CpuSet::EMPTY, |filter| filter.elsewhere),
            is_rejected: node.parts.config_source.fault.is_some(),
            settings_since: node.parts.config_source.loaded,
            own_pools: node
                .containers
                .iter()
                .filter_map(|one| Some((one.pool_badge?, *one.own_pool)))
                .collect(),
            containers: node.listed().into_iter().map(ContainerOutline::of).collect(),
        }
    }

    /// Where CPUs of a badge are, in words. `idle` CPUs stay idle for these.
    pub fn placement(&self, cpus: &CpuSet, idle: &CpuSet) -> String {
        Spread::of(&self.machine, cpus).words(idle)
    }
}

impl ContainerOutline {
    fn of(one: &Container) -> ContainerOutline {
        ContainerOutline {
            usage: one.usage(),
            badge: one.letters(),
            exclusive: one.exclusive.filter(|_| one.badge.is_some()),
            runs_on: *one.runs_on,
            idle: *one.idle,
            phase: one.phase,
            mechanism: one.enforced_by,
            since: one.since.or(one.created),
        }
    }
}
