//! [`sets`]: the sets of NUMA nodes that a decision looks into.

use super::view::View;
use cpuset::NodeSet;
use std::collections::BinaryHeap;

/// Up to so many sets of one size are all looked at.
const ALL_SETS: usize = 1200;
/// Of equally near sets, so many with the fewest usable CPUs are looked into.
const EQUAL_SETS: usize = 24;

/// So many nodes, over all sets, are found by growing sets.
const GROWTH: usize = 256;

/// Which nodes a container may use, by position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes {
    pub(super) allowed: NodeSet,
    /// Those that the container or its pod uses anyway: they cost nothing.
    pub(super) base: NodeSet,
    /// Those of its devices: the nearer the better.
    pub(super) near: NodeSet,
    /// The most nodes, those of the base included.
    pub(super) most: usize,
}

impl Nodes {
    /// All nodes, from those on that the container holds CPUs of.
    pub(super) fn all(view: &View<'_>) -> Nodes {
        Nodes {
            allowed: view.all_nodes(),
            base: view.held_nodes,
            near: NodeSet::EMPTY,
            most: usize::MAX,
        }
    }
}

/// Nodes added to the base, in the order of what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// Of all pairs of nodes, and from them to the devices.
    pub(super) distance: u64,
    pub(super) free: usize,
    pub(super) nodes: NodeSet,
}

/// The nodes that can be added, the fullest of usable CPUs first.
pub(super) fn others(view: &View<'_>, nodes: &Nodes) -> Vec<usize> {
    let others = nodes.allowed.iter();
    let mut others: Vec<usize> =
        others.filter(|&node| view.nodes[node] > 0 && !nodes.base.contains(node)).collect();
    others.sort_by_key(|&node| std::cmp::Reverse(view.nodes[node]));
    others
}

/// Sets of `size` of the `others` that have room for `n` CPUs, with the base; the nearest first.
/// Without `every`, only those that are as near as the nearest, and of many not all.
pub(super) fn sets(
    view: &View<'_>,
    nodes: &Nodes,
    others: &[usize],
    size: usize,
    n: usize,
    every: bool,
) -> Vec<Candidate> {
    let base: usize = nodes.base.iter().map(|node| view.nodes[node]).sum();
    let wanted = n.saturating_sub(base);
    // Single nodes are few enough.
    let limited = !every && size > 1;
    let mut found = Found { view, nodes, others, wanted, limited, sets: BinaryHeap::new() };
    let none = Candidate { distance: 0, free: 0, nodes: NodeSet::EMPTY };
    if combinations(others.len(), size) <= ALL_SETS {
        found.extend(none, 0, size);
    } else {
        // The larger the sets, the less they depend on where they begin.
        let step = (others.len() * size).div_ceil(GROWTH);
        for &start in others.iter().step_by(step) {
            let set = found.around(start, size).into_iter();
            let set = set.fold(none, |set, node| found.with(set, node));
            if set.nodes.len() == size && set.free >= wanted {
                found.offer(set);
            }
        }
    }
    let mut sets = found.sets.into_sorted_vec();
    sets.dedup();
    sets
}

struct Found<'v, 'm> {
    view: &'v View<'m>,
    nodes: &'v Nodes,
    others: &'v [usize],
    /// CPUs that the base lacks.
    wanted: usize,
    /// Whether the nearest sets, and of many equally near ones some, are enough.
    limited: bool,
    /// The worst on top.
    sets: BinaryHeap<Candidate>,
}

impl Found<'_, '_> {
    /// Offers all sets that have `left` more nodes than `set`, of the others from this position on.
    fn extend(&mut self, set: Candidate, from: usize, left: usize) {
        if left == 0 {
            self.offer(set);
            return;
        }
        for at in from..=self.others.len() - left {
            // These are the fullest ones that are left.
            let most = self.others[at..at + left].iter().map(|&node| self.view.nodes[node]);
            if set.free + most.sum::<usize>() < self.wanted {
                return;
            }
            let next = self.with(set, self.others[at]);
            if self.limited && self.sets.peek().is_some_and(|set| set.distance < next.distance) {
                continue;
            }
            self.extend(next, at + 1, left - 1);
        }
    }

    fn with(&self, set: Candidate, node: usize) -> Candidate {
        Candidate {
            distance: set.distance + self.distance(node, set.nodes),
            free: set.free + self.view.nodes[node],
            nodes: set.nodes.union(NodeSet::of(node)),
        }
    }

    fn offer(&mut self, set: Candidate) {
        if self.limited {
            match self.sets.peek() {
                Some(worst) if worst.distance < set.distance => return,
                Some(worst) if set.distance < worst.distance => self.sets.clear(),
                Some(worst) if self.sets.len() == EQUAL_SETS && set > *worst => return,
                _ => {}
            }
            if self.sets.len() == EQUAL_SETS {
                self.sets.pop();
            }
        }
        self.sets.push(set);
    }

    /// What a node adds to the distance of a set and the base.
    fn distance(&self, node: usize, set: NodeSet) -> u64 {
        let Nodes { base, near, .. } = *self.nodes;
        let cells = self.view.cells;
        let to = |nodes: NodeSet| -> u64 {
            nodes.iter().map(|other| u64::from(cells.distance(node, other))).sum()
        };
        to(set) + to(base) + if near.is_empty() { 0 } else { to(near) }
    }

    /// The node `start`, and again and again the node nearest to those before that leaves the request
    /// possible.
    fn around(&self, start: usize, size: usize) -> Vec<usize> {
        let others = self.others;
        let mut set = vec![start];
        let mut chosen = NodeSet::of(start);
        let mut free = self.view.nodes[start];
        let mut distances: Vec<u64> =
            others.iter().map(|&node| self.distance(node, NodeSet::of(start))).collect();
        while set.len() < size {
            let left = size - set.len();
            // The fullest nodes that are left, of which this one may be one.
            let rest = || others.iter().filter(|&&node| !chosen.contains(node));
            let fullest: usize = rest().take(left - 1).map(|&node| self.view.nodes[node]).sum();
            let last = rest().nth(left - 1).map_or(0, |&node| self.view.nodes[node]);
            let fits = |node: usize| {
                let own = self.view.nodes[node];
                self.wanted <= free + fullest + if own > last { last } else { own }
            };
            let open = others.iter().zip(&distances);
            let open = open.filter(|&(&node, _)| !chosen.contains(node) && fits(node));
            let Some((&next, _)) =
                open.min_by_key(|&(node, distance)| (*distance, self.view.nodes[*node]))
            else {
                break;
            };
            free += self.view.nodes[next];
            set.push(next);
            chosen = chosen.union(NodeSet::of(next));
            for (distance, &node) in distances.iter_mut().zip(others) {
                *distance += u64::from(self.view.cells.distance(node, next));
            }
        }
        set
    }
}

/// How many sets of `size` there are, or more than are looked at.
fn combinations(of: usize, size: usize) -> usize {
    let mut count = 1;
    for at in 0..size.min(of - size.min(of)) {
        count = count * (of - at) / (at + 1);
        if count > ALL_SETS {
            break;
        }
    }
    count
}
