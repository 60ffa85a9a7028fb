//! [`merge()`]: one NUMA affinity from the hints of several resources, and whether the policy
//! admits it (KEP-693).
//!
//! Each combination of one hint per resource gives a candidate: the nodes that all its hints have
//! in common. It is preferred if every hint is preferred and all name the same nodes. Candidates
//! without nodes are dropped. The best of the rest is:
//!
//! 1. a preferred one, with the fewest nodes;
//! 2. otherwise the one whose number of nodes is nearest to the need of the most demanding resource
//!    (the largest of the resources' narrowest hints): equal, else the largest below, else the
//!    smallest above;
//! 3. of equally many nodes, the nearest to each other, if distances matter (KEP-3545);
//! 4. the lowest as a binary number ([`NodeSet`]'s order).
//!
//! This is a total order, so the order of candidates does not matter, and equal intersections are
//! kept only once: the work grows with the number of *different* intersections, not with the
//! product of all lists as in the kubelet (kubernetes/kubernetes#131738).

use crate::hint::{Hint, NumaNodes};
use crate::topology_manager::TopologyPolicy;
use cpuset::NodeSet;
use std::collections::HashSet;

/// The topology manager's decision for a container or pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    pub hint: Hint,
    /// Whether the policy admits the container.
    pub admit: bool,
}

/// The hints of one resource: `None` if any node will do, empty if no node will.
pub type ResourceHints = Option<Vec<Hint>>;

pub fn merge(policy: TopologyPolicy, numa: &NumaNodes, resources: &[ResourceHints]) -> Affinity {
    if policy == TopologyPolicy::None {
        return decide(policy, numa, Hint::ANY);
    }
    let single = policy == TopologyPolicy::SingleNumaNode;
    let mut lists: Vec<Vec<Hint>> = resources.iter().map(hints_of).collect();
    if single {
        let fits = |hint: &Hint| hint.preferred && hint.nodes.is_none_or(|set| set.len() == 1);
        lists.iter_mut().for_each(|list| list.retain(fits));
    }
    // A single node needs no distances.
    let distances = if single { None } else { numa.distances.as_ref() };
    let fitness = |set: NodeSet| (distances.map_or(0, |distances| distances.total(set)), set);
    let preferred = preferred(numa.all, &lists).into_iter();
    if let Some(set) = preferred.min_by_key(|&set| (set.len(), fitness(set))) {
        return decide(policy, numa, Hint { nodes: Some(set), preferred: true });
    }
    let needed = lists.iter().map(|list| narrowest(list)).max().unwrap_or(0);
    let deviation = |set: NodeSet| match set.len() {
        size if size <= needed => (0, needed - size),
        size => (1, size - needed),
    };
    let best = intersections(numa.all, &lists)
        .into_iter()
        .min_by(|&one, &other| {
            deviation(one).cmp(&deviation(other)).then_with(|| fitness(one).cmp(&fitness(other)))
        })
        .unwrap_or(numa.all);
    decide(policy, numa, Hint { nodes: Some(best), preferred: false })
}

pub(super) fn decide(policy: TopologyPolicy, numa: &NumaNodes, best: Hint) -> Affinity {
    match policy {
        TopologyPolicy::None => Affinity { hint: Hint::ANY, admit: true },
        TopologyPolicy::BestEffort => Affinity { hint: best, admit: true },
        TopologyPolicy::Restricted => Affinity { hint: best, admit: best.preferred },
        TopologyPolicy::SingleNumaNode => {
            // A hint of all nodes is no affinity.
            let nodes = best.nodes.filter(|&set| set != numa.all);
            Affinity { hint: Hint { nodes, ..best }, admit: best.preferred }
        }
    }
}

/// The hints to choose from; at least one, as in the kubelet.
fn hints_of(resource: &ResourceHints) -> Vec<Hint> {
    match resource {
        None => vec![Hint::ANY],
        Some(hints) if hints.is_empty() => vec![Hint { nodes: None, preferred: false }],
        Some(hints) => hints.clone(),
    }
}

/// The number of nodes of the narrowest hint; 0 for a resource without affinity.
fn narrowest(list: &[Hint]) -> usize {
    list.iter().filter_map(|hint| hint.nodes).map(NodeSet::len).min().unwrap_or(0)
}

/// The candidates in which all hints are preferred and name the same nodes.
fn preferred(all: NodeSet, lists: &[Vec<Hint>]) -> Vec<NodeSet> {
    let preferred = |list: &[Hint]| -> (bool, Vec<NodeSet>) {
        let hints = || list.iter().filter(|hint| hint.preferred);
        let any = hints().any(|hint| hint.nodes.is_none());
        let mut sets: Vec<NodeSet> = hints().filter_map(|hint| hint.nodes).collect();
        sets.sort_unstable();
        (any, sets)
    };
    let lists: Vec<(bool, Vec<NodeSet>)> = lists.iter().map(|list| preferred(list)).collect();
    // All hints of such a candidate name the same set, or any. So if a resource does not accept any
    // set, its list has every candidate.
    let insisting = lists.iter().filter(|(any, _)| !any).min_by_key(|(_, sets)| sets.len());
    let mut sets: Vec<NodeSet> = match insisting {
        Some((_, sets)) => sets.clone(),
        None => lists.iter().flat_map(|(_, sets)| sets.iter().copied()).chain([all]).collect(),
    };
    sets.retain(|set| lists.iter().all(|(any, sets)| *any || sets.binary_search(set).is_ok()));
    let sets = sets.into_iter().map(|set| set.intersection(all));
    sets.filter(|set| !set.is_empty()).collect()
}

/// Every non-empty intersection of one hint per resource, once.
fn intersections(all: NodeSet, lists: &[Vec<Hint>]) -> Vec<NodeSet> {
    let mut intersections = vec![all];
    for list in lists {
        let mut visited = Visited::of(all);
        let mut next = Vec::new();
        for &set in &intersections {
            let sets =
                list.iter().map(|hint| hint.nodes.map_or(set, |nodes| nodes.intersection(set)));
            next.extend(sets.filter(|&set| !set.is_empty() && visited.insert(set)));
        }
        intersections = next;
    }
    intersections
}

/// Sets of nodes that occurred: a table if the machine has few nodes, otherwise a hash set.
enum Visited {
    Table(Vec<bool>),
    Hash(HashSet<NodeSet>),
}

impl Visited {
    fn of(all: NodeSet) -> Visited {
        match usize::try_from(all.bits()) {
            Ok(largest) if largest < 1 << 16 => Visited::Table(vec![false; largest + 1]),
            _ => Visited::Hash(HashSet::new()),
        }
    }

    /// Whether the set is new. It must have only nodes of the machine.
    fn insert(&mut self, set: NodeSet) -> bool {
        match self {
            Visited::Hash(sets) => sets.insert(set),
            Visited::Table(sets) => !std::mem::replace(&mut sets[set.bits() as usize], true),
        }
    }
}
