//! The properties of a machine from which scenarios derive their sizes.

use anyhow::Result;
use cpuset::CpuSet;
use topology::Topology;

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

    /// Number of uncore caches.
    pub fn caches(&self) -> usize {
        self.topology.uncores().len()
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
