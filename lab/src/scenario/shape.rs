//! The properties of a machine from which scenarios derive their sizes.

use anyhow::Result;
use cpuset::CpuSet;
use serde::{Deserialize, Serialize};

use crate::hardware::Hardware;
use crate::vm::machine::Machine;

/// A described machine with its first core reserved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shape {
    pub hardware: Hardware,
    pub online: CpuSet,
    /// CPUs that the kernel was booted to isolate, without reserved ones.
    pub isolated: CpuSet,
    /// Number of uncore caches.
    pub caches: usize,
    /// The first core.
    pub reserved: CpuSet,
    /// Whether it has devices that make interrupts.
    pub devices: bool,
    /// Whether scenarios observe for less time, as in `hack/test`.
    pub short: bool,
    /// The mechanism of scenarios; empty for the plugin's default.
    pub exclusivity: String,
}

impl Shape {
    /// Reserves the first core.
    pub fn of(machine: &Machine) -> Result<Self> {
        let topology = machine.topology()?;
        let reserved = topology.cores().first().map(|core| core.cpus).unwrap_or_default();
        Ok(Self {
            hardware: Hardware::of(&topology),
            online: topology.online(),
            isolated: (topology.isolated() & topology.online()) - reserved,
            caches: topology.uncores().len(),
            reserved,
            devices: machine.devices,
            short: false,
            exclusivity: String::new(),
        })
    }

    pub fn with(&self, exclusivity: &str) -> Self {
        Self { exclusivity: exclusivity.to_owned(), ..self.clone() }
    }

    /// CPUs that can be exclusive on an empty node.
    pub fn free(&self) -> CpuSet {
        self.online - self.reserved
    }

    /// Number of CPUs that can be exclusive on an empty node.
    pub fn room(&self) -> usize {
        self.free().len()
    }

    /// Static policy with this core reserved, and additional lines.
    pub fn config(&self, more: &str) -> String {
        let reserved = self.reserved;
        let exclusivity = match self.exclusivity.as_str() {
            "" => String::new(),
            exclusivity => format!("exclusivity: {exclusivity}\n"),
        };
        format!(
            "cpuManagerPolicy: static\nreservedSystemCPUs: \"{reserved}\"\n{exclusivity}{more}\n"
        )
    }
}
