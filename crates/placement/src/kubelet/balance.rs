//! The search behind [`super::distributed`]: which nodes give an even share, and which of them one
//! group more.
//!
//! The kubelet tries all combinations of nodes times all subsets that may give more, and keeps the
//! first of the most balanced. This search goes through them in the same order but leaves out every
//! branch whose best imaginable outcome is no better than what is found already: taking from a node
//! with more free CPUs never makes the rest less even, so the fullest completion of a branch, with
//! its last groups taken greedily from the fullest nodes, is that best outcome. The answer is the
//! same. On a machine with more than eight nodes, uneven enough to defeat this, the search stops
//! after [`TRIES`] choices and the best one so far stands.
//!
//! Of equally balanced choices the first one wins. The kubelet overwrites its first one in part
//! while its search goes on; its answer is mostly as balanced, and the tests compare the balance.

use crate::combinations::next_combination;

/// The most choices of a search: some milliseconds. Eight nodes have fewer.
const TRIES: usize = 20_000;

/// The outcome of one choice: thousandths of the standard deviation of free CPUs over the nodes,
/// rounded.
type Balance = u64;

/// Which nodes give, by index in the list the search was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    balance: Balance,
    /// They give an even share each.
    pub(super) nodes: Vec<usize>,
    /// They give one group more each time they are named, in this order.
    pub(super) rest: Vec<usize>,
}

/// The search over combinations of `width` nodes; nodes are named by index in `free`.
pub(super) struct Search<'a> {
    /// Free CPUs of the nodes in the order they are tried.
    free: &'a [usize],
    /// The same nodes, the one with most free CPUs first.
    fullest: Vec<usize>,
    groups: usize,
    group: usize,
    width: usize,
    tries: usize,
    best: Option<Choice>,
    /// The search drops choices that are not below this.
    below: Balance,
}

impl<'a> Search<'a> {
    /// A search for `groups` groups of `group` CPUs on `width` nodes with so many free CPUs each.
    pub(super) fn new(free: &'a [usize], groups: usize, group: usize, width: usize) -> Search<'a> {
        let mut fullest: Vec<usize> = (0..free.len()).collect();
        fullest.sort_by_key(|&node| std::cmp::Reverse(free[node]));
        let width = width.clamp(1, free.len().max(1));
        Search { free, fullest, groups, group, width, tries: 0, best: None, below: Balance::MAX }
    }

    /// The first of the most balanced choices, if any combination of so many nodes can give its
    /// share.
    pub(super) fn run(mut self) -> Option<Choice> {
        // No choice is better than the fullest nodes, so they give a first bound; the kubelet would
        // find an equally good one that comes earlier.
        let mut fullest: Vec<usize> = self.fullest.iter().copied().take(self.width).collect();
        fullest.sort_unstable();
        let bound = self.best_with(&fullest)?;
        self.below = bound.balance.saturating_add(1);
        self.walk(&mut Vec::new(), 0);
        Some(self.best.take().unwrap_or(bound))
    }

    /// Goes through the combinations that begin with `chosen` and go on with nodes from `next`, in
    /// order.
    fn walk(&mut self, chosen: &mut Vec<usize>, next: usize) {
        self.tries += 1;
        if self.tries > TRIES {
            return;
        }
        let more = self.width - chosen.len();
        let later = self.fullest.iter().copied().filter(|&node| node >= next).take(more);
        let completed: Vec<usize> = chosen.iter().copied().chain(later).collect();
        if self.least(&completed).is_none_or(|least| least >= self.below) {
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
        for node in next..self.free.len() {
            chosen.push(node);
            self.walk(chosen, node + 1);
            chosen.pop();
        }
    }

    /// Groups each of the nodes gives, and groups left over.
    fn even(&self) -> (usize, usize) {
        (self.groups / self.width, self.groups % self.width)
    }

    /// What is free on every node after these gave their even share; `None` if one has less, or all
    /// have too little.
    fn after_even(&self, nodes: &[usize]) -> Option<Vec<usize>> {
        let (even, _) = self.even();
        let mut after = self.free.to_vec();
        let mut groups = 0;
        for &node in nodes {
            groups += after[node] / self.group;
            after[node] = after[node].checked_sub(even * self.group)?;
        }
        (nodes.len() == self.width && groups >= self.groups).then_some(after)
    }

    /// A balance no choice with these nodes can be below.
    fn least(&self, nodes: &[usize]) -> Option<Balance> {
        let mut after = self.after_even(nodes)?;
        for _ in 0..self.even().1 {
            let fullest = nodes.iter().copied().max_by_key(|&node| after[node])?;
            after[fullest] = after[fullest].checked_sub(self.group)?;
        }
        Some(balance(&after))
    }

    /// The best choice with exactly these nodes: which of them give the groups left over.
    ///
    /// As many as possible are tried first, then fewer, so that the groups spread as far as balance
    /// lets them.
    fn best_with(&mut self, nodes: &[usize]) -> Option<Choice> {
        let after = self.after_even(nodes)?;
        let (_, left) = self.even();
        let nodes = nodes.to_vec();
        if left == 0 {
            return Some(Choice { balance: balance(&after), nodes, rest: Vec::new() });
        }
        let least = self.least(&nodes)?;
        let able: Vec<usize> =
            nodes.iter().copied().filter(|&node| after[node] >= self.group).collect();
        let mut best: Option<Choice> = None;
        for size in (1..=able.len()).rev() {
            let mut subset: Vec<usize> = (0..size).collect();
            loop {
                self.tries += 1;
                if let Some((balance, rest)) = self.hand_out(&after, &able, &subset, left)
                    && best.as_ref().is_none_or(|best| balance < best.balance)
                {
                    best = Some(Choice { balance, nodes: nodes.clone(), rest });
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

    /// Hands `left` groups out over the givers among the able, one each in turn as long as it has
    /// one.
    fn hand_out(
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

/// Thousandths of the standard deviation, rounded; the mean is rounded to thousandths before, as
/// the kubelet does.
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

    /// Every combination and every subset, in order, as the kubelet walks them.
    fn plain(free: &[usize], groups: usize, group: usize, width: usize) -> Option<Choice> {
        let mut search = Search::new(free, groups, group, width);
        let mut best: Option<Choice> = None;
        let mut nodes: Vec<usize> = (0..width).collect();
        loop {
            if let Some(after) = search.after_even(&nodes) {
                let able = nodes.iter().copied().filter(|&node| after[node] >= group);
                let able: Vec<usize> = able.collect();
                let mut local: Option<Choice> = None;
                let (_, left) = search.even();
                if left == 0 {
                    local = search.best_with(&nodes);
                }
                for size in (1..=able.len()).rev().filter(|_| left > 0) {
                    let mut subset: Vec<usize> = (0..size).collect();
                    loop {
                        if let Some((balance, rest)) = search.hand_out(&after, &able, &subset, left)
                            && local.as_ref().is_none_or(|local| balance < local.balance)
                        {
                            local = Some(Choice { balance, nodes: nodes.clone(), rest });
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
            if !next_combination(&mut nodes, free.len()) {
                return best;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_search_finds_what_plain_enumeration_finds(
            free in prop::collection::vec(1..24usize, 1..8),
            share in 1..100usize,
            group in 1..5usize,
            width in 1..8usize,
        ) {
            let width = width.min(free.len());
            let groups = (free.iter().sum::<usize>() * share / 100 / group).max(1);
            let found = Search::new(&free, groups, group, width).run();
            let expect = plain(&free, groups, group, width);
            prop_assert_eq!(found, expect, "{:?} {} {}", free, groups, width);
        }
    }
}
