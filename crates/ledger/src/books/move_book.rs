//! [`MoveBook`]: the budget for moves of running containers, and the moves so far.

use super::move_budget::MoveBudget;
use crate::moves::MoveTotals;
use crate::settings::Rebalance;

#[derive(Debug, Clone, Default)]
pub(crate) struct MoveBook {
    /// `None` before the first start or move.
    budget: Option<MoveBudget>,
    pub(crate) totals: MoveTotals,
}

impl MoveBook {
    fn budget(&self, rebalance: &Rebalance) -> MoveBudget {
        let rate = rebalance.moves_per_100_starts;
        self.budget.map_or_else(|| MoveBudget::full(rate), |budget| budget.at(rate))
    }

    pub(crate) fn moves_left(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).moves()
    }

    pub(crate) fn spare_moves(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).spare_moves()
    }

    pub(crate) fn burst(&self, rebalance: &Rebalance) -> usize {
        self.budget(rebalance).burst()
    }

    pub(crate) fn moved(&mut self, rebalance: &Rebalance) {
        self.change(rebalance, MoveBudget::spend);
    }

    fn change(&mut self, rebalance: &Rebalance, change: impl FnOnce(&mut MoveBudget)) {
        let mut budget = self.budget(rebalance);
        change(&mut budget);
        self.budget = Some(budget);
    }

    /// The engine has chosen exclusive CPUs for a new container.
    pub(crate) fn started(&mut self, rebalance: Option<&Rebalance>) {
        if let Some(rebalance) = rebalance {
            self.change(rebalance, MoveBudget::earn);
        }
    }
}
