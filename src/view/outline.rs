//! [`Outline`]: what a reader without rights may see of a node. It has no text that a pod, the runtime or another program
//! chose.

use super::badge::Badge;
use super::domains::{Spread, scattered, uncore_caches};
use super::picture::Usage;
use super::snapshot::{Container, Node, Snapshot};
use crate::clock::Moment;
use cpuset::CpuSet;
use ledger::{CpuFigures, Mechanism, Phase, Stance};
use noise::Verdict;
use std::sync::Arc;
use topology::Topology;

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
    /// In the order of lists below a picture.
    pub containers: Vec<ContainerOutline>,
}

#[derive(Debug, Clone, Copy)]
pub struct ContainerOutline {
    pub usage: Usage,
    /// The letters of its exclusive CPUs, or of the own pool of its pod.
    pub badge: Option<Badge>,
    /// Whether the badge is that of a pod, which shares the CPUs.
    pub is_pod: bool,
    /// The CPUs of the badge; where it runs if it has none.
    pub cpus: CpuSet,
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
        let noise = node.noise.recent.as_ref();
        NodeOutline {
            machine: node.machine.shared(),
            stance: node.figures.stance,
            mechanism: node.figures.mechanism,
            cpus,
            foreign: node.parts.exclusivity.foreign(),
            scattered: scattered(&cpus, &uncore_caches(&node.machine, &cpus)),
            noisy: noise
                .map(|noise| {
                    [Verdict::Noisy, Verdict::Unobserved].map(|one| noise.with_verdict(one).len())
                })
                .filter(|[noisy, unobserved]| *noisy > 0 || *unobserved == 0)
                .map(|[noisy, _]| noisy),
            elsewhere: node.filter.as_ref().map_or(CpuSet::EMPTY, |filter| filter.elsewhere),
            is_rejected: node.parts.config_source.fault.is_some(),
            settings_since: node.parts.config_source.loaded,
            containers: node.listed().into_iter().map(ContainerOutline::of).collect(),
        }
    }

    /// Where the CPUs of a badge are, in words; empty without any.
    pub fn placement(&self, one: &ContainerOutline) -> String {
        match one.badge {
            Some(_) => Spread::of(&self.machine, &one.cpus).words(&one.idle),
            None => String::new(),
        }
    }
}

impl ContainerOutline {
    fn of(one: &Container) -> ContainerOutline {
        let (badge, is_pod, cpus) = match (one.badge, one.pool_badge) {
            (Some(badge), _) => (Some(badge), false, one.exclusive_cpus()),
            (None, Some(badge)) => (Some(badge), true, *one.own_pool),
            (None, None) => (None, false, *one.runs_on),
        };
        ContainerOutline {
            usage: one.usage(),
            badge,
            is_pod,
            cpus,
            idle: *one.idle,
            phase: one.phase,
            mechanism: one.enforced_by,
            since: one.since.or(one.created),
        }
    }
}
