//! [`MovePlan`]: moves of running containers to better CPUs.

use super::model::ContainerId;
use core::time::Duration;
use cpuset::CpuSet;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Moves that are worth it, in an order in which no CPU ever has two owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovePlan {
    pub occasion: Occasion,
    pub steps: Vec<Move>,
}

impl MovePlan {
    /// The number of containers that move.
    pub fn containers(&self) -> usize {
        self.steps.iter().filter(|step| step.outcome == MoveOutcome::Done).count()
    }

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

/// Why nothing is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// `rebalance` is not in the configuration, or `off`.
    Off,
    /// No CPUs are assigned on this node, or the runtime has not listed its containers yet.
    NotAssigning,
    /// The starting container needs no CPUs, or has them.
    NoNeed,
    /// Programs have notice of moves (`noticeSeconds`), and a creation cannot wait.
    Notice,
    BudgetUsedUp,
    /// What is left of the budget is for containers that start.
    BudgetKept,
    AllStay,
    NoGain,
}

impl Display for NoPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoPlan::Off => "rebalance is off",
            NoPlan::NotAssigning => "the plugin assigns no CPUs now",
            NoPlan::NoNeed => "the container needs no other CPUs",
            NoPlan::Notice => "with noticeSeconds containers move only after others have ended",
            NoPlan::BudgetUsedUp => "the budget is used up until more containers start",
            NoPlan::BudgetKept => "the rest of the budget is for containers that start",
            NoPlan::AllStay => "no container may move",
            NoPlan::NoGain => "no move within the budget improves the placement",
        })
    }
}

/// Why a container with exclusive CPUs keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayReason {
    /// The wish `movable: "false"`.
    Wish,
    /// Its environment lists its CPUs (`exposeCpus: true`).
    Environment,
    OwnAffinity,
    /// Another program has set its memory nodes.
    MemoryNodes,
    /// In pod scope the containers of a pod have one affinity, and its pod has or can have more CPUs.
    PodScope,
    /// Its process does not run, or it has not got all of its CPUs yet.
    Changing,
    /// It started or moved less than `minStay` ago: so much is left.
    MinStay(Duration),
}

impl StayReason {
    /// A short name that stays.
    pub fn name(self) -> &'static str {
        match self {
            StayReason::Wish => "wish",
            StayReason::Environment => "environment",
            StayReason::OwnAffinity => "own_affinity",
            StayReason::MemoryNodes => "memory_nodes",
            StayReason::PodScope => "pod_scope",
            StayReason::Changing => "changing",
            StayReason::MinStay(_) => "min_stay",
        }
    }
}

impl Display for StayReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StayReason::Wish => "movable: \"false\"",
            StayReason::Environment => "its environment lists its CPUs (exposeCpus: true)",
            StayReason::OwnAffinity => "its threads have CPU affinities of their own",
            StayReason::MemoryNodes => "another program has set its memory nodes",
            StayReason::PodScope => {
                "in pod scope, its pod has or can have other exclusive containers"
            }
            StayReason::Changing => "it is starting, ending or changing its CPUs",
            StayReason::MinStay(left) => {
                // A started second counts, so that 0 s is never left.
                let seconds = left.as_millis().div_ceil(1000);
                return write!(f, "{seconds} s of minStay left");
            }
        })
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
