//! `Demand::best` finds, without listing all hints, the hint that the kubelet's merge of them
//! chooses.

use cpuset::CpuSet;
use placement::kubelet::{Demand, merge};
use placement::{NumaNodes, TopologyManager, TopologyPolicy};
use proptest::prelude::*;
use topology::model::NodeFacts;
use topology::{Cpu, Facts, Topology};

/// A machine of up to ten NUMA nodes, some without CPUs, and the CPUs that are free on it.
#[derive(Debug)]
struct Case {
    topology: Topology,
    available: CpuSet,
    reusable: CpuSet,
    n: usize,
}

/// How far nodes are from each other.
#[derive(Debug, Clone, Copy)]
enum Distances {
    Equal,
    BySocket,
    Ring,
    Random,
}

fn case() -> impl Strategy<Value = Case> {
    // Per node: CPUs, free ones, reusable ones, socket; a node without CPUs is memory-only.
    let node = (0..5usize, 0..5usize, 0..12usize, 0..4usize);
    let kinds = [Distances::Equal, Distances::BySocket, Distances::Ring, Distances::Random];
    let kind = prop::sample::select(kinds.to_vec());
    let random = prop::collection::vec(11..16u32, 144);
    let nodes = prop::collection::vec(node, 1..=10);
    (nodes, any::<bool>(), kind, random, 0..50usize).prop_map(
        |(nodes, in_order, kind, random, n)| {
            let sockets = nodes.len().min(4);
            let socket =
                |at: usize| if in_order { at * sockets / nodes.len() } else { nodes[at].3 };
            let mut cpus = Vec::new();
            let mut available = CpuSet::EMPTY;
            let mut reusable = CpuSet::EMPTY;
            for (at, &(size, free, again, _)) in nodes.iter().enumerate() {
                for thread in 0..size {
                    let id = cpus.len();
                    if thread < free {
                        available.insert(id).unwrap();
                    } else if again < 2 {
                        reusable.insert(id).unwrap();
                    }
                    cpus.push(Cpu {
                        id,
                        core: id,
                        uncore: at,
                        numa: at,
                        socket: socket(at),
                        die: None,
                        kind: None,
                    });
                }
            }
            if cpus.is_empty() {
                let cpu =
                    Cpu { id: 0, core: 0, uncore: 0, numa: 0, socket: 0, die: None, kind: None };
                cpus.push(cpu);
            }
            let distance = |from: usize, to: usize| match kind {
                _ if from == to => 10,
                Distances::Equal => 20,
                Distances::BySocket if socket(from) == socket(to) => 12,
                Distances::BySocket => 32,
                Distances::Ring => {
                    10 + from.abs_diff(to).min(nodes.len() - from.abs_diff(to)) as u32
                }
                Distances::Random => random[from * 12 + to],
            };
            let rows = (0..nodes.len()).map(|from| NodeFacts {
                id: from,
                distances: (0..nodes.len()).map(|to| distance(from, to)).collect(),
                memoryless: false,
            });
            let facts = Facts { cpus, nodes: rows.collect(), ..Facts::default() };
            let topology = Topology::build(facts).unwrap();
            let n = n * (topology.cpus().len() + 1) / 40;
            Case { topology, available, reusable, n }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn the_best_hint_equals_the_merge_of_all_hints(case in case(), align: bool, closest: bool) {
        let Case { topology, available, reusable, n } = case;
        let manager =
            TopologyManager { prefer_closest_numa_nodes: closest, ..TopologyManager::default() };
        let numa = NumaNodes::of(&topology, &manager);
        let demand = Demand::new(&topology, &available, &reusable, n, align);
        let hints = demand.enumerate();
        for policy in [
            TopologyPolicy::None,
            TopologyPolicy::BestEffort,
            TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ] {
            // Socket alignment and this policy exclude each other.
            if align && policy == TopologyPolicy::SingleNumaNode {
                continue;
            }
            let expect = merge(policy, &numa, &[Some(hints.clone())]);
            prop_assert_eq!(demand.best(policy, &numa), expect, "{:?}", policy);
        }
    }
}

/// A list of the hints of 64 nodes would have up to 2^64 entries.
#[test]
fn the_best_hint_of_64_numa_nodes_takes_no_list() {
    let nodes = 64;
    for sockets in [1, 2, 8, 16, 64] {
        let socket = |node: usize| node * sockets / nodes;
        let cpus = (0..nodes * 4).map(|id| {
            let numa = id / 4;
            Cpu { id, core: id, uncore: numa, numa, socket: socket(numa), die: None, kind: None }
        });
        let distance = |from: usize, to: usize| match from.abs_diff(to) {
            0 => 10,
            _ if socket(from) == socket(to) => 12,
            apart => 20 + apart as u32,
        };
        let rows = (0..nodes).map(|from| NodeFacts {
            id: from,
            distances: (0..nodes).map(|to| distance(from, to)).collect(),
            memoryless: false,
        });
        let facts = Facts { cpus: cpus.collect(), nodes: rows.collect(), ..Facts::default() };
        let topology = Topology::build(facts).unwrap();
        let mut available = topology.online();
        (0..nodes * 4).filter(|cpu| cpu * cpu % 7 < cpu % 5).for_each(|cpu| available.remove(cpu));
        let manager =
            TopologyManager { prefer_closest_numa_nodes: true, ..TopologyManager::default() };
        for (n, align) in [(1, false), (9, false), (30, true), (100, false), (100, true)] {
            let demand = Demand::new(&topology, &available, &CpuSet::EMPTY, n, align);
            let affinity =
                demand.best(TopologyPolicy::BestEffort, &NumaNodes::of(&topology, &manager));
            let chosen = affinity.hint.nodes.unwrap();
            let held = available.iter().filter(|cpu| chosen.contains(cpu / 4)).count();
            assert!(n <= held, "{n} CPUs, {held} on {chosen}");
        }
    }
}
