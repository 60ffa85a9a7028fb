//! [`MovePlan`]: moves of running containers to better CPUs.

use super::model::ContainerId;
use crate::cpuset::CpuSet;

/// Moves that are worth it, in an order in which no CPU ever has two owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovePlan {
    pub occasion: Occasion,
    pub steps: Vec<Move>,
}

impl MovePlan {
    /// Whether a container has to wait on other CPUs until its new ones are free.
    pub fn is_staged(&self) -> bool {
        self.steps.iter().any(|step| step.staged)
    }
}

/// One container's move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub occasion: Occasion,
    pub container: ContainerId,
    /// Its exclusive CPUs before.
    pub from: CpuSet,
    /// As many, which no other container has then.
    pub to: CpuSet,
    /// It only makes way, and a later step takes it to its final CPUs.
    pub staged: bool,
    /// What for.
    pub why: String,
}

impl Move {
    /// The way back, for a step that could not be carried out.
    pub fn undone(self, why: String) -> Move {
        Move { occasion: Occasion::Undo, from: self.to, to: self.from, why, ..self }
    }
}

/// When containers move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occasion {
    /// Another container starts.
    Arrival,
    /// CPUs have become free.
    Departure,
    /// A step could not be carried out.
    Undo,
}

impl Occasion {
    /// A short name that stays, for figures.
    pub fn name(self) -> &'static str {
        match self {
            Occasion::Arrival => "arrival",
            Occasion::Departure => "departure",
            Occasion::Undo => "undo",
        }
    }
}

/// What was moved so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveTotals {
    /// Containers that moved for one that started, and after one had ended.
    pub arrivals: u64,
    pub departures: u64,
    /// CPUs that containers got and did not have.
    pub cpus: u64,
    /// Containers that got CPUs in a NUMA node where they had none.
    pub across_numa_nodes: u64,
    /// Containers that waited on other CPUs until their new ones were free.
    pub staged: u64,
    /// Steps that could not be carried out, and were taken back.
    pub undone: u64,
    /// Containers that a dry run would have moved.
    pub suggested: u64,
}

impl MoveTotals {
    pub fn containers(&self) -> u64 {
        self.arrivals + self.departures
    }
}
