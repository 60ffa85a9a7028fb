//! Combinations of features: moves in pod scope, and resizes while moves are pending.

use super::resize::resized;
use super::*;
use crate::pod_option::PodOption;
use core::time::Duration;
use placement::pod_options::Numa;
use placement::{EngineKind, Scope, TopologyPolicy};

/// Two NUMA nodes of four caches of four CPUs.
fn numa_machine() -> Topology {
    let cpus = (0..32)
        .map(|id| Cpu {
            id,
            core: id,
            uncore: id / 4 * 4,
            numa: id / 16,
            socket: id / 16,
            die: None,
            kind: None,
        })
        .collect();
    Topology::build(Facts { cpus, ..Facts::default() }).unwrap()
}

fn pod_scope(policy: TopologyPolicy) -> Settings {
    let options = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
    let topology_manager =
        TopologyManager { policy, scope: Scope::Pod, ..TopologyManager::default() };
    Settings {
        policy: Policy::Static,
        placement: placement::PlacementSettings {
            options,
            engine: EngineKind::Compact,
            topology_manager,
            reserved: "0-1".parse().unwrap(),
            ..placement::PlacementSettings::default()
        },
        mems_follow_cpus: true,
        rebalance: Some(Rebalance {
            mode: RebalanceMode::Move,
            moves_per_100_starts: 5,
            across_numa_nodes: true,
            min_stay: Duration::ZERO,
        }),
        ..Settings::default()
    }
}

/// Node 0 has two free CPUs in each cache, node 1 none.
fn full(settings: Settings) -> (Node, Pod) {
    let mut node =
        Node { ledger: Ledger::new(numa_machine(), settings, Vec::new()), set: BTreeMap::new() };
    let g1 = guaranteed("g1", 4000);
    let list = [
        (guaranteed("f1", 2000), "f1", 2000, "4-5"),
        (guaranteed("f2", 2000), "f2", 2000, "8-9"),
        (guaranteed("f3", 2000), "f3", 2000, "12-13"),
        (g1.clone(), "g1", 4000, "16-19"),
        (guaranteed("g2", 12000), "g2", 12000, "20-31"),
    ];
    let mut all = Vec::new();
    for (pod, id, milli, set) in &list {
        node.set.insert((*id).to_owned(), cpus(set));
        all.push((pod, "c", *id, *milli));
    }
    let event = node.running(&all);
    node.event(event).unwrap();
    assert_eq!(node.ledger.free().to_string(), "2-3,6-7,10-11,14-15");
    (node, g1)
}

fn nodes_of(set: CpuSet) -> Vec<usize> {
    let mut nodes: Vec<usize> = set.iter().map(|cpu| cpu / 16).collect();
    nodes.dedup();
    nodes
}

/// `topologyManagerScope: pod`: the containers stay on the NUMA node that was chosen for the pod,
/// even if other CPUs would be better for the container that runs already.
#[test]
fn moves_keep_a_pod_in_pod_scope_on_one_numa_node() {
    for policy in [TopologyPolicy::SingleNumaNode, TopologyPolicy::Restricted] {
        let (mut node, g1) = full(pod_scope(policy));
        let p = guaranteed("p", 8000);
        node.event(Event::RunPod(p.clone())).unwrap();
        let first: CpuSet = node.create(&p, "c0", "p0", 4000).unwrap().parse().unwrap();
        node.stop("g1");
        node.stop_pod(&g1);
        let plan = node.ledger.plan_departure();
        assert!(plan.is_err(), "{policy:?}: {plan:?}");
        let second: CpuSet = node.create(&p, "c1", "p1", 4000).unwrap().parse().unwrap();
        assert_eq!(nodes_of(first | second), [0], "{policy:?}: {first} {second}");
    }
}

/// A long-running init container moves. Then a container of its pod starts and reuses its CPUs.
#[test]
fn a_container_starts_where_the_init_container_of_its_pod_was_moved() {
    let (mut node, g1) = full(pod_scope(TopologyPolicy::SingleNumaNode));
    let p = guaranteed("p", 4000);
    node.event(Event::RunPod(p.clone())).unwrap();
    node.create(&p, "init", "p0", 4000).unwrap();
    node.stop("g1");
    node.stop_pod(&g1);
    for step in node.ledger.plan_departure().expect("a plan").steps {
        node.event(Event::Move(step)).unwrap();
    }
    let init = node.ledger.target(&ContainerId("p0".into())).unwrap().setting.cpus();
    // Others take what the move has left.
    let rest = guaranteed("rest", 8000);
    node.create(&rest, "c", "rest", 8000).unwrap();
    node.stop("p0");
    assert_eq!(node.create(&p, "app", "p1", 4000), Ok(init.to_string()));
}

/// The next container of the pod gets CPUs on the NUMA node of the others.
#[test]
fn the_affinity_of_a_pod_does_not_follow_a_container_that_is_placed_apart() {
    let mut settings = pod_scope(TopologyPolicy::SingleNumaNode);
    let allow = [PodOption::Numa(Numa::Single)].into_iter().collect();
    let bounds = Bounds { allow, ..Bounds::default() };
    settings.namespaces = Namespaces::new(vec![(vec!["*".to_owned()], bounds)]).unwrap();
    let mut node =
        Node { ledger: Ledger::new(numa_machine(), settings, Vec::new()), set: BTreeMap::new() };
    let mut p = guaranteed("p", 6000);
    p.annotations = [("numa.cpu-manager.nri.io/container.apart", "single")].into_iter().collect();
    let from = cpus(&node.create(&p, "apart", "p0", 2000).unwrap());
    let together = cpus(&node.create(&p, "one", "p1", 2000).unwrap());
    assert_eq!(nodes_of(from | together), [0]);
    let step = Move {
        occasion: Occasion::Departure,
        container: ContainerId("p0".into()),
        from,
        to: cpus("16-17"),
        outcome: MoveOutcome::Done,
        why: String::new(),
    };
    node.event(Event::Move(step)).unwrap();
    node.send_due();
    node.check("p0", "16-17");
    let next = cpus(&node.create(&p, "two", "p2", 2000).unwrap());
    assert_eq!(nodes_of(next), [0], "{together} {next}");
}

/// The CPUs of the init container are all that the pod needs. Its affinity is chosen again for the
/// next container, as it is unknown after a restart and after a change of the machine.
#[test]
fn a_container_reuses_the_cpus_of_its_pod_when_the_affinity_is_unknown() {
    let settings = pod_scope(TopologyPolicy::SingleNumaNode);
    let with = |claims: Vec<Claim>| Node {
        ledger: Ledger::new(numa_machine(), settings.clone(), claims),
        set: BTreeMap::new(),
    };
    for restarts in [true, false] {
        let mut now = with(Vec::new());
        let p = guaranteed("p", 4000);
        let init = now.create(&p, "init", "p0", 4000).unwrap();
        now.stop("p0");
        if restarts {
            now = with(now.ledger.claims().collect());
            let list = Event::Synchronize { pods: vec![p.clone()], containers: Vec::new() };
            now.event(list).unwrap();
        } else {
            now.event(Event::Machine(numa_machine())).unwrap();
        }
        assert_eq!(now.create(&p, "app", "p1", 4000), Ok(init), "restarts: {restarts}");
    }
}

/// An exclusive container on 2-5, and a shared one.
fn one_of_each() -> (Node, Pod, Pod) {
    let mut node = Node::new();
    let s = pod("s", Qos::Burstable, 500);
    node.create(&s, "c", "s", 500).unwrap();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "2-5");
    node.check("s", "0-1,6-15");
    (node, a, s)
}

/// A shared container waits for a CPU that another one leaves, and a third one gets it before the
/// next message.
#[test]
fn no_container_waits_for_cpus_that_a_third_one_has() {
    let (mut node, a, _) = one_of_each();
    node.event(resized(&a, "c", "a", 4000, 3000)).unwrap();
    node.check("a", "2-4");
    node.check("s", "0-1,6-15");
    assert!(node.ledger.waits(), "s waits for CPU 5");
    assert_eq!(node.create(&guaranteed("x", 1000), "c", "x", 1000).unwrap(), "5");
    for _ in 0..10 {
        node.send_due();
        deliver(&mut node.ledger, Channel::Groups);
    }
    node.check("s", "0-1,6-15");
    assert!(!node.ledger.waits(), "no CPU is left to wait for");
    assert!(!node.ledger.owes());
}

/// A shared container is resized while an exclusive one waits for CPUs that it has yet to leave.
/// The runtime changes the resized one last.
#[test]
fn no_container_gets_cpus_that_a_resized_shared_container_leaves_last() {
    let (mut node, _, s) = one_of_each();
    let mut reserved = settings();
    reserved.placement.reserved = "0-3".parse().unwrap();
    // No answer carries the move yet.
    node.event(Event::Settings(reserved)).unwrap();
    let before = node.set["s"];
    let decision = admit(&mut node.ledger, resized(&s, "c", "s", 500, 700)).unwrap();
    for update in decision.due.updates.iter().filter(|update| &*update.container.0 == "a") {
        let both = update.setting.exclusive_cpus() & before;
        assert!(
            both.is_empty(),
            "a gets CPUs {both}, on which s still is: the runtime changes s last"
        );
    }
}
