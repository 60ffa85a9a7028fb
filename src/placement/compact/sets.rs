//! [`sets`]: the sets of NUMA nodes that a decision looks into.

use super::view::View;
use crate::nodeset::NodeSet;
use crate::placement::combinations::next_combination;

/// Up to so many sets of one size are all looked at.
const ALL_SETS: usize = 1200;
/// Of equally near sets, so many with the fewest usable CPUs are looked into.
const EQUAL_SETS: usize = 24;

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
    let mut found = Found { view, nodes, wanted: n.saturating_sub(base), every, sets: Vec::new() };
    if combinations(others.len(), size) <= ALL_SETS {
        let mut indices: Vec<usize> = (0..size).collect();
        loop {
            found.offer(indices.iter().map(|&index| others[index]));
            if !next_combination(&mut indices, others.len()) {
                break;
            }
        }
    } else {
        for &start in others {
            found.offer(found.around(start, others, size).into_iter());
        }
    }
    let mut sets = found.sets;
    sets.sort_unstable();
    sets.dedup();
    sets
}

struct Found<'v, 'm> {
    view: &'v View<'m>,
    nodes: &'v Nodes,
    /// CPUs that the base lacks.
    wanted: usize,
    every: bool,
    sets: Vec<Candidate>,
}

impl Found<'_, '_> {
    fn offer(&mut self, added: impl Iterator<Item = usize> + Clone) {
        let free = added.clone().map(|node| self.view.nodes[node]).sum();
        if free < self.wanted {
            return;
        }
        let mut nodes = NodeSet::EMPTY;
        let mut distance = 0;
        for node in added {
            distance += self.distance(node, nodes);
            nodes = nodes.union(NodeSet::of(node));
        }
        let set = Candidate { distance, free, nodes };
        if self.every || nodes.len() < 2 {
            self.sets.push(set);
            return;
        }
        match self.sets.first() {
            Some(best) if best.distance < distance => return,
            Some(best) if distance < best.distance => self.sets.clear(),
            _ => {}
        }
        if self.sets.len() < EQUAL_SETS {
            self.sets.push(set);
        } else if let Some(worst) = self.sets.iter_mut().max()
            && set < *worst
        {
            *worst = set;
        }
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
    fn around(&self, start: usize, others: &[usize], size: usize) -> Vec<usize> {
        let mut set = vec![start];
        let mut free = self.view.nodes[start];
        let mut distances: Vec<u64> =
            others.iter().map(|&node| self.distance(node, NodeSet::of(start))).collect();
        while set.len() < size {
            let left = size - set.len();
            // The fullest nodes that are left, of which this one may be one.
            let rest = || others.iter().filter(|node| !set.contains(node));
            let fullest: usize = rest().take(left - 1).map(|&node| self.view.nodes[node]).sum();
            let last = rest().nth(left - 1).map_or(0, |&node| self.view.nodes[node]);
            let fits = |node: usize| {
                let own = self.view.nodes[node];
                self.wanted <= free + fullest + if own > last { last } else { own }
            };
            let open = others.iter().zip(&distances);
            let open = open.filter(|&(node, _)| !set.contains(node) && fits(*node));
            let Some((&next, _)) =
                open.min_by_key(|&(node, distance)| (*distance, self.view.nodes[*node]))
            else {
                break;
            };
            free += self.view.nodes[next];
            set.push(next);
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
