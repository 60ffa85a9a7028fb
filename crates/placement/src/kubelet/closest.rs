//! The nearest set of NUMA nodes of a given size (KEP-3545): least total distance, then lowest
//! binary number.
//!
//! Trying all sets doubles with each node. Here nodes that are equally far from every other node
//! form a *group* (the nodes of a socket, as a rule), since for distance it does not matter which
//! of them are chosen, only how many. The search goes over the numbers of nodes per group, from the
//! group with the highest node down, smallest numbers first, and leaves a branch
//!
//! * if even its fullest completion cannot hold the request, or touches the wrong number of
//!   sockets;
//! * if its distances, with every node still to come as near to the chosen ones and to its nearest
//!   companions as it can be, exceed the best found;
//! * if they equal it and the lowest nodes it can have are already a higher binary number.
//!
//! No branch with a better set is left, so the answer is the one full enumeration has. Inside the
//! groups [`Demand::lowest`] picks the nodes. A greedy choice gives the first bound.
//!
//! Finding the nearest nodes is a hard problem in general; with dozens of nodes and distances
//! without structure the search would not end. It stops after [`EFFORT`] steps and returns the best
//! set so far: it holds the request with the fewest nodes, but others may be nearer. Machines of up
//! to ten nodes never reach that limit, nor did tests with 16 nodes at random distances or with 64
//! nodes whose distances follow up to eight sockets. A real machine of 64 nodes in a fat tree
//! reached it with requests for 15 nodes and more.

use super::demand::{CandidateNode, Demand};
use cpuset::NodeSet;

/// The most steps of a search (one step for one pair of groups): a few milliseconds.
const EFFORT: usize = 1_000_000;

/// Nodes that are equally far from every other node.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    /// Indices, ascending.
    pub(super) members: Vec<usize>,
    /// The sockets of its nodes, if sockets matter.
    sockets: u128,
    /// Distance of a member to itself, counted twice: all figures here are doubled, so that half a
    /// pair is whole.
    own: u64,
    /// Distance to a member of each group and back, by position of the group; inside the group for
    /// its own.
    to: Vec<u64>,
}

impl Group {
    /// All nodes, where distances do not count.
    pub(super) fn all(nodes: usize) -> Group {
        Group { members: (0..nodes).collect(), ..Group::default() }
    }
}

/// Puts nodes into groups, the group with the highest node first.
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
    // A group's first two members stand for all pairs in it. None is empty.
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

pub(super) struct Search<'d> {
    demand: &'d Demand,
    groups: Vec<Group>,
    /// Nodes to choose.
    size: usize,
    /// Sockets they touch, if that matters.
    sockets: Option<usize>,
    /// By group: the others and itself, nearest first.
    nearest: Vec<Vec<usize>>,
    /// By group and number of nodes: most free CPUs they can have, nodes that must be in among
    /// them.
    own_reach: Vec<Vec<usize>>,
    /// By group and number of nodes: most free CPUs so many nodes of this group and those after it
    /// can have.
    rest_reach: Vec<Vec<usize>>,
    /// By group: how many of its nodes must be in.
    must: Vec<usize>,
    /// Nodes chosen of each group the walk has passed.
    counts: Vec<usize>,
    effort: usize,
    best: Option<(u64, NodeSet)>,
}

/// What the groups passed so far amount to.
#[derive(Clone, Copy)]
struct Passed {
    /// Nodes still to be chosen.
    left: usize,
    /// Total distance of the chosen, doubled.
    cost: u64,
    /// Most free CPUs they can have.
    reach: usize,
    sockets: u128,
    /// The lowest set they can be.
    lowest: NodeSet,
}

impl<'d> Search<'d> {
    pub(super) fn new(demand: &'d Demand, groups: Vec<Group>) -> Search<'d> {
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
        Search {
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

    /// The best set of so many nodes, by index, on exactly so many sockets if any number is given;
    /// `None` if no such set holds the request.
    ///
    /// All runs of one search share its [`EFFORT`].
    pub(super) fn run(&mut self, size: usize, sockets: Option<usize>) -> Option<NodeSet> {
        (self.size, self.sockets, self.best) = (size, sockets, None);
        let none = Passed { left: size, cost: 0, reach: 0, sockets: 0, lowest: NodeSet::EMPTY };
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

    /// Goes on after the groups passed, whose numbers are in `counts`.
    fn walk(&mut self, passed: Passed) {
        let at = self.counts.len();
        self.effort += self.groups.len();
        if self.effort > EFFORT || !self.can_hold(at, passed) || self.is_no_better(at, passed) {
            return;
        }
        let Some(group) = self.groups.get(at) else {
            let set = self.demand.lowest(&self.groups, &self.counts);
            self.offer(set.map(|set| (passed.cost, set)));
            return;
        };
        let own = group.own;
        let sockets = group.sockets;
        let inside = group.to[at];
        let to_chosen: u64 =
            group.to.iter().zip(&self.counts).map(|(to, &count)| to * count as u64).sum();
        let must = self.must[at];
        let members = group.members.clone();
        for count in must..=members.len().min(passed.left) {
            let nodes = count as u64;
            let next = Passed {
                left: passed.left - count,
                cost: passed.cost
                    + nodes * own
                    + 2 * nodes * to_chosen
                    + nodes * nodes.saturating_sub(1) * inside,
                reach: passed.reach + self.own_reach[at][count],
                sockets: if count > 0 { passed.sockets | sockets } else { passed.sockets },
                lowest: passed.lowest.union(self.lowest_of(&members, count, must)),
            };
            self.counts.push(count);
            self.walk(next);
            self.counts.pop();
        }
    }

    /// The lowest set of so many members that has those that must be in.
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

    /// Whether the groups still to come could complete what was passed to a set that holds the
    /// request.
    fn can_hold(&self, at: usize, passed: Passed) -> bool {
        // Fewer nodes may be left than are still to be chosen.
        let Some(&rest) = self.rest_reach[at].get(passed.left) else { return false };
        let must: usize = self.must.iter().skip(at).sum();
        if passed.reach + rest < self.demand.n || passed.left < must {
            return false;
        }
        let Some(wanted) = self.sockets else { return true };
        let touched = passed.sockets.count_ones() as usize;
        let later = self.groups.iter().skip(at).fold(0, |all, group| all | group.sockets);
        let new = (later & !passed.sockets).count_ones() as usize;
        let enough = wanted <= touched + new.min(passed.left);
        touched <= wanted
            && enough
            && (rest == 0 || self.fits_sockets(at, passed, wanted - touched))
    }

    /// Whether so many more sockets, the fullest ones, could hold what is missing.
    fn fits_sockets(&self, at: usize, passed: Passed, more: usize) -> bool {
        let mut old = 0;
        let mut new: Vec<(u128, usize)> = Vec::new();
        for (group, reach) in self.groups.iter().zip(&self.own_reach).skip(at) {
            let most = reach[passed.left.min(group.members.len())];
            match new.iter_mut().find(|(sockets, _)| *sockets == group.sockets) {
                _ if group.sockets & !passed.sockets == 0 => old += most,
                Some((_, sum)) => *sum += most,
                None => new.push((group.sockets, most)),
            }
        }
        new.sort_unstable_by_key(|&(_, sum)| std::cmp::Reverse(sum));
        let most: usize = new.iter().take(more).map(|(_, sum)| sum).sum();
        self.demand.n <= passed.reach + old + most
    }

    /// Whether no completion can be better than the best set found.
    fn is_no_better(&mut self, at: usize, passed: Passed) -> bool {
        let Some((cost, set)) = self.best else { return false };
        let least = self.least_cost(at, passed);
        cost < least || (cost == least && set <= passed.lowest)
    }

    /// A doubled distance no completion can be below.
    fn least_cost(&mut self, at: usize, passed: Passed) -> u64 {
        if passed.left == 0 {
            return passed.cost;
        }
        let mut nodes: Vec<(u64, usize)> = Vec::with_capacity(self.groups.len() - at);
        for (group, nearest) in self.groups.iter().zip(&self.nearest).skip(at) {
            let chosen = group.to.iter().zip(&self.counts);
            let to_chosen: u64 = chosen.map(|(to, &count)| to * count as u64).sum();
            let mut companions = passed.left - 1;
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
        let mut left = passed.left;
        let mut least = passed.cost;
        for (cost, count) in nodes {
            let count = count.min(left);
            left -= count;
            least += cost * count as u64;
        }
        least
    }

    /// A set that begins with the nodes that must be in and `first`, and grows by the node nearest
    /// to those in it as long as the request can still be held.
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
        // Twice the distance to the chosen and back, plus that to itself, by index.
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
        let aligned = self.sockets.is_none_or(|wanted| sockets.count_ones() as usize == wanted);
        (self.demand.n <= free && aligned).then_some((cost, chosen))
    }

    /// The node with the least cost that leaves the request possible.
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
            // With this node, and the fullest of the rest.
            let most = match frees.get(left - 1) {
                Some(&last) if node.free > last => fullest + last,
                _ => fullest + node.free,
            };
            let touched = (sockets | node.sockets).count_ones() as usize;
            self.demand.n <= free + most && self.sockets.is_none_or(|wanted| touched <= wanted)
        };
        let fitting = others.filter(|(_, node)| fits(node)).map(|(index, _)| index);
        fitting.min_by_key(|&index| (costs[index], index))
    }
}

/// 0, the first, the first two ... together.
fn running_sums(values: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let sums = values.into_iter().scan(0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}
