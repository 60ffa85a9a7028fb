//! Moves of running containers in the status: the rest of the budget, and why nothing moves.

use crate::view::node::{LastPlan, NodeFigures};
use ledger::{MoveOutcome, Occasion, RebalanceMode, StayReason};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RebalanceStatus {
    /// `move` or `suggest`.
    pub mode: String,
    pub moves_per_100_starts: u32,
    /// How long containers stay after their start and after a move.
    pub min_stay_seconds: u64,
    /// How many containers may move now.
    pub moves_left: usize,
    /// How many of these may move without a container that starts.
    pub spare_moves: usize,
    /// The most that may move at once.
    pub moves_at_most: usize,
    /// Containers that were moved for one that started, and after one had ended.
    pub arrival: u64,
    pub departure: u64,
    /// Containers that waited on other CPUs until their new ones were free.
    pub staged: u64,
    /// Steps that could not be carried out and were reverted.
    pub undone: u64,
    /// Containers that a dry run would have moved.
    pub suggested: u64,
    pub cpus: u64,
    pub across_numa_nodes: u64,
    /// The last plan for each occasion that has had one.
    pub last_plans: Vec<PlanStatus>,
    /// Whether containers move only in the response to the creation of another one, because the
    /// plugin cannot write cgroups or the runtime enforces exclusivity.
    pub only_at_creations: bool,
    /// Whether containers move although the CPU affinities of their threads cannot be seen.
    pub threads_unseen: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanStatus {
    pub at: String,
    /// `arrival` or `departure`.
    pub occasion: String,
    pub moved: usize,
    /// Why no more moved; `null` if all was done, and for clients that may not see names.
    pub why: Option<String>,
}

/// Why a container does not move now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StayStatus {
    pub reason: String,
    /// For people.
    pub text: String,
    /// The rest of `minStay`, if that is the reason.
    pub seconds_left: Option<f64>,
}

impl RebalanceStatus {
    /// What is left of the budget: `1 of 2 moves left`.
    pub fn budget(&self) -> String {
        let dry = if self.mode == "suggest" { "dry run, " } else { "" };
        format!("{dry}{} of {} moves left", self.moves_left, self.moves_at_most)
    }

    pub(super) fn of(node: &NodeFigures) -> Option<RebalanceStatus> {
        let NodeFigures { view, own, .. } = node;
        let rebalance = view.settings.rebalance.as_ref()?;
        let totals = &view.rebalanced;
        let mode = match rebalance.mode {
            RebalanceMode::Move => "move",
            RebalanceMode::Suggest => "suggest",
        };
        Some(RebalanceStatus {
            mode: mode.to_owned(),
            moves_per_100_starts: rebalance.moves_per_100_starts,
            min_stay_seconds: rebalance.min_stay.as_secs(),
            moves_left: view.moves_left,
            spare_moves: view.spare_moves,
            moves_at_most: view.most_moves,
            arrival: totals.of(Occasion::Arrival, MoveOutcome::Done),
            departure: totals.of(Occasion::Departure, MoveOutcome::Done),
            staged: totals.all(MoveOutcome::Staged),
            undone: totals.all(MoveOutcome::Undone),
            suggested: totals.all(MoveOutcome::Suggested),
            cpus: totals.cpus,
            across_numa_nodes: totals.across_numa_nodes,
            last_plans: own.last_plans.iter().map(PlanStatus::of).collect(),
            only_at_creations: own.moves_only_at_creations,
            threads_unseen: own.threads_unseen,
        })
    }
}

impl PlanStatus {
    fn of(plan: &LastPlan) -> PlanStatus {
        PlanStatus {
            at: plan.at.to_string(),
            occasion: plan.occasion.name().to_owned(),
            moved: plan.moved,
            why: plan.why.clone(),
        }
    }
}

impl StayStatus {
    pub(super) fn of(reason: &StayReason) -> StayStatus {
        let left = match reason {
            StayReason::MinStay(left) => Some(left.as_secs_f64()),
            _ => None,
        };
        StayStatus {
            reason: reason.name().to_owned(),
            text: reason.to_string(),
            seconds_left: left,
        }
    }
}
