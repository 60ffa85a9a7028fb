//! [`MoveBook`]: what is left of the budget of moves, and what was moved.

use super::budget::Budget;
use crate::moves::MoveTotals;
use crate::settings::Rebalance;

/// What the books have of moves.
#[derive(Debug, Clone, Default)]
pub(crate) struct MoveBook {
    budget: Option<Budget>,
    pub(crate) totals: MoveTotals,
}

impl MoveBook {
    fn budget(&self, rebalance: &Rebalance) -> Budget {
        let rate = rebalance.moves_per_100_starts;
        self.budget.map_or_else(|| Budget::new(rate), |budget| budget.at(rate))
    }

    /// The number of containers that may move now.
    pub(crate) fn left(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).moves()
    }

    /// The same for moves that no newcomer needs.
    pub(crate) fn spare(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).spare_moves()
    }

    /// The most containers that may move at once.
    pub(crate) fn most(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).most()
    }

    /// A container has moved.
    pub(crate) fn moved(&mut self, rebalance: &Rebalance) {
        self.change(rebalance, Budget::spend);
    }

    fn change(&mut self, rebalance: &Rebalance, change: impl FnOnce(&mut Budget)) {
        let mut budget = self.budget(rebalance);
        change(&mut budget);
        self.budget = Some(budget);
    }

    /// A container has got exclusive CPUs from the engine.
    pub(crate) fn started(&mut self, rebalance: Option<&Rebalance>) {
        if let Some(rebalance) = rebalance {
            self.change(rebalance, Budget::earn);
        }
    }
}
