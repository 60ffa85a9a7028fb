//! `options.jsonl`: configurations that the kubelet accepts, or refuses to start with.

use super::{Machines, Outcome};
use cpuset::CpuSet;
use placement::{CpuManagerConfig, NodeLimit, PlacementSettings, Reservation, SettingsError};
use serde::Deserialize;
use std::collections::BTreeMap;
use topology::model::NodeFacts;
use topology::{Facts, Topology};

/// The configuration of a node.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    /// The machine's name; empty in benchmarks, whose machine is inlined.
    #[serde(default)]
    topology: String,
    reserved: String,
    num_reserved: String,
    cpu_options: BTreeMap<String, String>,
    policy: String,
    scope: String,
    #[serde(default)]
    tm_options: BTreeMap<String, String>,
    #[serde(default)]
    distances: Vec<Vec<u32>>,
    #[serde(default)]
    memory_only_nodes: Vec<usize>,
}

impl Config {
    /// The machine with this node's distances and memory-only nodes.
    pub(crate) fn machine(&self, machines: &Machines) -> Option<Topology> {
        let topology = machines.get(&self.topology)?;
        let numbers = topology.nodes().iter().map(|node| node.id);
        let mut nodes: Vec<usize> = numbers.chain(self.memory_only_nodes.iter().copied()).collect();
        nodes.sort_unstable();
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(at, id)| NodeFacts {
            id,
            // Vectors without distances have no rows.
            distances: self.distances.get(at).cloned().unwrap_or_default(),
            memoryless: false,
        });
        let cpus = topology.cpus().to_vec();
        Topology::build(Facts { cpus, nodes: nodes.collect(), ..Facts::default() }).ok()
    }

    /// The checked configuration, or the kubelet's reason not to start; `None` if the vector is
    /// malformed.
    pub(crate) fn settings(
        &self,
        topology: &Topology,
    ) -> Option<Result<PlacementSettings, SettingsError>> {
        let milli_cpus = match self.num_reserved.strip_suffix('m') {
            Some(milli) => milli.parse().ok()?,
            None => self.num_reserved.parse::<u64>().ok()? * 1000,
        };
        let config = CpuManagerConfig {
            cpu_options: &pairs(&self.cpu_options),
            topology_policy: &self.policy,
            topology_scope: &self.scope,
            topology_options: &pairs(&self.tm_options),
            reservation: Reservation { cpus: self.reserved.parse::<CpuSet>().ok()?, milli_cpus },
        };
        Some(config.check(topology, NodeLimit::Held))
    }
}

pub(super) fn pairs(options: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    #[serde(flatten)]
    config: Config,
    ok: bool,
    error: Option<String>,
}

pub(super) fn check(vector: Vector, machines: &Machines) -> Outcome {
    let topology = vector.config.machine(machines);
    let Some(settings) = topology.and_then(|topology| vector.config.settings(&topology)) else {
        return Outcome::Failed(format!("{}: not a vector: {vector:?}", vector.id));
    };
    let error = settings.err().map(|error| error.to_string());
    if error.is_none() == vector.ok && error == vector.error {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{}: {error:?} for {vector:?}", vector.id))
    }
}
