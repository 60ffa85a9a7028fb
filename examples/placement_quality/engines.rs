//! The compared engines, each with its configuration.

use super::machines::NamedMachine;
use super::mixes::Mix;
use ledger::{self, Policy, Rebalance, RebalanceMode};
use placement::{EngineKind, Options, PlacementSettings, TopologyManager, TopologyPolicy};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(crate) struct EngineConfig {
    pub(crate) name: &'static str,
    kind: EngineKind,
    prefer_uncore_caches: bool,
    best_effort: bool,
    /// Container moves per 100 starts.
    moves: u32,
}

const KUBELET: EngineConfig = EngineConfig {
    name: "packed",
    kind: EngineKind::Kubelet,
    prefer_uncore_caches: false,
    best_effort: false,
    moves: 0,
};

const COMPACT: EngineConfig =
    EngineConfig { name: "compact", kind: EngineKind::Compact, ..KUBELET };

pub(crate) const ENGINES: [EngineConfig; 6] = [
    KUBELET,
    EngineConfig { name: "uncore", prefer_uncore_caches: true, ..KUBELET },
    EngineConfig {
        name: "uncore+best-effort",
        prefer_uncore_caches: true,
        best_effort: true,
        ..KUBELET
    },
    COMPACT,
    EngineConfig { name: "compact+10", moves: 10, ..COMPACT },
    EngineConfig { name: "compact+20", moves: 20, ..COMPACT },
];

impl EngineConfig {
    /// Whether this engine differs from the others with this mix: a mix with a topology policy
    /// overrides the engine's.
    pub(crate) fn is_for(&self, mix: &Mix) -> bool {
        mix.policy.is_none() || !self.best_effort
    }

    /// Without limits except the budget: any container may move at any time, to any NUMA node.
    fn rebalance(&self) -> Option<Rebalance> {
        if self.moves == 0 {
            return None;
        }
        Some(Rebalance {
            mode: RebalanceMode::Move,
            moves_per_100_starts: self.moves,
            across_numa_nodes: true,
            min_stay: Duration::ZERO,
        })
    }

    pub(super) fn settings(&self, machine: &NamedMachine, mix: &Mix) -> ledger::Settings {
        let own = if self.best_effort { TopologyPolicy::BestEffort } else { TopologyPolicy::None };
        let topology_manager =
            TopologyManager { policy: mix.policy.unwrap_or(own), ..TopologyManager::default() };
        ledger::Settings {
            policy: Policy::Static,
            placement: PlacementSettings {
                engine: self.kind,
                options: Options {
                    full_pcpus_only: mix.full_pcpus_only,
                    prefer_align_cpus_by_uncorecache: self.prefer_uncore_caches,
                    ..Options::default()
                },
                topology_manager,
                reserved: machine.reserved,
                ..PlacementSettings::default()
            },
            rebalance: self.rebalance(),
            ..ledger::Settings::default()
        }
    }
}
