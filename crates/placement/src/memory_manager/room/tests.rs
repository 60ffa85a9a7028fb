use super::*;
use crate::memory_manager::NodeMemory;
use proptest::prelude::*;

/// Nodes with this much memory each.
fn machine(nodes: &[u64]) -> Capacity {
    let nodes = nodes.iter().enumerate().map(|(id, total)| NodeMemory {
        id,
        total: *total,
        huge_pages: Amounts::new(),
        reserved: Amounts::new(),
    });
    Capacity::new(nodes).unwrap()
}

fn memory(bytes: u64) -> Amounts {
    Amounts::from([(MemoryKind::Memory, bytes)])
}

fn claim(nodes: &[usize], bytes: u64) -> NodeMemoryClaim {
    NodeMemoryClaim { nodes: nodes.iter().copied().collect(), amounts: memory(bytes) }
}

/// The hints of a request, `*` if preferred.
fn hints(capacity: &Capacity, claims: &[NodeMemoryClaim], bytes: u64, sharing: Sharing) -> String {
    let hints = Room::new(capacity, claims).hints(&memory(bytes), &[], sharing);
    let text = hints.iter().map(|hint| {
        let nodes = hint.nodes.unwrap().to_string().replace(',', "+");
        nodes + if hint.preferred { "*" } else { "" }
    });
    text.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_set_is_preferred_if_the_empty_machine_needs_as_many_nodes() {
    let two = machine(&[10, 10]);
    assert_eq!(hints(&two, &[], 4, Sharing::SameSet), "0* 1* 0+1");
    assert_eq!(hints(&two, &[], 14, Sharing::SameSet), "0+1*");
    assert_eq!(hints(&two, &[], 21, Sharing::SameSet), "");
    // Both nodes have too little left for what one of them could hold.
    let claims = [claim(&[0], 7), claim(&[1], 7)];
    assert_eq!(hints(&two, &claims, 4, Sharing::SameSet), "");
    assert_eq!(hints(&two, &claims, 4, Sharing::AnySet), "0+1");
}

/// kubernetes/kubernetes#128669: a node used alone never joins a group, and the other way round.
#[test]
fn the_kubelets_rule_refuses_what_would_fit() {
    let two = machine(&[10, 10]);
    assert_eq!(hints(&two, &[claim(&[0], 1)], 12, Sharing::SameSet), "");
    assert_eq!(hints(&two, &[claim(&[0], 1)], 12, Sharing::AnySet), "0+1*");
    let group = [claim(&[0, 1], 12)];
    assert_eq!(hints(&two, &group, 4, Sharing::SameSet), "0+1");
    assert_eq!(hints(&two, &group, 4, Sharing::AnySet), "0* 1* 0+1");
    assert_eq!(hints(&two, &group, 9, Sharing::AnySet), "");
}

#[test]
fn free_memory_of_nodes_is_the_largest_request_that_fits() {
    let two = machine(&[10, 10]);
    let claims = [claim(&[0], 3), claim(&[0, 1], 12)];
    let room = Room::new(&two, &claims);
    let free = |nodes: &[usize]| room.free(MemoryKind::Memory, nodes.iter().copied().collect());
    // The group's memory may be on the other node, but there is not more than 5 left in all.
    assert_eq!([free(&[0]), free(&[1]), free(&[0, 1])], [5, 5, 5]);
    assert_eq!(room.free(MemoryKind::HugePages(2 << 20), NodeSet::of(0)), 0);
    let claims = [claim(&[0], 13)];
    assert_eq!(Room::new(&two, &claims).free(MemoryKind::Memory, NodeSet::of(0)), 0);
}

/// A group's memory can be on either node, but all of it is on one of them.
#[test]
fn claims_of_overlapping_sets_can_be_met_all_at_once() {
    let three = machine(&[10, 10, 10]);
    let claims = [claim(&[0, 1], 12), claim(&[1, 2], 12)];
    assert_eq!(hints(&three, &claims, 6, Sharing::AnySet), "0* 1* 2* 0+1 0+2 1+2 0+1+2");
    let claims = [claim(&[0, 1], 16), claim(&[1, 2], 12)];
    // Node 1 has 4 at the most, although the machine has only 28 of 30 taken.
    assert_eq!(hints(&three, &claims, 2, Sharing::AnySet), "0* 1* 2* 0+1 0+2 1+2 0+1+2");
    let claims = [claim(&[0, 1], 16), claim(&[2], 9)];
    assert_eq!(hints(&three, &claims, 4, Sharing::AnySet), "0* 1* 0+1 0+2 1+2 0+1+2");
    assert!(Room::new(&three, &claims).is_legal());
    let claims = [claim(&[0, 1], 16), claim(&[0], 5)];
    assert!(!Room::new(&three, &claims).is_legal());
}

#[test]
fn memory_of_ended_init_containers_is_used_again() {
    let two = machine(&[10, 10]);
    let claims = [claim(&[0], 8), claim(&[1], 9)];
    for sharing in [Sharing::SameSet, Sharing::AnySet] {
        let room = Room::new(&two, &claims);
        let hints = room.hints(&memory(9), &claims[..1], sharing);
        let expect = [Hint { nodes: Some(NodeSet::of(0)), preferred: true }];
        assert_eq!(hints[..1], expect, "{sharing:?}");
    }
}

#[test]
fn huge_pages_are_counted_with_memory() {
    let huge = MemoryKind::HugePages(2 << 20);
    let node = |id, pool| NodeMemory {
        id,
        total: 10 + pool,
        huge_pages: [(huge, pool)].into(),
        reserved: Amounts::new(),
    };
    let capacity = Capacity::new([node(0, 0), node(1, 8)]).unwrap();
    let request = Amounts::from([(MemoryKind::Memory, 4), (huge, 6)]);
    let room = Room::new(&capacity, []);
    let found = room.hints(&request, &[], Sharing::SameSet);
    let sets: Vec<String> = found.iter().map(|hint| hint.nodes.unwrap().to_string()).collect();
    assert_eq!(sets, ["1", "0,1"]);
}

/// Whether the claims can be divided among their nodes, found by moving memory along paths.
fn can_be_divided(nodes: &[u64], claims: &[(Vec<usize>, u64)]) -> bool {
    let mut given = vec![vec![0u64; nodes.len()]; claims.len()];
    let used = |given: &[Vec<u64>], node: usize| given.iter().map(|row| row[node]).sum::<u64>();
    for (at, (set, bytes)) in claims.iter().enumerate() {
        for _ in 0..*bytes {
            // Breadth first: a node with room, or one from which another claim's byte can go on.
            let mut from: Vec<Option<(usize, usize)>> = vec![None; nodes.len()];
            let mut seen: Vec<bool> = (0..nodes.len()).map(|node| set.contains(&node)).collect();
            let mut queue: Vec<usize> = set.clone();
            let mut found = None;
            while let Some(node) = (!queue.is_empty()).then(|| queue.remove(0)) {
                if used(&given, node) < nodes[node] {
                    found = Some(node);
                    break;
                }
                for (other, (theirs, _)) in claims.iter().enumerate() {
                    for next in theirs.iter().copied() {
                        if given[other][node] > 0 && !seen[next] {
                            seen[next] = true;
                            from[next] = Some((node, other));
                            queue.push(next);
                        }
                    }
                }
            }
            let Some(mut node) = found else { return false };
            while let Some((before, other)) = from[node] {
                given[other][before] -= 1;
                given[other][node] += 1;
                node = before;
            }
            given[at][node] += 1;
        }
    }
    true
}

proptest! {
    /// A request gets a set of nodes exactly if it and all claims could be divided among the nodes.
    #[test]
    fn any_set_is_offered_that_can_hold_everything(
        nodes in prop::collection::vec(0..6u64, 1..5),
        claims in prop::collection::vec((1..16usize, 0..5u64), 0..5),
        bytes in 0..8u64,
    ) {
        let capacity = machine(&nodes);
        let set = |bits: usize| -> Vec<usize> {
            (0..nodes.len()).filter(|at| bits >> at & 1 == 1).collect()
        };
        let mut held: Vec<(Vec<usize>, u64)> = Vec::new();
        for (bits, bytes) in claims {
            held.push((set(bits), bytes));
            if held.last().is_some_and(|(set, _)| set.is_empty()) || !can_be_divided(&nodes, &held) {
                held.pop();
            }
        }
        let claims: Vec<NodeMemoryClaim> = held.iter().map(|(set, bytes)| claim(set, *bytes)).collect();
        let room = Room::new(&capacity, &claims);
        prop_assert!(room.is_legal());
        let sets = |sharing| -> Vec<NodeSet> {
            let hints = room.hints(&memory(bytes), &[], sharing);
            hints.into_iter().filter_map(|hint| hint.nodes).collect()
        };
        let offered = sets(Sharing::AnySet);
        for bits in 1..1 << nodes.len() {
            let request = (set(bits), bytes);
            let all = [&held[..], std::slice::from_ref(&request)].concat();
            let legal = can_be_divided(&nodes, &all);
            let found = offered.contains(&request.0.iter().copied().collect());
            prop_assert_eq!(found, legal, "{:?} beside {:?} on {:?}", request, held, nodes);
        }
        for one in sets(Sharing::SameSet) {
            prop_assert!(offered.contains(&one), "{} is illegal", one);
        }
    }
}
