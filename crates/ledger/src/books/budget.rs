//! [`Budget`]: how many containers may move, in proportion to those that start.

/// A bucket that each start fills and each move empties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// The moves for 100 starts.
    rate: u32,
    /// In hundredths of a move.
    left: u32,
}

impl Budget {
    /// A full one.
    pub(super) fn new(rate: u32) -> Budget {
        Budget { rate, left: Budget::burst(rate) }
    }

    /// The most containers that may move at once.
    pub(super) fn most(self) -> usize {
        (Budget::burst(self.rate) / 100) as usize
    }

    /// The most that it holds: the moves of 20 starts, and at least one.
    fn burst(rate: u32) -> u32 {
        (rate.saturating_mul(100) / 5).max(if rate > 0 { 100 } else { 0 })
    }

    /// The rate may have changed with the settings.
    pub(super) fn at(self, rate: u32) -> Budget {
        if self.rate == rate { self } else { Budget::new(rate) }
    }

    /// A container with exclusive CPUs has started.
    pub(super) fn earn(&mut self) {
        self.left = self.left.saturating_add(self.rate).min(Budget::burst(self.rate));
    }

    pub(super) fn spend(&mut self) {
        self.left = self.left.saturating_sub(100);
    }

    /// The number of containers that may move now.
    pub(super) fn moves(self) -> usize {
        (self.left / 100) as usize
    }

    /// The same for moves that no newcomer needs: the first half is for those that do.
    pub(super) fn spare_moves(self) -> usize {
        if self.left > Budget::burst(self.rate) / 2 { self.moves() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_follow_starts_with_a_burst_of_a_fifth() {
        let mut budget = Budget::new(10);
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
        assert_eq!(Budget::new(0).moves(), 0);
        assert_eq!(Budget::new(1).moves(), 1);
        assert_eq!(budget.at(10), budget);
        assert_eq!(budget.at(100).moves(), 20);
    }
}
