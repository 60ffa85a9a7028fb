use super::*;
use crate::machines::Shape;
use crate::memory_manager::NodeMemory;
use crate::request::{PodDemand, Reuse};
use crate::{EngineKind, PodOptions, TopologyManager};
use cpuset::CpuSet;
use proptest::prelude::*;

const HUGE: MemoryKind = MemoryKind::HugePages(1 << 30);
const GI: u64 = 1 << 30;
const REFUSED: &str = "TopologyAffinityError: Resources cannot be allocated with Topology locality";

/// Nodes with this much memory, and huge pages besides.
fn capacity(nodes: &[(u64, u64)]) -> Capacity {
    let node = |(id, &(memory, huge)): (usize, &(u64, u64))| NodeMemory {
        id,
        total: memory + huge,
        huge_pages: [(HUGE, huge)].into(),
        reserved: Amounts::new(),
    };
    Capacity::new(nodes.iter().enumerate().map(node)).unwrap()
}

fn amounts(memory: u64, huge: u64) -> Amounts {
    let all = [(MemoryKind::Memory, memory), (HUGE, huge)];
    all.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
}

fn claim(nodes: &[usize], memory: u64, huge: u64) -> NodeMemoryClaim {
    NodeMemoryClaim { nodes: nodes.iter().copied().collect(), amounts: amounts(memory, huge) }
}

fn settings(engine: EngineKind, policy: TopologyPolicy, scope: Scope) -> PlacementSettings {
    let topology_manager = TopologyManager { policy, scope, ..TopologyManager::default() };
    PlacementSettings { engine, topology_manager, ..PlacementSettings::default() }
}

fn request(
    settings: PlacementSettings,
    cpus: usize,
    free: CpuSet,
    pod: Option<PodDemand>,
) -> Request {
    Request {
        cpus,
        free,
        reuse: Reuse::NONE,
        promised: 0,
        pod,
        pod_options: PodOptions::NONE,
        devices: DeviceNodes::NONE,
        memory: None,
        settings,
    }
}

/// Places a container on nodes of 8 CPUs by both engines, and without exclusive CPUs. All have to
/// have the same nodes, or the same refusal.
#[track_caller]
fn check(
    policy: TopologyPolicy,
    nodes: &[(u64, u64)],
    claims: &[NodeMemoryClaim],
    requested: Amounts,
    expect: &str,
) {
    let machine =
        Shape { sockets: nodes.len(), nodes: 1, uncores: 1, cores: 8, threads: 1 }.build();
    let capacity = capacity(nodes);
    let memory = MemoryRequest {
        capacity: &capacity,
        claims: claims.iter().collect(),
        reusable: Vec::new(),
        amounts: requested,
        pod: None,
    };
    for engine in EngineKind::ALL {
        let settings = settings(engine, policy, Scope::Container);
        let mut request = request(settings, 4, machine.online(), None);
        let with_cpus = place_with_memory(&machine, &mut request, &memory).map(|(_, nodes)| nodes);
        assert_eq!(text(with_cpus), expect, "{engine:?}");
        let without = place_memory(&machine, &settings, DeviceNodes::NONE, &memory, None);
        assert_eq!(text(without.map(|(nodes, _)| nodes)), expect, "without CPUs");
    }
}

fn text(answer: Result<NodeSet, Rejection>) -> String {
    match answer {
        Ok(nodes) => nodes.to_string(),
        Err(rejection) => rejection.to_string(),
    }
}

#[test]
fn strict_policies_refuse_memory_that_one_empty_node_could_hold() {
    let nodes = [(62 * GI + (900 << 20), 10 * GI), (64 * GI, 10 * GI)];
    let claims = [claim(&[0], 40 * GI, 7 * GI), claim(&[1], 40 * GI, 7 * GI)];
    let memory = format!(
        "{REFUSED}; memory 30Gi requested; free for it: NUMA node 0 22.8Gi, NUMA node 1 24Gi"
    );
    let huge = format!(
        "{REFUSED}; hugepages-1Gi 5Gi requested; free for it: NUMA node 0 3Gi, NUMA node 1 3Gi"
    );
    let both = format!(
        "{memory}; hugepages-1Gi 5Gi requested; free for it: NUMA node 0 3Gi, NUMA node 1 3Gi"
    );
    for policy in [TopologyPolicy::Restricted, TopologyPolicy::SingleNumaNode] {
        check(policy, &nodes, &claims, amounts(30 * GI, 0), &memory);
        check(policy, &nodes, &claims, amounts(GI, 5 * GI), &huge);
        check(policy, &nodes, &claims, amounts(30 * GI, 5 * GI), &both);
        check(policy, &nodes, &claims, amounts(24 * GI, 3 * GI), "1");
    }
    check(TopologyPolicy::BestEffort, &nodes, &claims, amounts(30 * GI, 5 * GI), "0,1");
    check(TopologyPolicy::None, &nodes, &claims, amounts(30 * GI, 5 * GI), "0,1");
}

#[test]
fn a_refusal_says_what_nodes_have_together_if_the_policy_allows_several() {
    let nodes = [(10, 0), (10, 0), (4, 0)];
    let claims = [claim(&[0], 9, 0), claim(&[1, 2], 8, 0)];
    let text = |requested: &str, free: &str| {
        format!("{REFUSED}; memory {requested} requested; free for it: {free}")
    };
    let alone = "NUMA node 0 1, NUMA node 1 6, NUMA node 2 4";
    let two = format!("{alone}, any 2 together at most 7");
    let all = format!("{alone}, any 3 together at most 7");
    check(TopologyPolicy::SingleNumaNode, &nodes, &claims, amounts(7, 0), &text("7", alone));
    check(TopologyPolicy::Restricted, &nodes, &claims, amounts(7, 0), &text("7", alone));
    check(TopologyPolicy::Restricted, &nodes, &claims, amounts(12, 0), &text("12", &two));
    check(TopologyPolicy::Restricted, &nodes, &claims, amounts(30, 0), &text("30", &all));
}

/// The CPUs are on node 0, and the memory is on node 1.
#[test]
fn a_refusal_says_that_memory_is_not_where_the_cpus_are() {
    let machine = Shape { sockets: 2, nodes: 1, uncores: 1, cores: 8, threads: 1 }.build();
    let capacity = capacity(&[(10, 0), (10, 0)]);
    let claims = [claim(&[0], 5, 0)];
    let memory = MemoryRequest {
        capacity: &capacity,
        claims: claims.iter().collect(),
        reusable: Vec::new(),
        amounts: amounts(8, 0),
        pod: None,
    };
    let refused = |engine, cpus| {
        let settings = settings(engine, TopologyPolicy::Restricted, Scope::Container);
        let mut request = request(settings, cpus, "0-7".parse().unwrap(), None);
        place_with_memory(&machine, &mut request, &memory).unwrap_err().to_string()
    };
    for engine in EngineKind::ALL {
        let both = "memory 8 requested; free for it: NUMA node 0 5, NUMA node 1 10; not on nodes \
            that its CPUs, its devices or the rest of its pod allow";
        assert_eq!(refused(engine, 2), format!("{REFUSED}; {both}"), "{engine:?}");
        // Less memory would not help.
        assert_eq!(refused(engine, 10), REFUSED, "{engine:?}");
    }
}

#[test]
fn a_refusal_names_the_nodes_with_the_most_memory() {
    let nodes: Vec<(u64, u64)> = (1..=16).map(|memory| (memory, 0)).collect();
    let free = "NUMA node 8 9, NUMA node 9 10, NUMA node 10 11, NUMA node 11 12, NUMA node 12 13, \
        NUMA node 13 14, NUMA node 14 15, NUMA node 15 16, 8 others at most 8 each, \
        any 16 together at most 136";
    let expect = format!(
        "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the default \
        NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected; memory \
        137 requested; free for it: {free}"
    );
    check(TopologyPolicy::None, &nodes, &[], amounts(137, 0), &expect);
}

/// The CPUs were chosen before, on more nodes than the memory needs.
#[test]
fn memory_is_on_a_part_of_the_nodes_of_cpus_that_were_chosen_before() {
    let machine = Shape { sockets: 3, nodes: 1, uncores: 1, cores: 8, threads: 1 }.build();
    let capacity = capacity(&[(10, 0), (10, 0), (10, 0)]);
    let claims = [claim(&[0], 5, 0)];
    let on = |policy, nodes: &[usize], requested| {
        let memory = MemoryRequest {
            capacity: &capacity,
            claims: claims.iter().collect(),
            reusable: Vec::new(),
            amounts: amounts(requested, 0),
            pod: None,
        };
        let settings = settings(EngineKind::Kubelet, policy, Scope::Container);
        let chosen = Hint { nodes: Some(nodes.iter().copied().collect()), preferred: false };
        let found = place_memory(&machine, &settings, DeviceNodes::NONE, &memory, Some(chosen));
        text(found.map(|(nodes, _)| nodes))
    };
    assert_eq!(on(TopologyPolicy::BestEffort, &[0, 1], 8), "0,1");
    assert_eq!(on(TopologyPolicy::Restricted, &[0, 1], 8), "1");
    assert_eq!(on(TopologyPolicy::SingleNumaNode, &[0, 1], 8), "1");
    assert_eq!(on(TopologyPolicy::Restricted, &[0, 1], 12), "0,1");
    assert!(on(TopologyPolicy::Restricted, &[0], 8).contains("; not on nodes that"));
    assert_eq!(on(TopologyPolicy::BestEffort, &[0], 8), "0,1");
}

/// A small machine with claims on its memory, and a request.
#[derive(Debug, Clone)]
struct Case {
    shape: Shape,
    nodes: Vec<(u64, u64)>,
    claims: Vec<NodeMemoryClaim>,
    free: CpuSet,
    policy: TopologyPolicy,
    cpus: usize,
    requested: Amounts,
    /// What the pod asks for besides.
    others: (usize, Amounts),
}

prop_compose! {
    fn case()(
        (sockets, nodes) in prop::sample::select(vec![(2, 1), (1, 2), (3, 1), (2, 2)]),
        cores in 2..5usize,
        threads in 1..3usize,
    )(
        shape in Just(Shape { sockets, nodes, uncores: 1, cores, threads }),
        memory in prop::collection::vec((0..10u64, 0..6u64), sockets * nodes),
        claims in prop::collection::vec((1..1usize << (sockets * nodes), 0..7u64, 0..4u64), 0..5),
        taken in prop::collection::vec(0..sockets * nodes * cores * threads, 0..16),
        policy in prop::sample::select(vec![
            TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ]),
        cpus in 1..7usize,
        requested in (1..16u64, 0..8u64),
        others in (1..4usize, 1..8u64, 0..4u64),
    ) -> Case {
        let capacity = capacity(&memory);
        let memory_nodes = memory.len();
        let mut legal: Vec<NodeMemoryClaim> = Vec::new();
        for (bits, memory, huge) in claims {
            let nodes: Vec<usize> = (0..memory_nodes).filter(|at| bits >> at & 1 == 1).collect();
            legal.push(claim(&nodes, memory, huge));
            if !Room::new(&capacity, &legal).is_legal() {
                legal.pop();
            }
        }
        let taken: CpuSet = taken.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect();
        Case {
            shape,
            nodes: memory,
            claims: legal,
            free: shape.build().online() - taken,
            policy,
            cpus,
            requested: amounts(requested.0, requested.1),
            others: (others.0, amounts(others.1, others.2)),
        }
    }
}

impl Case {
    /// The non-empty sets of nodes.
    fn sets(&self) -> impl Iterator<Item = NodeSet> {
        let all = self.nodes.len();
        (1..1usize << all).map(move |bits| (0..all).filter(|at| bits >> at & 1 == 1).collect())
    }

    /// How many nodes these CPUs need on the empty machine.
    fn nodes_of_cpus(&self, cpus: usize) -> usize {
        cpus.div_ceil(self.shape.uncores * self.shape.cores * self.shape.threads)
    }

    /// How many nodes this memory needs on the empty machine; `None` if it has too little.
    fn nodes_of_memory(&self, requested: &Amounts) -> Option<usize> {
        let sum = |set: NodeSet, kind: &MemoryKind| -> u64 {
            let nodes = set.iter().map(|node| self.nodes[node]);
            nodes.map(|node| if *kind == HUGE { node.1 } else { node.0 }).sum()
        };
        let holds = |set: &NodeSet| requested.iter().all(|(kind, bytes)| sum(*set, kind) >= *bytes);
        self.sets().filter(holds).map(|set| set.len()).min()
    }

    fn has_cpus(&self, machine: &Topology, set: NodeSet, cpus: usize) -> bool {
        let nodes = machine.nodes().iter().filter(|node| set.contains(node.id));
        nodes.map(|node| (node.cpus & self.free).len()).sum::<usize>() >= cpus
    }

    /// Whether a set of nodes, as many as the memory needs, has the memory and enough CPUs for a
    /// policy that counts nodes.
    fn could_be_admitted(&self, engine: EngineKind, requested: &Amounts, cpus: usize) -> bool {
        let machine = self.shape.build();
        let capacity = capacity(&self.nodes);
        let room = Room::new(&capacity, &self.claims);
        let Some(width) = self.nodes_of_memory(requested) else { return false };
        let of_cpus = self.nodes_of_cpus(cpus);
        let is_wide = self.policy == TopologyPolicy::SingleNumaNode && (width > 1 || of_cpus > 1);
        // The kubelet's topology manager admits no CPUs that need fewer nodes than the memory.
        if is_wide || (engine == EngineKind::Kubelet && of_cpus > 0 && of_cpus != width) {
            return false;
        }
        let sets: Vec<NodeSet> = self.sets().collect();
        sets.iter().filter(|set| set.len() == width && room.has(requested, **set)).any(|set| {
            let parts = sets.iter().filter(|part| part.is_subset(*set) && part.len() <= of_cpus);
            cpus == 0 || parts.into_iter().any(|part| self.has_cpus(&machine, *part, cpus))
        })
    }

    fn check(
        &self,
        engine: EngineKind,
        whole: (&Amounts, usize),
        without_memory: bool,
        answer: &Result<NodeSet, Rejection>,
    ) -> Result<(), TestCaseError> {
        let (requested, cpus) = whole;
        let could_be = self.could_be_admitted(engine, requested, cpus);
        match answer {
            Ok(nodes) => {
                let needed = self.nodes_of_memory(requested).unwrap();
                prop_assert!(nodes.len() <= needed, "on {} instead of {} nodes", nodes, needed);
                prop_assert!(could_be, "on {}, illegally", nodes);
            }
            Err(rejection) => {
                let text = rejection.to_string();
                prop_assert!(!could_be, "refused without need: {}", text);
                prop_assert!(text.starts_with(REFUSED), "{}", text);
                prop_assert_eq!(text.contains("memory") || text.contains("huge"), without_memory);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Under a strict policy a container or, in pod scope, a pod gets its memory on no more nodes
    /// than it needs on the empty machine, and is refused only if that is impossible.
    #[test]
    fn strict_policies_never_spread_memory_and_never_refuse_without_need(
        case in case(),
        in_pod_scope: bool,
    ) {
        let machine = case.shape.build();
        let capacity = capacity(&case.nodes);
        let scope = if in_pod_scope { Scope::Pod } else { Scope::Container };
        let mut whole = (case.requested.clone(), case.cpus);
        if in_pod_scope {
            whole.1 += case.others.0;
            case.others.1.iter().for_each(|(kind, bytes)| *whole.0.entry(*kind).or_default() += bytes);
        }
        let pod = PodMemory { amounts: whole.0.clone(), held: Vec::new(), lacks_cores: false };
        let pod = if in_pod_scope { Some(pod) } else { None };
        let first = MemoryRequest {
            capacity: &capacity,
            claims: case.claims.iter().collect(),
            reusable: Vec::new(),
            amounts: case.requested.clone(),
            pod,
        };
        for engine in EngineKind::ALL {
            let settings = settings(engine, case.policy, scope);
            let demand = PodDemand { cpus: whole.1, held: CpuSet::EMPTY, chosen: None };
            let pod = if in_pod_scope { Some(demand) } else { None };
            let mut asked = request(settings, case.cpus, case.free, pod);
            let without_memory = place(&machine, &asked).is_ok();
            let answer = place_with_memory(&machine, &mut asked, &first);
            let nodes = answer.clone().map(|(_, nodes)| nodes);
            case.check(engine, (&whole.0, whole.1), without_memory, &nodes)?;

            let (true, Ok((placement, nodes))) = (in_pod_scope, answer) else { continue };
            // The next container of the pod, also after another pod has taken the rest there.
            let needed = case.nodes_of_memory(&whole.0).unwrap();
            let held = first.claim(nodes);
            let room = Room::new(&capacity, case.claims.iter().chain([&held]));
            let rest = room.free(MemoryKind::Memory, nodes);
            for rest in [0, rest] {
                let rest = NodeMemoryClaim { nodes, amounts: amounts(rest, 0) };
                let claims = case.claims.iter().chain([&held, &rest]).collect();
                let amounts = case.others.1.clone();
                let next = MemoryRequest { claims, amounts, ..first.clone() };
                let chosen = Some(placement.hint);
                let pod = PodDemand { held: placement.cpus, chosen, ..demand };
                let free = case.free - placement.cpus;
                let mut asked = request(settings, case.others.0, free, Some(pod));
                if let Ok((_, nodes)) = place_with_memory(&machine, &mut asked, &next) {
                    prop_assert!(nodes.len() <= needed, "the next one is on {}", nodes);
                }
                for hint in [placement.hint, Hint { preferred: false, ..placement.hint }] {
                    let shared =
                        place_memory(&machine, &settings, DeviceNodes::NONE, &next, Some(hint));
                    if let Ok((nodes, _)) = shared {
                        prop_assert!(nodes.len() <= needed, "the next one shares on {}", nodes);
                    }
                }
            }
        }
        let settings = settings(EngineKind::Kubelet, case.policy, scope);
        let shared = place_memory(&machine, &settings, DeviceNodes::NONE, &first, None);
        case.check(EngineKind::Kubelet, (&whole.0, 0), true, &shared.map(|(nodes, _)| nodes))?;
    }
}
