//! [`MoveBudget`]: how many containers may move, in proportion to those that start.

/// A token bucket: each start adds to it, each move takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MoveBudget {
    /// Moves per 100 starts.
    rate: u32,
    /// In hundredths of a move.
    left: u32,
}

impl MoveBudget {
    pub(super) fn full(rate: u32) -> MoveBudget {
        MoveBudget { rate, left: MoveBudget::capacity(rate) }
    }

    /// The most containers that may move at once.
    pub(super) fn burst(self) -> usize {
        (MoveBudget::capacity(self.rate) / 100) as usize
    }

    /// In hundredths of a move: the moves for 20 starts, and at least one.
    fn capacity(rate: u32) -> u32 {
        (rate.saturating_mul(100) / 5).max(if rate > 0 { 100 } else { 0 })
    }

    /// This budget under the present settings: another rate begins with a full one.
    pub(super) fn at(self, rate: u32) -> MoveBudget {
        if self.rate == rate { self } else { MoveBudget::full(rate) }
    }

    /// A container with exclusive CPUs has started.
    pub(super) fn earn(&mut self) {
        self.left = self.left.saturating_add(self.rate).min(MoveBudget::capacity(self.rate));
    }

    pub(super) fn spend(&mut self) {
        self.left = self.left.saturating_sub(100);
    }

    /// The number of containers that may move now.
    pub(super) fn moves(self) -> usize {
        (self.left / 100) as usize
    }

    /// The number of containers that may move though no new container needs it: half of the
    /// capacity is kept for new containers.
    pub(super) fn spare_moves(self) -> usize {
        if self.left > MoveBudget::capacity(self.rate) / 2 { self.moves() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_follow_starts_with_a_burst_of_a_fifth() {
        let mut budget = MoveBudget::full(10);
        assert_eq!((budget.moves(), budget.spare_moves()), (2, 2));
        budget.spend();
        assert_eq!((budget.moves(), budget.spare_moves()), (1, 0));
        budget.spend();
        let moved = (0..100).filter(|_| {
            budget.earn();
            let may = budget.moves() > 0;
            if may {
                budget.spend();
            }
            may
        });
        assert_eq!(moved.count(), 10);
        (0..1000).for_each(|_| budget.earn());
        assert_eq!(budget.moves(), 2);
        assert_eq!(MoveBudget::full(0).moves(), 0);
        assert_eq!(MoveBudget::full(1).moves(), 1);
        assert_eq!(budget.at(10), budget);
        assert_eq!(budget.at(100).moves(), 20);
    }
}
