//! [`MovePlan`]: moves of running containers to better CPUs.

use super::model::ContainerId;
use crate::cpuset::CpuSet;
use std::collections::BTreeMap;

/// Moves that are worth it, in an order in which no CPU ever has two owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovePlan {
    pub occasion: Occasion,
    pub steps: Vec<Move>,
}

impl MovePlan {
    /// Whether a container has to wait on other CPUs until its new ones are free.
    pub fn is_staged(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == MoveOutcome::Staged)
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
    pub outcome: MoveOutcome,
    /// What for.
    pub why: String,
}

impl Move {
    /// The way back, for a step that could not be carried out.
    pub fn undone(self, why: String) -> Move {
        Move { outcome: MoveOutcome::Undone, from: self.to, to: self.from, why, ..self }
    }
}

/// When containers move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occasion {
    /// Another container starts.
    Arrival,
    /// CPUs have become free.
    Departure,
}

impl Occasion {
    pub const ALL: [Occasion; 2] = [Occasion::Arrival, Occasion::Departure];

    /// A short name that stays, for figures.
    pub fn name(self) -> &'static str {
        match self {
            Occasion::Arrival => "arrival",
            Occasion::Departure => "departure",
        }
    }
}

/// What a step comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MoveOutcome {
    /// The container is where the plan wants it.
    Done,
    /// It makes way for another container, and a later step takes it to its CPUs of the plan.
    Staged,
    /// A step could not be carried out, and is taken back.
    Undone,
    /// A dry run would have moved it.
    Suggested,
}

impl MoveOutcome {
    pub const ALL: [MoveOutcome; 4] =
        [MoveOutcome::Done, MoveOutcome::Staged, MoveOutcome::Undone, MoveOutcome::Suggested];

    /// A short name that stays, for figures.
    pub fn name(self) -> &'static str {
        match self {
            MoveOutcome::Done => "done",
            MoveOutcome::Staged => "staged",
            MoveOutcome::Undone => "undone",
            MoveOutcome::Suggested => "suggested",
        }
    }
}

/// What was moved so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MoveTotals {
    steps: BTreeMap<(Occasion, MoveOutcome), u64>,
    /// CPUs that containers got and did not have.
    pub cpus: u64,
    /// Containers that got CPUs in a NUMA node where they had none.
    pub across_numa_nodes: u64,
}

impl MoveTotals {
    pub fn of(&self, occasion: Occasion, outcome: MoveOutcome) -> u64 {
        self.steps.get(&(occasion, outcome)).map_or(0, |count| *count)
    }

    /// The same for all occasions.
    pub fn all(&self, outcome: MoveOutcome) -> u64 {
        Occasion::ALL.iter().map(|occasion| self.of(*occasion, outcome)).sum()
    }

    pub(super) fn count(&mut self, occasion: Occasion, outcome: MoveOutcome) {
        *self.steps.entry((occasion, outcome)).or_default() += 1;
    }
}
