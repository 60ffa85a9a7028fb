//! A machine's processors, as read from Linux and as in a topology.
//!
//! The lab reads `/sys` itself: the plugin's reader must not check itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cpuset::CpuSet;
use serde::{Deserialize, Serialize};
use topology::Topology;
use topology::model::Domain;

use crate::files::read_value as read;

/// Online processors. CPU sets are in the kernel's list format, ordered by their first CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    pub online: String,
    pub cores: Vec<String>,
    pub sockets: Vec<String>,
    /// Uncore caches (L3).
    pub caches: Vec<String>,
    pub nodes: Vec<HardwareNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareNode {
    pub cpus: String,
    /// Its distances to all nodes, in order.
    pub distances: Vec<u32>,
}

impl Hardware {
    /// `sys` is usually `/sys`. What Linux does not report is missing, such as the L3 in many
    /// virtual machines.
    pub fn read(sys: &Path) -> Result<Self> {
        let cpus = sys.join("devices/system/cpu");
        let nodes = sys.join("devices/system/node");
        let node = |number: usize| {
            let node = nodes.join(format!("node{number}"));
            let distances = read(&node.join("distance"))?;
            let distances = distances.split_whitespace().map(str::parse).collect::<Result<_, _>>();
            let distances =
                distances.with_context(|| format!("unexpected distance of NUMA node {number}"))?;
            Ok(HardwareNode { cpus: read(&node.join("cpulist"))?, distances })
        };
        Ok(Self {
            online: read(&cpus.join("online"))?,
            cores: sets(&cpus, "topology/thread_siblings_list"),
            sockets: sets(&cpus, "topology/package_cpus_list"),
            caches: sets(&cpus, "cache/index3/shared_cpu_list"),
            nodes: numbers(&nodes, "node").into_iter().map(node).collect::<Result<_>>()?,
        })
    }

    pub fn of(topology: &Topology) -> Self {
        let sets = |domains: &[Domain]| {
            let mut sets: Vec<CpuSet> = domains.iter().map(|domain| domain.cpus).collect();
            sets.sort_by_key(CpuSet::first);
            sets.iter().map(ToString::to_string).collect()
        };
        let node = |node: &topology::model::NumaNode| HardwareNode {
            cpus: node.cpus.to_string(),
            distances: node.distances.clone(),
        };
        Self {
            online: topology.online().to_string(),
            cores: sets(topology.cores()),
            sockets: sets(topology.sockets()),
            caches: sets(topology.uncores()),
            nodes: topology.nodes().iter().map(node).collect(),
        }
    }
}

/// The distinct contents of this file over all CPUs; offline CPUs do not have it.
fn sets(cpus: &Path, file: &str) -> Vec<String> {
    let lists = numbers(cpus, "cpu").into_iter();
    let mut sets = Vec::new();
    for list in lists.filter_map(|cpu| read(&cpus.join(format!("cpu{cpu}")).join(file)).ok()) {
        if !sets.contains(&list) {
            sets.push(list);
        }
    }
    sets
}

/// Numbers of directory entries named `prefix` and a number, ascending.
fn numbers(directory: &Path, prefix: &str) -> Vec<usize> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<usize> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}
