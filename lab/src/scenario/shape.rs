//! What scenarios need to know of a machine: their sizes follow from it.

use anyhow::Result;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::topology::{NumaNode, Topology};

use crate::vm::machine::Machine;

/// A machine as it should be found, with its first core reserved.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What it is.
    pub topology: Topology,
    /// CPUs that are never exclusive: the first core's.
    pub reserved: CpuSet,
    /// What keeps others off exclusive CPUs, where a scenario does not say; empty for the default.
    pub exclusivity: String,
}

impl Shape {
    /// The shape of a described machine.
    ///
    /// # Errors
    /// As [`Machine::topology`].
    pub fn of(machine: &Machine) -> Result<Self> {
        let topology = machine.topology()?;
        let reserved = topology.cores().first().map(|core| core.cpus).unwrap_or_default();
        Ok(Self { topology, reserved, exclusivity: String::new() })
    }

    /// All online CPUs.
    #[must_use]
    pub fn online(&self) -> CpuSet {
        self.topology.online()
    }

    /// CPUs that can be exclusive on an empty node.
    #[must_use]
    pub fn free(&self) -> CpuSet {
        self.online() - self.reserved
    }

    /// Their number.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free().len()
    }

    /// The CPUs of each uncore cache.
    #[must_use]
    pub fn caches(&self) -> Vec<CpuSet> {
        self.topology.uncores().iter().map(|cache| cache.cpus).collect()
    }

    /// The CPUs of each NUMA node that has some.
    #[must_use]
    pub fn nodes(&self) -> Vec<CpuSet> {
        self.with_cpus().map(|(_, node)| node.cpus).collect()
    }

    /// From each of these nodes to each, how far it is.
    #[must_use]
    pub fn distances(&self) -> Vec<Vec<u32>> {
        let row = |node: &NumaNode| {
            self.with_cpus().filter_map(|(at, _)| node.distances.get(at).copied()).collect()
        };
        self.with_cpus().map(|(_, node)| row(node)).collect()
    }

    fn with_cpus(&self) -> impl Iterator<Item = (usize, &NumaNode)> {
        self.topology.nodes().iter().enumerate().filter(|(_, node)| !node.cpus.is_empty())
    }

    /// The CPUs of each socket.
    #[must_use]
    pub fn sockets(&self) -> Vec<CpuSet> {
        self.topology.sockets().iter().map(|socket| socket.cpus).collect()
    }

    /// The CPUs of each core.
    #[must_use]
    pub fn cores(&self) -> Vec<CpuSet> {
        self.topology.cores().iter().map(|core| core.cpus).collect()
    }

    /// Threads of a core that is whole.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.cores().iter().map(CpuSet::len).max().unwrap_or(1)
    }

    /// The most exclusive CPUs that one of these sets has on an empty node.
    #[must_use]
    pub fn most_in(&self, sets: &[CpuSet]) -> usize {
        sets.iter().map(|cpus| (*cpus & self.free()).len()).max().unwrap_or_default()
    }

    /// The configuration `cpuManagerPolicy: static` with this core reserved, and more lines.
    #[must_use]
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
