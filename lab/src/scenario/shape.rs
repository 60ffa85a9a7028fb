//! The properties of a machine from which scenarios derive their sizes.

use anyhow::Result;
use cpuset::CpuSet;
use topology::{NumaNode, Topology};

use crate::vm::machine::Machine;

/// A described machine with its first core reserved.
#[derive(Debug, Clone)]
pub struct Shape {
    pub topology: Topology,
    /// The first core.
    pub reserved: CpuSet,
    /// Default mechanism of scenarios; empty for the plugin's default.
    pub exclusivity: String,
}

impl Shape {
    /// Reserves the first core.
    pub fn of(machine: &Machine) -> Result<Self> {
        let topology = machine.topology()?;
        let reserved = topology.cores().first().map(|core| core.cpus).unwrap_or_default();
        Ok(Self { topology, reserved, exclusivity: String::new() })
    }

    pub fn online(&self) -> CpuSet {
        self.topology.online()
    }

    /// CPUs that the kernel was booted to isolate, without reserved ones.
    pub fn isolated(&self) -> CpuSet {
        (self.topology.isolated() & self.online()) - self.reserved
    }

    /// CPUs that can be exclusive on an empty node.
    pub fn free(&self) -> CpuSet {
        self.online() - self.reserved
    }

    /// Number of CPUs that can be exclusive on an empty node.
    pub fn room(&self) -> usize {
        self.free().len()
    }

    pub fn caches(&self) -> Vec<CpuSet> {
        self.topology.uncores().iter().map(|cache| cache.cpus).collect()
    }

    /// Only NUMA nodes with CPUs.
    pub fn nodes(&self) -> Vec<CpuSet> {
        self.with_cpus().map(|(_, node)| node.cpus).collect()
    }

    /// Distances between the nodes of [`nodes`](Self::nodes).
    pub fn distances(&self) -> Vec<Vec<u32>> {
        let row = |node: &NumaNode| {
            self.with_cpus().filter_map(|(at, _)| node.distances.get(at).copied()).collect()
        };
        self.with_cpus().map(|(_, node)| row(node)).collect()
    }

    fn with_cpus(&self) -> impl Iterator<Item = (usize, &NumaNode)> {
        self.topology.nodes().iter().enumerate().filter(|(_, node)| !node.cpus.is_empty())
    }

    pub fn sockets(&self) -> Vec<CpuSet> {
        self.topology.sockets().iter().map(|socket| socket.cpus).collect()
    }

    pub fn cores(&self) -> Vec<CpuSet> {
        self.topology.cores().iter().map(|core| core.cpus).collect()
    }

    /// Threads of a complete core.
    pub fn threads(&self) -> usize {
        self.cores().iter().map(CpuSet::len).max().unwrap_or(1)
    }

    /// The most free CPUs in one of these sets.
    pub fn most_in(&self, sets: &[CpuSet]) -> usize {
        sets.iter().map(|cpus| (*cpus & self.free()).len()).max().unwrap_or_default()
    }

    /// Static policy with this core reserved, and additional lines.
    pub fn config(&self, more: &str) -> String {
        let reserved = self.reserved;
        let exclusivity = match self.exclusivity.as_str() {
            "" => String::new(),
            _ if more.contains("exclusivity:") => String::new(),
            exclusivity => format!("exclusivity: {exclusivity}\n"),
        };
        format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\n{exclusivity}{more}\n"
        )
    }
}
