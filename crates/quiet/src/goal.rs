//! [`Goal`]: which CPUs have to be quiet, and how quiet.

use crate::knobs::Knobs;
use crate::plan::Area;
use cpuset::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What happens to device interrupts on a container's exclusive CPUs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum InterruptMode {
    #[default]
    Leave,
    /// No interrupt that the kernel lets move stays on them.
    Away,
    /// Interrupts may stay on the container's first CPU and on those of its SMT siblings that the
    /// container has, as with CRI-O's `irq-load-balancing.crio.io: housekeeping`.
    Housekeeping,
}

impl InterruptMode {
    pub const ALL: [InterruptMode; 3] =
        [InterruptMode::Leave, InterruptMode::Away, InterruptMode::Housekeeping];

    /// The word in configurations.
    pub fn name(self) -> &'static str {
        match self {
            InterruptMode::Leave => "leave",
            InterruptMode::Away => "away",
            InterruptMode::Housekeeping => "housekeeping",
        }
    }
}

/// What a node's files have to say. The owner of the CPUs builds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Goal {
    #[serde(skip)]
    pub online: CpuSet,
    /// The CPUs of each NUMA node.
    #[serde(skip)]
    pub nodes: BTreeMap<usize, CpuSet>,
    /// CPUs that are SMT siblings. CPUs in none of these sets have no sibling.
    #[serde(skip)]
    pub cores: Vec<CpuSet>,
    /// Containers with exclusive CPUs. No CPU is in two of them.
    pub containers: Vec<QuietContainer>,
}

/// A container with exclusive CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuietContainer {
    /// For messages.
    pub name: String,
    /// Its exclusive CPUs, with those that are idle for its sake.
    pub cpus: CpuSet,
    /// What it asks for device interrupts.
    pub interrupts: InterruptMode,
    /// What it asks of its CPUs.
    pub knobs: Knobs,
}

impl Goal {
    /// Whether no container asks for anything.
    pub fn is_empty(&self) -> bool {
        self.containers.iter().all(|container| {
            container.interrupts == InterruptMode::Leave && container.knobs == Knobs::default()
        })
    }

    /// The CPUs that interrupts have to stay off.
    pub fn avoided(&self) -> CpuSet {
        self.containers.iter().map(|container| self.avoided_of(container)).collect()
    }

    fn avoided_of(&self, container: &QuietContainer) -> CpuSet {
        match container.interrupts {
            InterruptMode::Leave => CpuSet::EMPTY,
            InterruptMode::Away => container.cpus,
            InterruptMode::Housekeeping => {
                let first = container.cpus.lowest(1);
                let core = self.cores.iter().find(|core| first.is_subset(core));
                container.cpus - first - core.copied().unwrap_or_default()
            }
        }
    }

    pub(crate) fn area(&self) -> Area<'_> {
        Area { online: self.online, avoided: self.avoided(), nodes: &self.nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn housekeeping_keeps_the_first_core_as_far_as_the_container_has_it() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let cores = vec![cpus("0,8"), cpus("1,9"), cpus("2,10")];
        for (has, siblings, avoided) in [
            ("1-2,9-10", true, "2,10"),
            ("1-2", true, "2"),
            ("1-2,9", false, "2,9"),
            ("2", true, ""),
            ("", true, ""),
        ] {
            let container = QuietContainer {
                cpus: cpus(has),
                interrupts: InterruptMode::Housekeeping,
                ..QuietContainer::default()
            };
            let goal = Goal {
                cores: if siblings { cores.clone() } else { Vec::new() },
                containers: vec![container],
                ..Goal::default()
            };
            assert_eq!(goal.avoided().to_string(), avoided, "{has}");
        }
    }
}
