//! [`sets`]: the sets of NUMA nodes that a decision compares.

use super::view::View;
use cpuset::NodeSet;
use std::collections::BinaryHeap;
use topology::Sockets;

/// If no more sets of one size exist, all are compared: of nodes, of a node's sockets, and of
/// caches. Otherwise sets of nodes are grown from single nodes.
pub(super) const ALL_SETS: usize = 1200;
/// The most equally near sets that are compared: those with the fewest usable CPUs. These are all
/// sets of up to eight nodes.
const EQUAL_SETS: usize = 70;

/// The number of nodes in all grown sets together. It limits the work.
const GROWTH: usize = 256;

/// Which nodes a container may use, by position.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeBounds {
    pub(super) allowed: NodeSet,
    /// Nodes that the container or its pod uses anyway: they cost nothing.
    pub(super) base: NodeSet,
    /// Nodes of the container's devices: the nearer to them the better.
    pub(super) near: NodeSet,
    /// The most nodes, including those of the base.
    pub(super) most: usize,
}

impl NodeBounds {
    /// All nodes are allowed; the base is the nodes of held CPUs.
    pub(super) fn all(view: &View<'_>) -> NodeBounds {
        NodeBounds {
            allowed: view.all_nodes(),
            base: view.held_nodes,
            near: NodeSet::EMPTY,
            most: usize::MAX,
        }
    }
}

/// Nodes that are added to the base. The order of the fields makes the cheapest set the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AddedNodes {
    /// The number of sockets in `mask`.
    pub(super) sockets: u32,
    /// The sum over all pairs of nodes, and from each node to the base and the devices.
    pub(super) distance: u64,
    pub(super) free: usize,
    pub(super) nodes: NodeSet,
    /// Their sockets and those of the base.
    mask: Sockets,
}

impl AddedNodes {
    /// What makes a set better than any other set whose CPUs have more of it.
    pub(super) fn spread(&self) -> (u32, u64) {
        (self.sockets, self.distance)
    }
}

/// The nodes that can be added to the base, those with the most usable CPUs first.
pub(super) fn others(view: &View<'_>, nodes: &NodeBounds) -> Vec<usize> {
    let others = nodes.allowed.iter();
    let mut others: Vec<usize> =
        others.filter(|&node| view.nodes[node] > 0 && !nodes.base.contains(node)).collect();
    others.sort_by_key(|&node| std::cmp::Reverse(view.nodes[node]));
    others
}

/// Sets of `size` of the `others` that, with the base, have room for `n` CPUs; the nearest first.
/// Without `every`, only the nearest sets, and of these at most [`EQUAL_SETS`].
pub(super) fn sets(
    view: &View<'_>,
    nodes: &NodeBounds,
    others: &[usize],
    size: usize,
    n: usize,
    every: bool,
) -> Vec<AddedNodes> {
    let base: usize = nodes.base.iter().map(|node| view.nodes[node]).sum();
    let needed = n.saturating_sub(base);
    // Single nodes are few enough.
    let limited = !every && size > 1;
    let mut search = SetSearch { view, nodes, others, needed, limited, sets: BinaryHeap::new() };
    let none = search.none();
    if combinations(others.len(), size) <= ALL_SETS {
        search.extend(none, 0, size);
    } else {
        // The larger the sets are, the less they depend on the first node, and the fewer are grown.
        let step = (others.len() * size).div_ceil(GROWTH);
        for &start in others.iter().step_by(step) {
            let grown = search.grow(start, size).into_iter();
            let set = grown.fold(none, |set, node| search.with(set, node));
            if set.nodes.len() == size && set.free >= needed {
                search.offer(set);
            }
        }
    }
    let mut sets = search.sets.into_sorted_vec();
    sets.dedup();
    sets
}

struct SetSearch<'v, 'm> {
    view: &'v View<'m>,
    nodes: &'v NodeBounds,
    others: &'v [usize],
    /// The number of CPUs that the base lacks.
    needed: usize,
    /// Whether only [`EQUAL_SETS`] of the nearest sets are kept.
    limited: bool,
    /// The worst set is on top.
    sets: BinaryHeap<AddedNodes>,
}

impl SetSearch<'_, '_> {
    /// Offers all sets that add `left` nodes to `set`, of the others from position `from` on.
    fn extend(&mut self, set: AddedNodes, from: usize, left: usize) {
        if left == 0 {
            self.offer(set);
            return;
        }
        for at in from..=self.others.len() - left {
            // The others are sorted, so the next ones have the most usable CPUs of all that are
            // left.
            let most = self.others[at..at + left].iter().map(|&node| self.view.nodes[node]);
            if set.free + most.sum::<usize>() < self.needed {
                return;
            }
            let next = self.with(set, self.others[at]);
            if self.limited && self.sets.peek().is_some_and(|set| set.spread() < next.spread()) {
                continue;
            }
            self.extend(next, at + 1, left - 1);
        }
    }

    fn none(&self) -> AddedNodes {
        let mask = self.sockets(self.nodes.base);
        let sockets = mask.count_ones();
        AddedNodes { sockets, distance: 0, free: 0, nodes: NodeSet::EMPTY, mask }
    }

    fn with(&self, set: AddedNodes, node: usize) -> AddedNodes {
        let mask = set.mask | self.view.cells.sockets_of(node);
        AddedNodes {
            sockets: mask.count_ones(),
            distance: set.distance + self.distance(node, set.nodes),
            free: set.free + self.view.nodes[node],
            nodes: set.nodes.union(NodeSet::of(node)),
            mask,
        }
    }

    fn sockets(&self, nodes: NodeSet) -> Sockets {
        nodes.iter().fold(0, |sockets, node| sockets | self.view.cells.sockets_of(node))
    }

    fn offer(&mut self, set: AddedNodes) {
        if self.limited {
            match self.sets.peek() {
                Some(worst) if worst.spread() < set.spread() => return,
                Some(worst) if set.spread() < worst.spread() => self.sets.clear(),
                Some(worst) if self.sets.len() == EQUAL_SETS && set > *worst => return,
                _ => {}
            }
            if self.sets.len() == EQUAL_SETS {
                self.sets.pop();
            }
        }
        self.sets.push(set);
    }

    /// What a node adds to the distance of a set.
    fn distance(&self, node: usize, set: NodeSet) -> u64 {
        let NodeBounds { base, near, .. } = *self.nodes;
        let cells = self.view.cells;
        let to = |nodes: NodeSet| -> u64 {
            nodes.iter().map(|other| u64::from(cells.distance(node, other))).sum()
        };
        to(set) + to(base) + if near.is_empty() { 0 } else { to(near) }
    }

    /// Grows a set from `start`: repeatedly adds the node with the fewest sockets more, of these the
    /// one that is nearest to the set, with which the set can still get room for the request.
    fn grow(&self, start: usize, size: usize) -> Vec<usize> {
        let others = self.others;
        let mut set = vec![start];
        let mut chosen = NodeSet::of(start);
        let mut free = self.view.nodes[start];
        let mut sockets = self.sockets(chosen.union(self.nodes.base));
        let mut distances: Vec<u64> =
            others.iter().map(|&node| self.distance(node, NodeSet::of(start))).collect();
        while set.len() < size {
            let left = size - set.len();
            // With this node and the fullest of the rest, which may include it, the request must
            // fit.
            let rest = || others.iter().filter(|&&node| !chosen.contains(node));
            let fullest: usize = rest().take(left - 1).map(|&node| self.view.nodes[node]).sum();
            let last = rest().nth(left - 1).map_or(0, |&node| self.view.nodes[node]);
            let fits = |node: usize| {
                let own = self.view.nodes[node];
                self.needed <= free + fullest + if own > last { last } else { own }
            };
            let open = others.iter().zip(&distances);
            let open = open.filter(|&(&node, _)| !chosen.contains(node) && fits(node));
            let more = |node: usize| (self.view.cells.sockets_of(node) & !sockets).count_ones();
            let Some((&next, _)) = open
                .min_by_key(|&(node, distance)| (more(*node), *distance, self.view.nodes[*node]))
            else {
                break;
            };
            free += self.view.nodes[next];
            set.push(next);
            sockets |= self.view.cells.sockets_of(next);
            chosen = chosen.union(NodeSet::of(next));
            for (distance, &node) in distances.iter_mut().zip(others) {
                *distance += u64::from(self.view.cells.distance(node, next));
            }
        }
        set
    }
}

/// How many sets of `size` of so many there are; if more than [`ALL_SETS`], some number above it.
pub(super) fn combinations(of: usize, size: usize) -> usize {
    let mut count = 1;
    for at in 0..size.min(of - size.min(of)) {
        count = count * (of - at) / (at + 1);
        if count > ALL_SETS {
            break;
        }
    }
    count
}
