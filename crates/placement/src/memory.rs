//! The memory nodes of exclusive CPUs.
//!
//! A NUMA node with CPUs and memory is its own memory node. A node without memory (its slots are
//! empty, as on some servers) uses the nearest nodes with memory. A node with memory only
//! (on-package memory, an expander behind CXL) belongs to the nearest nodes with CPUs, but they use
//! it only if the configuration lists it: the memory of a GPU looks the same
//! (kubernetes/enhancements#5726), and a container must not fill that. Distances are those of the
//! machine's ACPI SLIT; without it all nodes are equally near.

use cpuset::{CpuSet, MAX_NODES, NodeSet};
use topology::{NumaNode, Topology};

/// The memory nodes of these CPUs, at least one; `None` if they are unknown and `cpuset.mems`
/// should not be set. A node without CPUs counts only if it is in `memory_only`.
pub fn memory_of(topology: &Topology, cpus: &CpuSet, memory_only: NodeSet) -> Option<NodeSet> {
    let everywhere = all_memory(topology)?;
    let usable = |node: &NumaNode| {
        !node.memoryless && (!node.cpus.is_empty() || memory_only.contains(node.id))
    };
    let nodes = topology.nodes();
    let mut memory = NodeSet::EMPTY;
    for (at, node) in nodes.iter().enumerate() {
        let used = !node.cpus.is_disjoint(cpus);
        memory = memory.union(match (used, node.memoryless) {
            (true, false) => NodeSet::of(node.id),
            (true, true) => nearest(nodes, at, usable).collect(),
            (false, false) if node.cpus.is_empty() && usable(node) => {
                let mut near = nearest(nodes, at, |other| !other.cpus.is_empty());
                let ours = |id| nodes.iter().any(|n| n.id == id && !n.cpus.is_disjoint(cpus));
                if near.any(ours) { NodeSet::of(node.id) } else { NodeSet::EMPTY }
            }
            (false, _) => NodeSet::EMPTY,
        });
    }
    Some(memory.intersection(everywhere)).filter(|memory| !memory.is_empty())
}

/// All nodes with memory. `None` if there is none, or if the number of one is too high for a
/// [`NodeSet`].
pub fn all_memory(topology: &Topology) -> Option<NodeSet> {
    let with_memory = || topology.nodes().iter().filter(|node| !node.memoryless);
    let all: NodeSet = with_memory().map(|node| node.id).collect();
    let named = with_memory().all(|node| node.id < MAX_NODES);
    if named && !all.is_empty() { Some(all) } else { None }
}

/// The numbers of the `counts` nodes that are nearest to the node at position `from`.
pub(crate) fn nearest(
    nodes: &[NumaNode],
    from: usize,
    counts: impl Fn(&NumaNode) -> bool,
) -> impl Iterator<Item = usize> {
    let row = &nodes[from].distances;
    let distance = move |to: usize| row.get(to).copied().unwrap_or(u32::MAX);
    let candidates: Vec<(u32, usize)> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| counts(node))
        .map(|(at, node)| (distance(at), node.id))
        .collect();
    let least = candidates.iter().map(|(distance, _)| *distance).min();
    let near = candidates.into_iter().filter(move |(distance, _)| Some(*distance) == least);
    near.map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use topology::model::NodeFacts;
    use topology::{Cpu, Facts};

    /// For each node: how many CPUs it has, whether it has memory, and its distances.
    fn machine(nodes: &[(usize, bool, &[u32])]) -> Topology {
        let owners = nodes.iter().enumerate().flat_map(|(id, (n, ..))| vec![id; *n]);
        let cpu =
            |(id, numa)| Cpu { id, core: id, uncore: numa, numa, socket: 0, die: None, kind: None };
        let facts = nodes.iter().enumerate().map(|(id, (_, memory, row))| NodeFacts {
            id,
            distances: row.to_vec(),
            memoryless: !memory,
        });
        let cpus = owners.enumerate().map(cpu).collect();
        Topology::build(Facts { cpus, nodes: facts.collect(), ..Facts::default() }).unwrap()
    }

    #[track_caller]
    fn check(nodes: &[(usize, bool, &[u32])], cpus: &str, expect: Option<&str>) {
        check_with(nodes, cpus, NodeSet::EMPTY, expect);
    }

    #[track_caller]
    fn check_with(
        nodes: &[(usize, bool, &[u32])],
        cpus: &str,
        memory_only: NodeSet,
        expect: Option<&str>,
    ) {
        let actual = memory_of(&machine(nodes), &cpus.parse().unwrap(), memory_only);
        assert_eq!(actual.map(|set| set.to_string()).as_deref(), expect, "CPUs {cpus}");
    }

    #[test]
    fn cpus_use_the_memory_of_their_own_nodes() {
        let two: [(usize, bool, &[u32]); 2] = [(4, true, &[10, 20]), (4, true, &[20, 10])];
        check(&two, "0-1", Some("0"));
        check(&two, "4", Some("1"));
        check(&two, "3-4", Some("0,1"));
    }

    #[test]
    fn nodes_without_memory_use_the_nearest_that_have_some() {
        let far = [
            (2, true, &[10, 12, 32, 32][..]),
            (2, false, &[12, 10, 32, 32]),
            (2, true, &[32, 32, 10, 12]),
            (2, false, &[32, 32, 12, 10]),
        ];
        check(&far, "2-3", Some("0"));
        check(&far, "6", Some("2"));
        check(&far, "1-2", Some("0"));
        check(&far, "2,6", Some("0,2"));
        let as_near =
            [(2, true, &[10, 20, 20][..]), (2, false, &[20, 10, 20]), (2, true, &[20, 20, 10])];
        check(&as_near, "2", Some("0,2"));
    }

    #[test]
    fn listed_nodes_with_memory_only_belong_to_the_nearest_cpus() {
        let listed: NodeSet = [2, 3].into_iter().collect();
        // Each socket's on-package memory is a separate node.
        let hbm = [
            (2, true, &[10, 20, 13, 23][..]),
            (2, true, &[20, 10, 23, 13]),
            (0, true, &[13, 23, 10, 23]),
            (0, true, &[23, 13, 23, 10]),
        ];
        check_with(&hbm, "0", listed, Some("0,2"));
        check_with(&hbm, "2-3", listed, Some("1,3"));
        check_with(&hbm, "0-3", listed, Some("0,1,2,3"));
        check_with(&hbm, "0-3", NodeSet::of(3), Some("0,1,3"));
        let expander =
            [(2, true, &[10, 20, 30][..]), (2, true, &[20, 10, 30]), (0, true, &[30, 30, 10])];
        check_with(&expander, "0", listed, Some("0,2"));
        check(&expander, "0", Some("0"));
        // No node with CPUs has memory.
        let only = [(2, false, &[10, 20][..]), (0, true, &[20, 10])];
        check_with(&only, "0", listed, None);
        check_with(&only, "0", NodeSet::of(1), Some("1"));
    }

    /// Two Grace CPUs with 16 nodes of GPU memory each, at the distances of such servers.
    #[test]
    fn memory_of_gpus_is_never_used_unless_listed() {
        let socket = |node: usize| if node < 2 { node } else { (node - 2) / 16 };
        let distance = |from: usize, to: usize| match (from == to, socket(from) == socket(to)) {
            (true, _) => 10,
            (false, true) => 80,
            (false, false) if from < 2 && to < 2 => 40,
            (false, false) => 120,
        };
        let rows: Vec<Vec<u32>> =
            (0..34).map(|from| (0..34).map(|to| distance(from, to)).collect()).collect();
        let nodes: Vec<(usize, bool, &[u32])> = rows
            .iter()
            .enumerate()
            .map(|(id, row)| (if id < 2 { 72 } else { 0 }, true, &row[..]))
            .collect();
        check(&nodes, "0-3", Some("0"));
        check(&nodes, "72", Some("1"));
        check(&nodes, "70-80", Some("0,1"));
        check_with(&nodes, "0-3", NodeSet::of(20), Some("0"));
        check_with(&nodes, "72", NodeSet::of(20), Some("1,20"));
        // CPUs of a node without memory do not use the memory of the GPU nearby.
        let mut without = nodes;
        without[1].1 = false;
        check(&without, "72", Some("0"));
    }

    #[test]
    fn memory_nodes_are_none_without_memory_and_the_nearest_without_distances() {
        check(&[(4, false, &[10])], "0-1", None);
        check(&[(2, true, &[]), (2, false, &[]), (2, true, &[])], "2", Some("0,2"));
    }

    proptest! {
        #[test]
        fn memory_nodes_are_never_empty_and_always_usable(
            nodes in prop::collection::vec((0..3usize, any::<bool>()), 1..6),
            listed in prop::collection::btree_set(0..6usize, 0..6),
            distances in prop::collection::vec(10..40u32, 36),
            cpus in prop::collection::btree_set(0..18usize, 1..6),
        ) {
            let rows: Vec<(usize, bool, &[u32])> = nodes
                .iter()
                .zip(distances.chunks(6))
                .map(|((n, memory), row)| (*n, *memory, &row[..nodes.len()]))
                .collect();
            prop_assume!(nodes.iter().any(|(n, _)| *n > 0));
            let topology = machine(&rows);
            let cpus: CpuSet = cpus.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect();
            let cpus = cpus & topology.online();
            prop_assume!(!cpus.is_empty());
            let usable =
                |id: usize| nodes[id].1 && (nodes[id].0 > 0 || listed.contains(&id));
            let actual = memory_of(&topology, &cpus, listed.iter().copied().collect());
            prop_assert_eq!(actual.is_some(), (0..nodes.len()).any(usable));
            for node in actual.unwrap_or_default().iter() {
                prop_assert!(usable(node), "node {} is not usable", node);
            }
        }
    }
}
