//! [`Balance`]: what the owner knows about moves of running containers.

use crate::clock::now;
use crate::ledger::Occasion;
use crate::view::LastPlan;
use std::collections::BTreeMap;

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
