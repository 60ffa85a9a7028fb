//! The nearest set of NUMA nodes of a given size (KEP-3545): least total distance, then lowest
//! binary number.
//!
//! The number of all sets doubles with each node. Here nodes that are equally far from every other
//! node form a *group* (usually the nodes of a socket): which of them are chosen does not matter
//! for distance, only how many. The search tries numbers of nodes per group, from the group with
//! the highest node down, smallest numbers first. It skips a branch
//!
//! * if even its fullest completion cannot hold the request, or touches the wrong number of
//!   sockets;
//! * if a lower bound of its distances exceeds the best set so far (the bound puts every further
//!   node as near to the chosen ones and to its nearest companions as possible);
//! * if the bound equals the best set, and the lowest possible nodes are a higher binary number.
//!
//! Where whole cores must add up to the request, these numbers are upper bounds, and
//! [`Demand::lowest`] finds that a completion does not add up.
//!
//! A skipped branch has no better set, so the answer is that of full enumeration. Inside the groups
//! [`Demand::lowest`] picks the nodes. A greedy choice gives the first bound.
//!
//! Finding the nearest nodes is a hard problem in general: with dozens of nodes and unstructured
//! distances the search would take too long. It stops after [`EFFORT`] steps and returns the best
//! set so far, which holds the request with the fewest nodes, but another set may be nearer.
//! Machines of up to ten nodes never reach that limit, nor did tests with 16 nodes at random
//! distances or with 64 nodes whose distances follow up to eight sockets. A real machine of 64
//! nodes in a fat tree reached it with requests for 15 nodes and more.

use super::demand::{CandidateNode, Demand};
use cpuset::NodeSet;

/// The most steps of a search, one for each pair of groups: a few milliseconds.
const EFFORT: usize = 1_000_000;

/// Nodes that are equally far from every other node.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    /// Indices, ascending.
    pub(super) members: Vec<usize>,
    /// The sockets of its nodes, if sockets matter.
    sockets: u128,
    /// The distance of a member to itself, doubled. All sums here are doubled, so that the share of
    /// each node, half of every pair, is an integer.
    own: u64,
    /// The distance to a member of each group and back, by position of the group; for its own
    /// group, between two members.
    to: Vec<u64>,
}

impl Group {
    /// All nodes in one group, where distances do not matter.
    pub(super) fn all(nodes: usize) -> Group {
        Group { members: (0..nodes).collect(), ..Group::default() }
    }
}

/// Puts nodes into groups. The group with the highest node comes first.
pub(super) fn group_by_distance(
    nodes: &[CandidateNode],
    by_socket: bool,
    distance: impl Fn(usize, usize) -> u64,
) -> Vec<Group> {
    let numbers: Vec<usize> = nodes.iter().map(|node| node.number).collect();
    let pair = |one: usize, other: usize| {
        distance(numbers[one], numbers[other]) + distance(numbers[other], numbers[one])
    };
    let count = nodes.len();
    let matrix: Vec<Vec<u64>> =
        (0..count).map(|one| (0..count).map(|other| pair(one, other)).collect()).collect();
    let alike = |one: usize, other: usize| {
        matrix[one][one] == matrix[other][other]
            && (0..count).all(|third| {
                third == one || third == other || matrix[one][third] == matrix[other][third]
            })
    };
    let mut groups: Vec<Group> = Vec::new();
    for (index, node) in nodes.iter().enumerate().rev() {
        let sockets = if by_socket { node.sockets } else { 0 };
        let same = |group: &&mut Group| group.sockets == sockets && alike(group.members[0], index);
        match groups.iter_mut().find(same) {
            Some(group) => group.members.push(index),
            None => groups.push(Group { members: vec![index], sockets, ..Group::default() }),
        }
    }
    // The first two members of a group stand for all its pairs. No group is empty.
    let heads: Vec<(usize, Option<usize>)> =
        groups.iter().map(|group| (group.members[0], group.members.get(1).copied())).collect();
    for (group, &(first, second)) in groups.iter_mut().zip(&heads) {
        group.members.reverse();
        group.own = matrix[first][first];
        let to = |&(other, _): &(usize, Option<usize>)| {
            let to = if other == first { second } else { Some(other) };
            to.map_or(0, |to| matrix[first][to])
        };
        group.to = heads.iter().map(to).collect();
    }
    groups
}

pub(super) struct NearestSearch<'d> {
    demand: &'d Demand,
    groups: Vec<Group>,
    /// The number of nodes to choose.
    size: usize,
    /// The number of sockets that they must touch, if that matters.
    sockets: Option<usize>,
    /// By group: all groups including itself, nearest first.
    nearest: Vec<Vec<usize>>,
    /// By group and number of nodes: the most free CPUs that these nodes can have, if nodes that
    /// must be included come first.
    own_reach: Vec<Vec<usize>>,
    /// By group and number of nodes: the most free CPUs that these nodes of this and later groups
    /// can have.
    rest_reach: Vec<Vec<usize>>,
    /// By group: how many of its nodes must be included.
    must: Vec<usize>,
    /// For each group that the search has decided on, the number of chosen nodes.
    counts: Vec<usize>,
    effort: usize,
    best: Option<(u64, NodeSet)>,
}

/// Sums over the groups that the search has decided on.
#[derive(Clone, Copy)]
struct Decided {
    /// How many nodes are still to be chosen.
    left: usize,
    /// The total distance of the chosen nodes, doubled.
    cost: u64,
    /// The most free CPUs that the chosen nodes can have.
    reach: usize,
    sockets: u128,
    /// The lowest possible set of chosen nodes.
    lowest: NodeSet,
}

impl<'d> NearestSearch<'d> {
    pub(super) fn new(demand: &'d Demand, groups: Vec<Group>) -> NearestSearch<'d> {
        let free = |&index: &usize| demand.nodes[index].free;
        let must = |&index: &usize| demand.nodes[index].must;
        let nearest = groups.iter().map(|group| {
            let mut order: Vec<usize> = (0..groups.len()).collect();
            order.sort_by_key(|&other| group.to[other]);
            order
        });
        let own_reach = groups.iter().map(|group| {
            let mut members: Vec<(bool, usize)> =
                group.members.iter().map(|index| (must(index), free(index))).collect();
            members.sort_unstable_by(|one, other| other.cmp(one));
            running_sums(members.into_iter().map(|(_, free)| free))
        });
        let rest_reach = (0..=groups.len()).map(|at| {
            let rest = groups.iter().skip(at);
            let mut members: Vec<usize> =
                rest.flat_map(|group| group.members.iter().map(free)).collect();
            members.sort_unstable_by(|one, other| other.cmp(one));
            running_sums(members)
        });
        let must =
            groups.iter().map(|group| group.members.iter().filter(|&index| must(index)).count());
        NearestSearch {
            nearest: nearest.collect(),
            own_reach: own_reach.collect(),
            rest_reach: rest_reach.collect(),
            must: must.collect(),
            demand,
            groups,
            size: 0,
            sockets: None,
            counts: Vec::new(),
            effort: 0,
            best: None,
        }
    }

    /// The best set of `size` nodes, by index, on exactly `sockets` sockets if given; `None` if no
    /// such set holds the request.
    ///
    /// All runs of one search share its [`EFFORT`].
    pub(super) fn run(&mut self, size: usize, sockets: Option<usize>) -> Option<NodeSet> {
        self.size = size;
        self.sockets = sockets;
        self.best = None;
        let none = Decided { left: size, cost: 0, reach: 0, sockets: 0, lowest: NodeSet::EMPTY };
        if !self.can_hold(0, none) {
            return None;
        }
        for start in 0..self.groups.len() {
            self.offer(self.greedy(self.groups[start].members[0]));
        }
        self.walk(none);
        self.best.map(|(_, set)| set)
    }

    fn offer(&mut self, candidate: Option<(u64, NodeSet)>) {
        if let Some(candidate) = candidate
            && self.best.is_none_or(|best| candidate < best)
        {
            self.best = Some(candidate);
        }
    }

    /// Tries all numbers of nodes of the next group, after the groups whose numbers are in
    /// `counts`.
    fn walk(&mut self, decided: Decided) {
        let at = self.counts.len();
        self.effort += self.groups.len();
        if self.effort > EFFORT || !self.can_hold(at, decided) || self.is_no_better(at, decided) {
            return;
        }
        let Some(group) = self.groups.get(at) else {
            let set = self.demand.lowest(&self.groups, &self.counts);
            self.offer(set.map(|set| (decided.cost, set)));
            return;
        };
        let own = group.own;
        let sockets = group.sockets;
        let inside = group.to[at];
        let to_chosen: u64 =
            group.to.iter().zip(&self.counts).map(|(to, &count)| to * count as u64).sum();
        let must = self.must[at];
        let members = group.members.clone();
        for count in must..=members.len().min(decided.left) {
            let nodes = count as u64;
            let next = Decided {
                left: decided.left - count,
                cost: decided.cost
                    + nodes * own
                    + 2 * nodes * to_chosen
                    + nodes * nodes.saturating_sub(1) * inside,
                reach: decided.reach + self.own_reach[at][count],
                sockets: if count > 0 { decided.sockets | sockets } else { decided.sockets },
                lowest: decided.lowest.union(self.lowest_of(&members, count, must)),
            };
            self.counts.push(count);
            self.walk(next);
            self.counts.pop();
        }
    }

    /// The lowest set of `count` members with the `must` members that must be included.
    fn lowest_of(&self, members: &[usize], count: usize, must: usize) -> NodeSet {
        let mut free_choice = count - must;
        let chosen = members.iter().copied().filter(|&index| {
            let must = self.demand.nodes[index].must;
            let chosen = must || free_choice > 0;
            free_choice -= usize::from(chosen && !must);
            chosen
        });
        chosen.collect()
    }

    /// Whether the groups from `at` on could complete the set so that it holds the request.
    fn can_hold(&self, at: usize, decided: Decided) -> bool {
        // None if fewer nodes are left than must still be chosen.
        let Some(&rest) = self.rest_reach[at].get(decided.left) else { return false };
        let must: usize = self.must.iter().skip(at).sum();
        if decided.reach + rest < self.demand.n || decided.left < must {
            return false;
        }
        let Some(needed) = self.sockets else { return true };
        let touched = decided.sockets.count_ones() as usize;
        let later = self.groups.iter().skip(at).fold(0, |all, group| all | group.sockets);
        let new = (later & !decided.sockets).count_ones() as usize;
        let enough = needed <= touched + new.min(decided.left);
        touched <= needed
            && enough
            && (rest == 0 || self.fits_sockets(at, decided, needed - touched))
    }

    /// Whether the fullest `more` further sockets could hold what is missing.
    fn fits_sockets(&self, at: usize, decided: Decided, more: usize) -> bool {
        let mut old = 0;
        let mut new: Vec<(u128, usize)> = Vec::new();
        for (group, reach) in self.groups.iter().zip(&self.own_reach).skip(at) {
            let most = reach[decided.left.min(group.members.len())];
            match new.iter_mut().find(|(sockets, _)| *sockets == group.sockets) {
                _ if group.sockets & !decided.sockets == 0 => old += most,
                Some((_, sum)) => *sum += most,
                None => new.push((group.sockets, most)),
            }
        }
        new.sort_unstable_by_key(|&(_, sum)| std::cmp::Reverse(sum));
        let most: usize = new.iter().take(more).map(|(_, sum)| sum).sum();
        self.demand.n <= decided.reach + old + most
    }

    /// Whether no completion can be better than the best set so far.
    fn is_no_better(&mut self, at: usize, decided: Decided) -> bool {
        let Some((cost, set)) = self.best else { return false };
        let least = self.least_cost(at, decided);
        cost < least || (cost == least && set <= decided.lowest)
    }

    /// A lower bound of the doubled distances of all completions.
    fn least_cost(&mut self, at: usize, decided: Decided) -> u64 {
        if decided.left == 0 {
            return decided.cost;
        }
        let mut nodes: Vec<(u64, usize)> = Vec::with_capacity(self.groups.len() - at);
        for (group, nearest) in self.groups.iter().zip(&self.nearest).skip(at) {
            let chosen = group.to.iter().zip(&self.counts);
            let to_chosen: u64 = chosen.map(|(to, &count)| to * count as u64).sum();
            let mut companions = decided.left - 1;
            let mut to_companions = 0;
            for &other in nearest.iter().filter(|&&other| other >= at) {
                self.effort += 1;
                if companions == 0 {
                    break;
                }
                let there = &self.groups[other];
                let itself = usize::from(there.members.first() == group.members.first());
                let count = (there.members.len() - itself).min(companions);
                companions -= count;
                to_companions += group.to[other] * count as u64;
            }
            nodes.push((group.own + 2 * to_chosen + to_companions, group.members.len()));
        }
        nodes.sort_unstable();
        let mut left = decided.left;
        let mut least = decided.cost;
        for (cost, count) in nodes {
            let count = count.min(left);
            left -= count;
            least += cost * count as u64;
        }
        least
    }

    /// Grows a set from `first` and the nodes that must be included: repeatedly adds the node that
    /// is nearest to the set and with which the set can still hold the request.
    fn greedy(&self, first: usize) -> Option<(u64, NodeSet)> {
        let nodes = &self.demand.nodes;
        let mut group_of = vec![0; nodes.len()];
        for (at, group) in self.groups.iter().enumerate() {
            group.members.iter().for_each(|&index| group_of[index] = at);
        }
        let mut chosen = NodeSet::EMPTY;
        let mut cost = 0;
        let mut free = 0;
        let mut sockets = 0u128;
        // By index: what adding the node costs: twice its distances to the chosen nodes and back,
        // plus the distance to itself.
        let mut costs: Vec<u64> = group_of.iter().map(|&at| self.groups[at].own).collect();
        let musts = nodes.iter().enumerate().filter(|(_, node)| node.must).map(|(index, _)| index);
        let mut next: Vec<usize> = musts.chain([first]).rev().collect();
        loop {
            let index = match next.pop() {
                Some(index) if chosen.contains(index) => continue,
                Some(index) => index,
                None if chosen.len() == self.size => break,
                None => self.nearest_to(chosen, free, sockets, &costs)?,
            };
            if chosen.len() == self.size {
                return None;
            }
            let node = &nodes[index];
            chosen = chosen.union(NodeSet::of(index));
            cost += costs[index];
            free += node.free;
            sockets |= node.sockets;
            let to = &self.groups[group_of[index]].to;
            for (cost, &at) in costs.iter_mut().zip(&group_of) {
                *cost += 2 * to[at];
            }
        }
        let aligned = self.sockets.is_none_or(|needed| sockets.count_ones() as usize == needed);
        let holds = self.demand.n <= free && self.demand.adds_up(chosen.iter());
        if holds && aligned { Some((cost, chosen)) } else { None }
    }

    /// The node with the least cost with which the set can still hold the request.
    fn nearest_to(
        &self,
        chosen: NodeSet,
        free: usize,
        sockets: u128,
        costs: &[u64],
    ) -> Option<usize> {
        let left = self.size - chosen.len();
        let nodes = self.demand.nodes.iter().enumerate();
        let others = nodes.filter(|&(index, _)| !chosen.contains(index));
        let mut frees: Vec<usize> = others.clone().map(|(_, node)| node.free).collect();
        frees.sort_unstable_by(|one, other| other.cmp(one));
        let fullest: usize = frees.iter().take(left - 1).sum();
        let fits = |node: &CandidateNode| {
            // With this node and the fullest of the rest, which may include it.
            let most = match frees.get(left - 1) {
                Some(&last) if node.free > last => fullest + last,
                _ => fullest + node.free,
            };
            let touched = (sockets | node.sockets).count_ones() as usize;
            self.demand.n <= free + most && self.sockets.is_none_or(|needed| touched <= needed)
        };
        let fitting = others.filter(|(_, node)| fits(node)).map(|(index, _)| index);
        fitting.min_by_key(|&index| (costs[index], index))
    }
}

/// The sums of the first 0, 1, 2 ... values.
fn running_sums(values: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let sums = values.into_iter().scan(0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}
