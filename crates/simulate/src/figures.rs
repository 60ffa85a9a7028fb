//! [`Figures`]: the result of a simulation. In JSON, the names are a promise to scripts;
//! docs/simulate.md is the reference.

use ledger::{Ledger, MoveOutcome};
use placement::quality::LiveScore;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sums, means and counts of one simulation.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// In seconds.
    pub end: f64,
    pub pods: Pods,
    /// Refused pods and containers, by reason; each counts once.
    pub refused: BTreeMap<&'static str, usize>,
    /// The same by whether enough CPUs were free.
    pub refused_by_free_cpus: RefusedByFreeCpus,
    /// Further refusals of containers that had been refused.
    pub refused_again: usize,
    /// Admitted containers without exclusive CPUs.
    pub shared: usize,
    pub exclusive: ExclusiveCounts,
    pub live: LiveScore,
    pub moves: Moves,
    /// Changes of existing containers.
    pub updates: usize,
    pub exclusive_cpus: Values,
    /// Fragmentation of free CPUs, 0 best, by boundary: `numa_node`, `uncore_cache`.
    pub fragmentation: BTreeMap<&'static str, Values>,
}

#[derive(Debug, Default, Serialize)]
pub struct Pods {
    pub arrived: usize,
    /// The pods with all containers admitted at some time.
    pub complete: usize,
    /// The complete pods that had to wait.
    pub waited: usize,
    /// In seconds.
    pub mean_wait: f64,
    pub longest_wait: f64,
}

/// Refused pods and containers; each counts once, for its first refusal.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RefusedByFreeCpus {
    /// As many CPUs were free as requested, but not those that the configuration asks for.
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
    /// Containers that waited on other CPUs until their new ones were free.
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

/// The number of exclusive sets, and of those in the fewest possible domains for their size.
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
    /// At regular moments, from the beginning to the end.
    pub samples: Vec<f64>,
}
