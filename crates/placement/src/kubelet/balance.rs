//! The search behind [`super::distributed`]: which nodes give an even share, and which of them give
//! one group more.
//!
//! The kubelet tries all combinations of nodes times all subsets that may give more, and keeps the
//! first of the most balanced. This search has the same order but skips every branch whose best
//! possible outcome is no better than the best one so far. Taking CPUs from a node with more free
//! CPUs never makes the rest less even, so the best possible outcome completes the branch with the
//! nodes that have the most free CPUs, and takes the last groups greedily from those. The answer is
//! the same. On a machine with more than eight very uneven nodes, the search stops after [`TRIES`]
//! choices and returns the best one so far.
//!
//! The first of equally balanced choices wins. The kubelet partly overwrites its first one while
//! its search continues. Its answer is mostly as balanced, so the tests compare the balance.

use crate::combinations::next_combination;

/// The most choices of a search, which take some milliseconds. With eight nodes there are fewer.
const TRIES: usize = 20_000;

/// The standard deviation of free CPUs over the nodes, in thousandths, rounded.
type Balance = u64;

/// Which nodes give CPUs, by index in the list of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Givers {
    balance: Balance,
    /// These give `even` groups each.
    pub(super) nodes: Vec<usize>,
    pub(super) even: usize,
    /// These give one more group each time they are listed, in this order.
    pub(super) rest: Vec<usize>,
}

impl Givers {
    /// The least is the first of the most balanced choices of one width.
    pub(super) fn order(&self) -> (u64, &[usize]) {
        (self.balance, &self.nodes)
    }
}

/// The search over combinations of `width` nodes. Nodes are given by index in `free`.
#[derive(Clone)]
pub(super) struct BalanceSearch<'a> {
    /// The number of free CPUs of each node, in the order in which nodes are tried.
    free: &'a [usize],
    /// The indices of the nodes that may give CPUs, ascending.
    able: Vec<usize>,
    /// The same nodes, the one with the most free CPUs first.
    fullest: Vec<usize>,
    groups: usize,
    group: usize,
    width: usize,
    /// Whether nodes may be chosen of which one has less than an even share. All of them then give
    /// as much as that one has, and the rest comes from those with more.
    uneven: bool,
    tries: usize,
    best: Option<Givers>,
    /// Only choices with a lower balance are better than the best one so far.
    below: Balance,
}

impl<'a> BalanceSearch<'a> {
    /// A search for `groups` groups of `group` CPUs on `width` nodes. `free` has the number of free
    /// CPUs of each node.
    pub(super) fn new(
        free: &'a [usize],
        groups: usize,
        group: usize,
        width: usize,
    ) -> BalanceSearch<'a> {
        let mut fullest: Vec<usize> = (0..free.len()).collect();
        fullest.sort_by_key(|&node| std::cmp::Reverse(free[node]));
        let width = width.clamp(1, free.len().max(1));
        BalanceSearch {
            free,
            able: (0..free.len()).collect(),
            fullest,
            groups,
            group,
            width,
            uneven: false,
            tries: 0,
            best: None,
            below: Balance::MAX,
        }
    }

    pub(super) fn with_uneven_shares(self) -> BalanceSearch<'a> {
        BalanceSearch { uneven: true, ..self }
    }

    /// The search over combinations of these nodes only, ascending; `None` if they are too few.
    pub(super) fn among(mut self, nodes: &[usize]) -> Option<BalanceSearch<'a>> {
        self.able = nodes.to_vec();
        self.fullest.retain(|node| nodes.contains(node));
        if self.width <= nodes.len() { Some(self) } else { None }
    }

    /// The first of the most balanced choices; `None` if no combination of `width` nodes can give
    /// the groups.
    pub(super) fn run(mut self) -> Option<Givers> {
        // No choice is better than the fullest nodes, so they give a first bound. The bound is one
        // higher than their balance because the answer is the first choice that is equally good.
        let mut fullest: Vec<usize> = self.fullest.iter().copied().take(self.width).collect();
        fullest.sort_unstable();
        let bound = self.best_with(&fullest)?;
        self.below = bound.balance.saturating_add(1);
        self.walk(&mut Vec::new(), 0);
        Some(self.best.take().unwrap_or(bound))
    }

    /// Tries the combinations that begin with `chosen` and continue with nodes from `next` on, in
    /// order.
    fn walk(&mut self, chosen: &mut Vec<usize>, next: usize) {
        self.tries += 1;
        if self.tries > TRIES {
            return;
        }
        let more = self.width - chosen.len();
        let later = self.fullest.iter().copied().filter(|&node| node >= next).take(more);
        let completed: Vec<usize> = chosen.iter().copied().chain(later).collect();
        if self.least(&completed, self.even(&self.able)).is_none_or(|least| least >= self.below) {
            return;
        }
        if more == 0 {
            if let Some(choice) = self.best_with(chosen)
                && choice.balance < self.below
            {
                self.below = choice.balance;
                self.best = Some(choice);
            }
            return;
        }
        for at in 0..self.able.len() {
            let node = self.able[at];
            if next <= node {
                chosen.push(node);
                self.walk(chosen, node + 1);
                chosen.pop();
            }
        }
    }

    /// The number of groups that each of these nodes gives.
    fn even(&self, nodes: &[usize]) -> usize {
        let even = self.groups / self.width;
        let smallest = nodes.iter().map(|&node| self.free[node] / self.group).min();
        match smallest {
            Some(smallest) if self.uneven => even.min(smallest),
            _ => even,
        }
    }

    /// The groups left over after each node of a choice gave `even`.
    fn left(&self, even: usize) -> usize {
        self.groups - even * self.width
    }

    /// What is free on every node after these nodes gave `even` groups each; `None` if one of them
    /// has less, or all together have too few groups.
    fn after_even(&self, nodes: &[usize], even: usize) -> Option<Vec<usize>> {
        let mut after = self.free.to_vec();
        let mut groups = 0;
        for &node in nodes {
            groups += after[node] / self.group;
            after[node] = after[node].checked_sub(even * self.group)?;
        }
        if nodes.len() == self.width && groups >= self.groups { Some(after) } else { None }
    }

    /// A lower bound of the balance of all choices with these nodes, of which each gives `even`
    /// groups or more.
    fn least(&self, nodes: &[usize], even: usize) -> Option<Balance> {
        let mut after = self.after_even(nodes, even)?;
        for _ in 0..self.left(even) {
            let fullest = nodes.iter().copied().max_by_key(|&node| after[node])?;
            after[fullest] = after[fullest].checked_sub(self.group)?;
        }
        Some(balance(&after))
    }

    /// The best choice with exactly these nodes: which of them give the groups left over.
    ///
    /// As in the kubelet, larger subsets are tried first, so that the groups spread widely.
    fn best_with(&mut self, nodes: &[usize]) -> Option<Givers> {
        let even = self.even(nodes);
        let after = self.after_even(nodes, even)?;
        let left = self.left(even);
        let nodes = nodes.to_vec();
        if left == 0 {
            return Some(Givers { balance: balance(&after), nodes, even, rest: Vec::new() });
        }
        let least = self.least(&nodes, even)?;
        let able: Vec<usize> =
            nodes.iter().copied().filter(|&node| after[node] >= self.group).collect();
        let mut best: Option<Givers> = None;
        for size in (1..=able.len()).rev() {
            let mut subset: Vec<usize> = (0..size).collect();
            loop {
                self.tries += 1;
                if let Some((balance, rest)) = self.take_in_turn(&after, &able, &subset, left)
                    && best.as_ref().is_none_or(|best| balance < best.balance)
                {
                    best = Some(Givers { balance, nodes: nodes.clone(), even, rest });
                }
                let done = best.as_ref().is_some_and(|best| best.balance <= least);
                if done || (best.is_some() && self.tries > TRIES) {
                    return best;
                }
                if !next_combination(&mut subset, able.len()) {
                    break;
                }
            }
        }
        best
    }

    /// Takes `left` groups from the givers in turn, one each, as long as a giver has one. Givers
    /// are given by index in `able`. `None` if the givers have too few groups.
    fn take_in_turn(
        &self,
        after: &[usize],
        able: &[usize],
        givers: &[usize],
        mut left: usize,
    ) -> Option<(Balance, Vec<usize>)> {
        let mut after = after.to_vec();
        let mut rest = Vec::with_capacity(left);
        while left > 0 {
            let before = left;
            for node in givers.iter().map(|&giver| able[giver]) {
                if left > 0 && after[node] >= self.group {
                    after[node] -= self.group;
                    rest.push(node);
                    left -= 1;
                }
            }
            if left == before {
                return None;
            }
        }
        Some((balance(&after), rest))
    }
}

/// The [`Balance`]. As in the kubelet, the mean is rounded to thousandths first.
fn balance(free: &[usize]) -> Balance {
    let count = free.len().max(1) as f64;
    let mean = (free.iter().sum::<usize>() as f64 / count * 1000.0).round() / 1000.0;
    let squares: f64 = free.iter().map(|&free| (free as f64 - mean).powi(2)).sum();
    ((squares / count).sqrt() * 1000.0).round() as Balance
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};

    /// Tries every combination and every subset, in the kubelet's order.
    fn plain(mut search: BalanceSearch<'_>) -> Option<Givers> {
        let group = search.group;
        let width = search.width;
        let mut best: Option<Givers> = None;
        let mut nodes: Vec<usize> = (0..width).collect();
        loop {
            let even = search.even(&nodes);
            if let Some(after) = search.after_even(&nodes, even) {
                let able = nodes.iter().copied().filter(|&node| after[node] >= group);
                let able: Vec<usize> = able.collect();
                let mut local: Option<Givers> = None;
                let left = search.left(even);
                if left == 0 {
                    local = search.best_with(&nodes);
                }
                let most = if left > 0 { able.len() } else { 0 };
                for size in (1..=most).rev() {
                    let mut subset: Vec<usize> = (0..size).collect();
                    loop {
                        if let Some((balance, rest)) =
                            search.take_in_turn(&after, &able, &subset, left)
                            && local.as_ref().is_none_or(|local| balance < local.balance)
                        {
                            local = Some(Givers { balance, nodes: nodes.clone(), even, rest });
                        }
                        if !next_combination(&mut subset, able.len()) {
                            break;
                        }
                    }
                }
                if let Some(local) = local
                    && best.as_ref().is_none_or(|best| local.balance < best.balance)
                {
                    best = Some(local);
                }
            }
            if !next_combination(&mut nodes, search.free.len()) {
                return best;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_search_finds_the_same_as_full_enumeration(
            free in prop::collection::vec(1..24usize, 1..8),
            share in 1..100usize,
            group in 1..5usize,
            width in 1..8usize,
            uneven in proptest::bool::ANY,
        ) {
            let width = width.min(free.len());
            let groups = (free.iter().sum::<usize>() * share / 100 / group).max(1);
            let search = BalanceSearch::new(&free, groups, group, width);
            let search = if uneven { search.with_uneven_shares() } else { search };
            let actual = search.clone().run();
            let expect = plain(search);
            prop_assert_eq!(actual, expect, "{:?} {} {}", free, groups, width);
        }
    }
}
