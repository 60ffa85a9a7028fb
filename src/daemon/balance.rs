//! [`Balance`]: what the owner knows about moves of running containers. [`PlanRun`]: those that are
//! being made.

use super::calls::CallInfo;
use super::persist::Save;
use crate::clock::now;
use crate::ledger::{Admission, Move, Occasion};
use crate::view::LastPlan;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Balance {
    /// CPUs have become free: others may move there.
    pub(super) unbalanced: bool,
    /// Whether the threads of containers cannot be seen, which is in the log then.
    pub(super) is_blind: bool,
    /// For each occasion.
    pub(super) last_plans: BTreeMap<Occasion, LastPlan>,
}

impl Balance {
    pub(super) fn planned(&mut self, occasion: Occasion, moved: usize, why: Option<String>) {
        self.last_plans.insert(occasion, LastPlan { at: now(), occasion, moved, why });
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
    /// The write that has it; `None` when that has ended.
    pub(super) save: Option<Save>,
    /// When to look next whether it is in force, and how often to do so at most.
    pub(super) look: Option<(Instant, usize)>,
}

impl PlanRun {
    /// The runtime does not wait for the creation any more.
    pub(super) fn drop_call(&mut self) {
        self.creation = None;
    }
}
