//! [`Demand::best`]: the hint that a merge of all hints of the CPUs would choose, without listing
//! them.
//!
//! # Why the answer is the same
//!
//! With hints of CPUs alone, a merge ([`super::merge::merge()`]) compares the hints as they are:
//! preferred ones first, then those with the fewest nodes. (For hints that are not preferred it
//! aims at the size of the narrowest one, which also means the fewest nodes.) So only hints of one
//! size matter:
//!
//! * A set that can hold the request still can with any node added. The narrowest size is therefore
//!   that of the nodes that must be included and then the nodes with the most free CPUs, until they
//!   suffice.
//! * If the empty machine would need that size, all sets of that size are preferred. Otherwise none
//!   is, unless sockets are aligned: then the narrowest size that suffices on exactly the needed
//!   number of sockets is preferred.
//!
//! Where whole cores of several sizes must add up to the request, these sums are upper bounds:
//! [`Domains`] decides about each size and each node exactly.
//!
//! Among the sets of that size the lowest binary number wins. From the highest node down, a node is
//! left out whenever the rest still suffices, which the free CPUs of the fullest remaining nodes
//! decide exactly. With distances, or with a number of sockets, [`super::closest`] searches.
//!
//! A second resource needs no list either. The hints of CPUs are all supersets of some sets. So the
//! intersections of CPU hints with a hint of another resource are all parts of that hint that hold
//! the request when every other node is added. Devices, whose nodes are given, need only two of
//! these ([`super::devices`]).

use super::closest::{Group, NearestSearch, group_by_distance};
use super::demand::{CandidateNode, Demand};
use super::merge::{Affinity, decide};
use crate::cores::Domains;
use crate::hint::{Hint, NumaNodes};
use crate::topology_manager::TopologyPolicy;
use cpuset::NodeSet;

impl Demand {
    /// The topology manager's decision for CPUs alone.
    pub fn best(&self, policy: TopologyPolicy, numa: &NumaNodes) -> Affinity {
        let hint = match policy {
            TopologyPolicy::None => None,
            TopologyPolicy::SingleNumaNode => self.single(),
            TopologyPolicy::BestEffort | TopologyPolicy::Restricted => {
                self.narrowest_and_nearest(numa)
            }
        };
        decide(policy, numa, hint.unwrap_or(Hint { nodes: Some(numa.all), preferred: false }))
    }

    /// The lowest single node that can hold the request, if one could on the empty machine.
    fn single(&self) -> Option<Hint> {
        let can = |(at, node): &(usize, &CandidateNode)| {
            self.n <= node.free
                && self.nodes.iter().all(|other| !other.must || other == *node)
                && self.adds_up([*at])
        };
        if self.width > 1 {
            return None;
        }
        let (_, node) = self.nodes.iter().enumerate().find(can)?;
        Some(Hint { nodes: Some(NodeSet::of(node.number)), preferred: true })
    }

    fn narrowest_and_nearest(&self, numa: &NumaNodes) -> Option<Hint> {
        let narrowest = self.narrowest()?;
        let hint = |set, preferred| Hint { nodes: Some(self.numbers(set)), preferred };
        if narrowest > self.width
            && let Some(sockets) = self.sockets
        {
            let mut search = NearestSearch::new(self, self.groups(numa, true));
            let sizes = narrowest..=self.nodes.len();
            let aligned = sizes.filter_map(|size| search.run(size, Some(sockets))).next();
            if let Some(set) = aligned {
                return Some(hint(set, true));
            }
        }
        let set = match numa.distances {
            None => self.lowest(&[Group::all(self.nodes.len())], &[narrowest]),
            Some(_) => NearestSearch::new(self, self.groups(numa, false)).run(narrowest, None),
        };
        Some(hint(set?, narrowest == self.width))
    }

    fn narrowest(&self) -> Option<usize> {
        let least = self.narrowest_by_number()?;
        if self.cores.is_empty() {
            return Some(least);
        }
        let (must, open): (Vec<usize>, Vec<usize>) =
            (0..self.nodes.len()).partition(|&index| self.nodes[index].must);
        let cores = Domains { sizes: &self.cores, n: self.n };
        let adds_up = |size: &usize| {
            size.checked_sub(must.len())
                .is_some_and(|more| cores.add_up(must.iter().copied(), [(&open[..], more)]))
        };
        (least..=self.nodes.len()).find(adds_up)
    }

    /// How many nodes have as many free CPUs as requested.
    fn narrowest_by_number(&self) -> Option<usize> {
        let must = self.nodes.iter().filter(|node| node.must);
        let (forced, mut sum) =
            must.fold((0, 0), |(count, sum), node| (count + 1, sum + node.free));
        let mut others: Vec<usize> =
            self.nodes.iter().filter(|node| !node.must).map(|node| node.free).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        // A hint has at least one node, even for no CPUs.
        let mut size = forced;
        let mut others = others.into_iter();
        while sum < self.n || size == 0 {
            sum += others.next()?;
            size += 1;
        }
        Some(size)
    }

    /// The nodes in groups of equal distance and, if `by_socket`, of equal sockets.
    fn groups(&self, numa: &NumaNodes, by_socket: bool) -> Vec<Group> {
        group_by_distance(&self.nodes, by_socket, |from, to| match &numa.distances {
            Some(distances) => u64::from(distances.between(from, to)),
            None => 0,
        })
    }

    fn numbers(&self, chosen: NodeSet) -> NodeSet {
        chosen.iter().map(|index| self.nodes[index].number).collect()
    }

    /// The lowest set, as a binary number, that can hold the request and has `counts` nodes of each
    /// group; by index.
    pub(super) fn lowest(&self, groups: &[Group], counts: &[usize]) -> Option<NodeSet> {
        let mut choosing: Vec<Choosing> = groups
            .iter()
            .zip(counts)
            .map(|(group, &count)| Choosing::new(&self.nodes, group, count))
            .collect::<Option<_>>()?;
        let mut reach: usize = choosing.iter().map(|choosing| choosing.reach).sum();
        let adds_up = self.cores.is_empty() || self.can_add_up(NodeSet::EMPTY, &choosing);
        if reach < self.n || !adds_up {
            return None;
        }
        let mut chosen = NodeSet::EMPTY;
        for index in (0..self.nodes.len()).rev() {
            let is_next = |own: &Choosing| own.left.last() == Some(&index);
            let Some(at) = choosing.iter().position(is_next) else { continue };
            let rest = reach - choosing[at].reach;
            let is_needed = match choosing[at].without_last(&self.nodes) {
                Some(without) if self.n <= rest + without.reach => {
                    let with = std::mem::replace(&mut choosing[at], without);
                    let is_needed = !self.cores.is_empty() && !self.can_add_up(chosen, &choosing);
                    if is_needed {
                        choosing[at] = with;
                    }
                    is_needed
                }
                _ => true,
            };
            if is_needed {
                choosing[at].take_last(&self.nodes);
                chosen = chosen.union(NodeSet::of(index));
            }
            reach = rest + choosing[at].reach;
        }
        Some(chosen)
    }
}

impl Demand {
    /// Whether whole cores of the chosen nodes and of those still to be chosen can add up to the
    /// request.
    fn can_add_up(&self, chosen: NodeSet, choosing: &[Choosing]) -> bool {
        let mut must: Vec<usize> = chosen.iter().collect();
        let mut open: Vec<(Vec<usize>, usize)> = Vec::with_capacity(choosing.len());
        for own in choosing {
            let (forced, free): (Vec<usize>, Vec<usize>) =
                own.left.iter().partition(|&&index| self.nodes[index].must);
            open.push((free, own.count.saturating_sub(forced.len())));
            must.extend(forced);
        }
        let open = open.iter().map(|(nodes, count)| (&nodes[..], *count));
        Domains { sizes: &self.cores, n: self.n }.add_up(must, open)
    }
}

/// The state of the choice inside one group of nodes.
#[derive(Clone)]
struct Choosing {
    /// Undecided nodes, ascending.
    left: Vec<usize>,
    /// How many undecided nodes must still be chosen.
    count: usize,
    /// The free CPUs of the chosen nodes.
    chosen_free: usize,
    /// The most free CPUs that the group can give: of chosen nodes and of the fullest undecided
    /// ones.
    reach: usize,
}

impl Choosing {
    fn new(nodes: &[CandidateNode], group: &Group, count: usize) -> Option<Choosing> {
        let left = group.members.clone();
        Choosing { left, count, chosen_free: 0, reach: 0 }.with_reach(nodes)
    }

    /// Computes [`Choosing::reach`]; `None` if the count cannot be met.
    fn with_reach(mut self, nodes: &[CandidateNode]) -> Option<Choosing> {
        let mut fill = self.count;
        let mut reach = self.chosen_free;
        let mut others = Vec::with_capacity(self.left.len());
        for node in self.left.iter().map(|&index| &nodes[index]) {
            if node.must {
                fill = fill.checked_sub(1)?;
                reach += node.free;
            } else {
                others.push(node.free);
            }
        }
        if others.len() < fill {
            return None;
        }
        others.sort_unstable_by(|one, other| other.cmp(one));
        self.reach = reach + others.iter().take(fill).sum::<usize>();
        Some(self)
    }

    /// This choice without the highest undecided node; `None` if that node is needed.
    fn without_last(&self, nodes: &[CandidateNode]) -> Option<Choosing> {
        let mut without = self.clone();
        let last = without.left.pop()?;
        if nodes[last].must { None } else { without.with_reach(nodes) }
    }

    fn take_last(&mut self, nodes: &[CandidateNode]) {
        if let Some(last) = self.left.pop() {
            self.count = self.count.saturating_sub(1);
            self.chosen_free += nodes[last].free;
            if let Some(own) = self.clone().with_reach(nodes) {
                *self = own;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopologyManager;
    use crate::hint::Distances;
    use crate::machines::{Shape, set};
    use topology::Topology;

    /// Compares the nodes of the best hint, and whether it is preferred.
    #[track_caller]
    fn check(topology: &Topology, available: &str, n: usize, align: bool, expect: (&str, bool)) {
        let closest = topology.nodes().iter().all(|node| !node.distances.is_empty());
        let manager =
            TopologyManager { prefer_closest_numa_nodes: closest, ..TopologyManager::default() };
        let numa = NumaNodes::of(topology, &manager);
        let demand = Demand::new(topology, &set(available), &set(""), n, align);
        let Affinity { hint, admit } = demand.best(TopologyPolicy::Restricted, &numa);
        let nodes = hint.nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
        assert_eq!((nodes.as_str(), admit), expect, "{n} CPUs of {available}");
    }

    /// A machine with one CPU per node.
    fn nodes(sockets: usize, nodes: usize, distances: &[&[u32]]) -> Topology {
        Shape { sockets, nodes, uncores: 1, cores: 1, threads: 1 }.with_distances(distances)
    }

    /// The average distance in a set as KEP-3545 defines it. Sets of one size have the same order
    /// by [`total`](Distances::total), which needs no division.
    fn average(distances: &Distances, nodes: NodeSet) -> f64 {
        distances.total(nodes) as f64 / (nodes.len() * nodes.len()) as f64
    }

    const FOUR: [&[u32]; 4] =
        [&[10, 11, 12, 12], &[11, 10, 12, 12], &[12, 12, 10, 11], &[12, 12, 11, 10]];

    #[test]
    fn kep_3545_the_nearest_pair_of_four_nodes_is_chosen() {
        let numa = NumaNodes::of(
            &nodes(1, 4, &FOUR),
            &TopologyManager { prefer_closest_numa_nodes: true, ..TopologyManager::default() },
        );
        let distances = numa.distances.unwrap();
        // The KEP writes node 0 first.
        for (mask, expected) in
            [("1100", 10.5), ("1010", 11.0), ("1001", 11.0), ("0011", 10.5), ("0110", 11.0)]
        {
            let nodes = mask.chars().enumerate().filter(|(_, digit)| *digit == '1');
            let nodes = nodes.map(|(node, _)| node).collect();
            assert_eq!(average(&distances, nodes), expected, "{mask}");
        }
        check(&nodes(1, 4, &FOUR), "0-3", 2, false, ("0,1", true));
        check(&nodes(1, 4, &FOUR), "1-3", 2, false, ("2,3", true));
        check(&nodes(1, 4, &FOUR), "1-2", 2, false, ("1,2", true));
        check(&nodes(1, 4, &[]), "1-3", 2, false, ("1,2", true));
    }

    #[test]
    fn kep_3545_fewer_nodes_come_before_nearer_ones() {
        let row = |node: usize| -> Vec<u32> {
            let near = FOUR[node % 4];
            let far = [30; 4];
            if node < 4 { [near, &far].concat() } else { [&far, near].concat() }
        };
        let rows: Vec<Vec<u32>> = (0..8).map(row).collect();
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let topology = nodes(2, 4, &rows);
        let manager =
            TopologyManager { prefer_closest_numa_nodes: true, ..TopologyManager::default() };
        let distances = NumaNodes::of(&topology, &manager).distances.unwrap();
        assert_eq!(average(&distances, [0, 4].into_iter().collect()), 20.0);
        // The KEP divides the sum of 9 distances by 6 and gets 16.7. Either way the three nodes are
        // nearer than the pair.
        let three = [0, 1, 2].into_iter().collect();
        assert_eq!(distances.total(three), 100);
        assert!(average(&distances, three) < 20.0);
        // The pair is chosen, because three nodes are one too many, although they are nearer.
        let hint = |nodes: &[usize]| Hint {
            nodes: Some(nodes.iter().copied().collect()),
            preferred: true,
        };
        let numa = NumaNodes::of(&topology, &manager);
        let resources = [Some(vec![hint(&[0, 1, 2]), hint(&[0, 4])])];
        let merged = super::super::merge::merge(TopologyPolicy::Restricted, &numa, &resources);
        assert_eq!(merged.hint, hint(&[0, 4]));
        check(&topology, "3-7", 3, false, ("4,5,6", true));
    }

    #[test]
    fn a_fragmented_machine_may_have_no_preferred_hint() {
        // Four nodes of two CPUs: one node could hold the request, but none has two free CPUs
        // (kubernetes/kubernetes#84597).
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 2, threads: 1 };
        check(&shape.build(), "0,2,4,6", 2, false, ("0,1", false));
        check(&shape.build(), "2,4,6", 2, false, ("1,2", false));
        // Too few CPUs are free: the hint is all nodes.
        check(&shape.build(), "2,4,6", 4, false, ("0,1,2,3", false));
    }

    #[test]
    fn kep_3327_nodes_of_one_socket_are_aligned() {
        // Node 0 is full. Without the option the hint is 1,2, and not preferred.
        let shape = Shape { sockets: 2, nodes: 2, uncores: 1, cores: 2, threads: 1 };
        check(&shape.build(), "2,4,6", 2, true, ("2,3", true));
        check(&shape.build(), "0,2,4,6", 2, true, ("0,1", true));
        check(&shape.build(), "0,4", 2, true, ("0,2", false));
    }

    #[test]
    fn memory_only_nodes_never_count() {
        use topology::model::NodeFacts;
        use topology::{Cpu, Facts};
        let cpus = (0..4).map(|id| Cpu {
            id,
            core: id,
            uncore: 0,
            numa: id / 2 * 17,
            socket: 0,
            die: None,
            kind: None,
        });
        let nodes = (0..34).map(|id| NodeFacts { id, distances: vec![10; 34], memoryless: false });
        let facts = Facts { cpus: cpus.collect(), nodes: nodes.collect(), ..Facts::default() };
        let topology = Topology::build(facts).unwrap();
        check(&topology, "0-3", 2, false, ("0", true));
        check(&topology, "1-3", 3, false, ("0,17", true));
    }
}
