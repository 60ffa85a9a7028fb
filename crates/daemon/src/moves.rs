//! [`Moves`]: what the owner knows about moves of running containers. [`PlanRun`]: a plan that is
//! being carried out.

use super::calls::CallInfo;
use super::persist::Save;
use ledger::{Admission, Move, MovePlan, Occasion};
use state::clock::now;
use status::LastPlan;
use status::node::PlanFigures;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Moves {
    /// CPUs have become free: running containers may move there.
    pub(super) unbalanced: bool,
    /// Whether the threads of containers cannot be read. The log has said so then.
    pub(super) is_blind: bool,
    pub(super) last_plans: BTreeMap<Occasion, LastPlan>,
    /// The write that has the last move.
    pub(super) unsaved: Option<Save>,
    /// The plan whose moves are being made.
    pub(super) run: Option<PlanRun>,
    /// The moves that files of containers announce, and when they are to be made.
    pub(super) announced: Option<(MovePlan, Instant)>,
}

impl Moves {
    pub(super) fn planned(&mut self, occasion: Occasion, moved: usize, why: Option<String>) {
        self.last_plans.insert(occasion, LastPlan { at: now(), moved, why });
    }

    pub(super) fn figures(&self, only_at_creations: bool) -> PlanFigures {
        PlanFigures {
            last: self.last_plans.clone(),
            only_at_creations,
            threads_unseen: self.is_blind,
        }
    }
}

/// A plan whose moves are being made, one after the other.
#[derive(Debug)]
pub(super) struct PlanRun {
    pub(super) occasion: Occasion,
    pub(super) steps: VecDeque<Move>,
    /// How many containers have moved.
    pub(super) moved: usize,
    /// No step begins later.
    pub(super) until: Instant,
    pub(super) step: Option<StepRun>,
    /// The creation that waits for it.
    pub(super) creation: Option<(Admission, CallInfo)>,
}

/// A step that is decided, and not known to be in force.
#[derive(Debug)]
pub(super) struct StepRun {
    pub(super) step: Move,
    /// Why it is being taken back.
    pub(super) undone: Option<String>,
    pub(super) progress: MoveProgress,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum MoveProgress {
    /// It is in the claims of this write, and nothing has changed yet.
    Saving(Save),
    /// It has been carried out, or is about to be: when to check next whether it is in force, and how
    /// many checks are left.
    Moving { check_at: Instant, left: usize },
}

impl PlanRun {
    /// The runtime no longer waits for the creation.
    pub(super) fn drop_call(&mut self) {
        self.creation = None;
    }
}
