//! [`Figures`]: the result of a simulation. Scripts rely on the field names in JSON;
//! docs/simulate.md is their reference.

use ledger::{Ledger, MoveOutcome};
use placement::quality::LiveScore;
use serde::Serialize;
use std::collections::BTreeMap;

/// The results of one simulation.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// The end of the simulation, in seconds.
    pub end: f64,
    pub pods: Pods,
    /// Refused pods and containers by reason. Each counts once.
    pub refused: BTreeMap<&'static str, usize>,
    pub refused_by_free_cpus: RefusedByFreeCpus,
    /// Further refusals of containers that were refused before.
    pub refused_again: usize,
    /// Admitted containers without exclusive CPUs.
    pub shared: usize,
    pub exclusive: ExclusiveCounts,
    pub live: LiveScore,
    pub moves: Moves,
    /// Updates of existing containers.
    pub updates: usize,
    pub exclusive_cpus: Values,
    /// The fragmentation of free CPUs (0 is best), by domain: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<&'static str, Values>,
}

#[derive(Debug, Default, Serialize)]
pub struct Pods {
    pub arrived: usize,
    /// Pods of which all containers were admitted.
    pub complete: usize,
    /// Complete pods that had to wait.
    pub waited: usize,
    /// In seconds, over the pods that waited.
    pub mean_wait: f64,
    /// In seconds.
    pub longest_wait: f64,
}

/// Refused pods and containers by whether enough CPUs were free. Each counts once, at its first
/// refusal.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RefusedByFreeCpus {
    /// Enough CPUs were free, but not where the configuration requires them.
    pub enough: usize,
    pub too_few: usize,
}

/// Moves of running containers to better CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moves {
    pub containers: u64,
    pub cpus: u64,
    /// Containers that got CPUs in a NUMA node where they had none.
    pub across_numa_nodes: u64,
    /// Containers that had to wait on other CPUs until their new ones were free.
    pub staged: u64,
}

impl Moves {
    pub(crate) fn of(ledger: &Ledger) -> Moves {
        let totals = ledger.move_totals();
        Moves {
            containers: totals.all(MoveOutcome::Done),
            cpus: totals.cpus,
            across_numa_nodes: totals.across_numa_nodes,
            staged: totals.all(MoveOutcome::Staged),
        }
    }
}

/// The number of containers with exclusive CPUs, and how many of them are in the fewest possible
/// domains for their size.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ExclusiveCounts {
    pub containers: usize,
    pub fewest_uncore_caches: usize,
    pub fewest_numa_nodes: usize,
    pub fewest_sockets: usize,
    pub whole_cores: usize,
}

/// A value over time.
#[derive(Debug, Default, Serialize)]
pub struct Values {
    pub mean: f64,
    pub most: f64,
    pub last: f64,
    /// Samples at regular intervals, from the beginning to the end.
    pub samples: Vec<f64>,
}
