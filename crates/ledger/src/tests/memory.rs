//! Memory that is counted, on two NUMA nodes of 8 CPUs and 10 bytes each; CPUs 0-1 are reserved.

use super::*;
use cpuset::NodeSet;
use machines::synthetic::Machine;
use placement::memory_manager::{self, Amounts, Capacity, MemoryKind, NodeMemory, Room};
use placement::{EngineKind, Scope, TopologyPolicy};
use proptest::prelude::*;

/// What each NUMA node has.
const NODE: u64 = 10;
const HUGE: MemoryKind = MemoryKind::HugePages(2 << 20);
const LOCALITY: &str =
    "TopologyAffinityError: Resources cannot be allocated with Topology locality";
/// The kubelet's answers where no set of nodes has the memory.
const NO_ROOM: &str = "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to find \
    NUMA nodes to extend the current topology hint, which is unexpected";
const NOWHERE: &str = "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the \
    default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected";

/// The refusal under a strict policy of a container that asks for this, with what is free.
fn refused(asked: &str, free: &str) -> String {
    format!("{LOCALITY}; {asked} requested; free for it: {free}")
}

fn bytes(memory: u64) -> Amounts {
    Amounts::from([(MemoryKind::Memory, memory)])
}

fn nodes(numbers: &[usize]) -> NodeSet {
    numbers.iter().copied().collect()
}

fn capacity(nodes: usize) -> Capacity {
    let node =
        |id| NodeMemory { id, total: NODE, huge_pages: Amounts::new(), reserved: Amounts::new() };
    Capacity::new((0..nodes).map(node)).unwrap()
}

fn counting(policy: TopologyPolicy) -> Settings {
    let mut counting = Settings { memory: Some(capacity(2)), ..settings() };
    counting.placement.topology_manager.policy = policy;
    counting
}

fn two_nodes() -> Topology {
    Machine { sockets: 2, cores: 8, ..Machine::default() }.topology().unwrap()
}

fn node_with(settings: Settings) -> Node {
    Node { ledger: Ledger::new(two_nodes(), settings, Vec::new()), set: BTreeMap::new() }
}

fn single_numa_node() -> Node {
    node_with(counting(TopologyPolicy::SingleNumaNode))
}

fn limited(name: &str, milli: u64, memory: u64) -> Pod {
    Pod { limits: bytes(memory), ..guaranteed(name, milli) }
}

/// The container's id is the name of its pod and its own.
fn limited_container(pod: &Pod, name: &str, milli: u64, memory: u64) -> Container {
    let id = format!("{}-{name}", pod.name);
    Container { limits: bytes(memory), ..container(pod, name, &id, milli) }
}

/// This container as the runtime lists it, with these CPUs and memory nodes set.
fn listed(container: Container, list: &str, mems: &[usize]) -> Container {
    let mems = if mems.is_empty() { None } else { Some(nodes(mems)) };
    Container { cpus: Some(cpus(list)), mems, ..container }
}

/// Creates and starts a container. Returns its CPUs, and the memory nodes that are set.
fn create(node: &mut Node, pod: &Pod, container: Container) -> Result<String, String> {
    let create = Admission::Create { pod: pod.clone(), container: container.clone() };
    let setting = node.event(create)?.unwrap();
    node.event(Event::Started { pod: pod.clone(), container }).unwrap();
    Ok(match setting.mems() {
        Some(nodes) => format!("{} on {nodes}", setting.cpus()),
        None => setting.cpus().to_string(),
    })
}

/// Creates a pod with one container.
fn run(node: &mut Node, name: &str, milli: u64, memory: u64) -> Result<String, String> {
    let pod = limited(name, milli, memory);
    let container = limited_container(&pod, "c", milli, memory);
    create(node, &pod, container)
}

/// Compares all claims.
#[track_caller]
fn check(node: &Node, expect: &[&str]) {
    let text = |MemoryClaim { pod_uid, container, memory }| {
        let amount = memory.amounts[&MemoryKind::Memory];
        format!("{pod_uid}/{container}: {amount} on {}", memory.nodes)
    };
    let claims: Vec<String> = node.ledger.memory_claims().map(text).collect();
    assert_eq!(claims, expect);
}

/// Sends what is due. Returns the memory nodes of each update.
fn sent_mems(node: &mut Node) -> Vec<Option<NodeSet>> {
    let updates = deliver(&mut node.ledger, Channel::Runtime);
    updates.iter().map(|update| update.setting.mems()).collect()
}

#[test]
fn memory_and_cpus_are_on_one_node_under_single_numa_node() {
    let mut node = single_numa_node();
    assert_eq!(run(&mut node, "a", 2000, 8).unwrap(), "2-3 on 0");
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "8-9 on 1");
    assert_eq!(run(&mut node, "c", 4000, 2).unwrap(), "4-7 on 0");
    // Node 1 has CPUs, but not 3 bytes.
    let expect = refused("memory 3", "NUMA node 0 none, NUMA node 1 2");
    assert_eq!(run(&mut node, "d", 2000, 3).unwrap_err(), expect);
    check(&node, &["uid-a/c: 8 on 0", "uid-b/c: 8 on 1", "uid-c/c: 2 on 0"]);
}

#[test]
fn without_a_topology_policy_memory_is_where_there_is_room_for_it() {
    let mut node = node_with(counting(TopologyPolicy::None));
    assert_eq!(run(&mut node, "a", 2000, 8).unwrap(), "2-3 on 0");
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "4-5 on 1");
    let mut node = node_with(counting(TopologyPolicy::None));
    // All nodes need no setting.
    assert_eq!(run(&mut node, "a", 2000, 15).unwrap(), "2-3");
    check(&node, &["uid-a/c: 15 on 0,1"]);
}

#[test]
fn a_container_without_room_is_refused_in_the_kubelets_words() {
    let free = "NUMA node 0 10, NUMA node 1 10";
    let together = format!("{free}, any 2 together at most 20");
    let asked = format!("; memory 30 requested; free for it: {together}");
    for (policy, expect) in [
        (TopologyPolicy::None, format!("{NOWHERE}{asked}")),
        (TopologyPolicy::BestEffort, format!("{NO_ROOM}{asked}")),
        (TopologyPolicy::Restricted, refused("memory 30", &together)),
        (TopologyPolicy::SingleNumaNode, refused("memory 30", free)),
    ] {
        let mut node = node_with(counting(policy));
        assert_eq!(run(&mut node, "a", 2000, 30).unwrap_err(), expect, "{policy:?}");
        check(&node, &[]);
        assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "2-3 on 0", "{policy:?}");
    }
}

/// Each of the two nodes could hold the third container if it were empty.
#[test]
fn restricted_does_not_spread_memory_that_fits_one_node() {
    for engine in EngineKind::ALL {
        for scope in Scope::ALL {
            for milli in [500, 2000] {
                let mut settings = counting(TopologyPolicy::Restricted);
                settings.placement.engine = engine;
                settings.placement.topology_manager.scope = scope;
                let mut node = node_with(settings);
                run(&mut node, "a", milli, 7).unwrap();
                run(&mut node, "b", milli, 6).unwrap();
                check(&node, &["uid-a/c: 7 on 0", "uid-b/c: 6 on 1"]);
                let asked = if scope == Scope::Pod {
                    "memory 5 requested by its pod"
                } else {
                    "memory 5 requested"
                };
                let expect =
                    format!("{LOCALITY}; {asked}; free for it: NUMA node 0 3, NUMA node 1 4");
                let refused = run(&mut node, "c", milli, 5).unwrap_err();
                let notes = node.ledger.take_notes();
                let last = notes.last().unwrap().to_string();
                assert!(last.ends_with(&format!("/c/c: refused: {expect}")), "{last}");
                assert_eq!(refused, expect, "{engine:?}, {scope:?}, {milli}m");
                run(&mut node, "d", milli, 4).unwrap();
                check(&node, &["uid-a/c: 7 on 0", "uid-b/c: 6 on 1", "uid-d/c: 4 on 1"]);
            }
        }
    }
}

/// A pod whose memory fits nowhere does not start: its first container would keep its part forever.
#[test]
fn restricted_refuses_the_first_container_of_a_pod_that_does_not_fit() {
    let mut settings = counting(TopologyPolicy::Restricted);
    settings.placement.topology_manager.scope = Scope::Pod;
    let mut node = node_with(settings);
    run(&mut node, "a", 2000, 6).unwrap();
    run(&mut node, "b", 2000, 6).unwrap();
    let c = limited("c", 4000, 8);
    let one = limited_container(&c, "one", 2000, 4);
    let asked = "memory 8 requested by its pod; free for it: NUMA node 0 4, NUMA node 1 4";
    assert_eq!(create(&mut node, &c, one).unwrap_err(), format!("{LOCALITY}; {asked}"));
    check(&node, &["uid-a/c: 6 on 0", "uid-b/c: 6 on 1"]);
}

#[test]
fn a_lack_of_cpus_is_not_blamed_on_memory() {
    let mut node = node_with(counting(TopologyPolicy::Restricted));
    run(&mut node, "a", 5000, 2).unwrap();
    run(&mut node, "b", 7000, 2).unwrap();
    assert_eq!(run(&mut node, "c", 3000, 9).unwrap_err(), LOCALITY);
    assert_eq!(run(&mut node, "c", 3000, 2).unwrap_err(), LOCALITY);
}

#[test]
fn a_container_without_exclusive_cpus_has_its_memory_on_nodes() {
    let mut node = single_numa_node();
    assert_eq!(run(&mut node, "a", 500, 8).unwrap(), "0-15 on 0");
    assert_eq!(run(&mut node, "b", 500, 8).unwrap(), "0-15 on 1");
    let expect = refused("memory 8", "NUMA node 0 2, NUMA node 1 2");
    assert_eq!(run(&mut node, "c", 500, 8).unwrap_err(), expect);
}

#[test]
fn only_limits_in_guaranteed_pods_are_counted() {
    let mut node = single_numa_node();
    let burstable = Pod { limits: bytes(8), ..pod("b", Qos::Burstable, 500) };
    let with_limit = limited_container(&burstable, "c", 500, 8);
    assert_eq!(create(&mut node, &burstable, with_limit).unwrap(), "0-15");
    let unlimited = guaranteed("u", 500);
    let without = container(&unlimited, "c", "u", 500);
    assert_eq!(create(&mut node, &unlimited, without).unwrap(), "0-15");
    check(&node, &[]);
}

#[test]
fn a_restarted_container_keeps_its_memory() {
    let mut node = single_numa_node();
    assert_eq!(run(&mut node, "a", 2000, 8).unwrap(), "2-3 on 0");
    node.remove("a-c");
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "8-9 on 1");
    let expect = refused("memory 8", "NUMA node 0 2, NUMA node 1 2");
    assert_eq!(run(&mut node, "c", 2000, 8).unwrap_err(), expect);
    let a = limited("a", 2000, 8);
    let again = limited_container(&a, "c", 2000, 8);
    let again = Container { id: ContainerId("again".into()), ..again };
    assert_eq!(create(&mut node, &a, again).unwrap(), "2-3 on 0");
    node.stop_pod(&a);
    check(&node, &["uid-b/c: 8 on 1"]);
}

/// Also those of containers that have ended, and may be restarted.
#[test]
fn a_restart_of_the_plugin_keeps_claims() {
    let mut before = single_numa_node();
    let a = limited("a", 2000, 8);
    let b = limited("b", 2000, 8);
    let of_a = limited_container(&a, "c", 2000, 8);
    assert_eq!(create(&mut before, &a, of_a.clone()).unwrap(), "2-3 on 0");
    assert_eq!(run(&mut before, "b", 2000, 8).unwrap(), "8-9 on 1");
    before.remove("b-c");
    let claims = ["uid-a/c: 8 on 0", "uid-b/c: 8 on 1"];
    check(&before, &claims);
    let ledger = Ledger::new(two_nodes(), before.ledger.settings().clone(), Vec::new());
    let ledger = ledger.with_memory(before.ledger.memory_claims().collect());
    let mut after = Node { ledger, set: BTreeMap::new() };
    // The runtime has not listed anything yet.
    let expect = refused("memory 3", "NUMA node 0 2, NUMA node 1 2");
    assert_eq!(run(&mut after, "c", 2000, 3).unwrap_err(), expect);
    let pods = vec![a, b.clone()];
    let containers = vec![listed(of_a, "2-3", &[0])];
    after.event(Event::Synchronize { pods, containers }).unwrap();
    check(&after, &claims);
    assert_eq!(run(&mut after, "c", 2000, 3).unwrap_err(), expect);
    after.stop_pod(&b);
    check(&after, &["uid-a/c: 8 on 0"]);
}

/// The runtime's update to the new nodes has failed, and the plugin has died.
#[test]
fn memory_that_grew_stays_on_the_nodes_of_its_claim_if_they_are_not_set_yet() {
    let mut before = single_numa_node();
    let a = limited("a", 2000, 4);
    assert_eq!(run(&mut before, "a", 2000, 4).unwrap(), "2-3 on 0");
    assert_eq!(resize(&mut before, &a, 4, 13).unwrap(), [Some(nodes(&[0, 1]))]);
    check(&before, &["uid-a/c: 13 on 0,1"]);
    let settings = before.ledger.settings().clone();
    let ledger = Ledger::new(two_nodes(), settings, before.ledger.claims().collect());
    let ledger = ledger.with_memory(before.ledger.memory_claims().collect());
    let mut after = Node { ledger, set: BTreeMap::new() };
    let of_a = listed(limited_container(&a, "c", 2000, 4), "2-3", &[0]);
    after.ledger.apply(Event::Synchronize { pods: vec![a], containers: vec![of_a] });
    // Node 0 alone has 10.
    check(&after, &["uid-a/c: 13 on 0,1"]);
    assert_eq!(sent_mems(&mut after), [Some(nodes(&[0, 1]))]);
    assert_eq!(sent_mems(&mut after), []);
}

/// The kubelet has resized the pod, too, while the plugin did not run.
#[test]
fn memory_that_shrank_is_counted_with_its_new_limit() {
    for pod_limit in [8, 3] {
        let mut before = single_numa_node();
        assert_eq!(run(&mut before, "a", 2000, 8).unwrap(), "2-3 on 0");
        let settings = before.ledger.settings().clone();
        let ledger = Ledger::new(two_nodes(), settings, before.ledger.claims().collect());
        let ledger = ledger.with_memory(before.ledger.memory_claims().collect());
        let mut after = Node { ledger, set: BTreeMap::new() };
        let a = limited("a", 2000, pod_limit);
        let of_a = listed(limited_container(&a, "c", 2000, 3), "2-3", &[0]);
        after.event(Event::Synchronize { pods: vec![a], containers: vec![of_a] }).unwrap();
        check(&after, &["uid-a/c: 3 on 0"]);
    }
}

/// A resize could not be saved: the state file has the claim from before.
#[test]
fn memory_is_counted_on_all_nodes_that_are_set_if_its_claim_has_fewer() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 15);
    let claim = MemoryClaim {
        pod_uid: a.uid.clone(),
        container: "c".to_owned(),
        memory: memory_manager::NodeMemoryClaim { nodes: nodes(&[0]), amounts: bytes(4) },
    };
    node.ledger = node.ledger.with_memory(vec![claim]);
    let of_a = listed(limited_container(&a, "c", 2000, 13), "2-3", &[0, 1]);
    node.event(Event::Synchronize { pods: vec![a], containers: vec![of_a] }).unwrap();
    check(&node, &["uid-a/c: 13 on 0,1"]);
}

#[test]
fn without_a_state_file_memory_is_counted_on_the_nodes_that_are_set() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 8);
    let of_a = listed(limited_container(&a, "c", 2000, 8), "8-9", &[1]);
    node.event(Event::Synchronize { pods: vec![a], containers: vec![of_a] }).unwrap();
    check(&node, &["uid-a/c: 8 on 1"]);
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "2-3 on 0");
    let expect = refused("memory 8", "NUMA node 0 2, NUMA node 1 2");
    assert_eq!(run(&mut node, "c", 2000, 8).unwrap_err(), expect);
}

/// Its pages may be on any node, so nothing can be set for it.
#[test]
fn a_container_that_ran_before_counting_is_counted_on_all_nodes() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 8);
    let of_a = listed(limited_container(&a, "c", 2000, 8), "2-3", &[]);
    node.ledger.apply(Event::Synchronize { pods: vec![a], containers: vec![of_a] });
    check(&node, &["uid-a/c: 8 on 0,1"]);
    assert!(sent_mems(&mut node).iter().all(Option::is_none));
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "4-5 on 0");
    assert_eq!(run(&mut node, "c", 2000, 4).unwrap(), "8-9 on 1");
    let expect = refused("memory 1", "NUMA node 0 none, NUMA node 1 none");
    assert_eq!(run(&mut node, "d", 2000, 1).unwrap_err(), expect);
}

#[test]
fn memory_nodes_of_another_program_are_counted_and_stay() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 8);
    let theirs = Container { mems: Some(nodes(&[1])), ..limited_container(&a, "c", 2000, 8) };
    assert_eq!(create(&mut node, &a, theirs).unwrap(), "2-3");
    check(&node, &["uid-a/c: 8 on 1"]);
    assert_eq!(run(&mut node, "b", 2000, 8).unwrap(), "4-5 on 0");
    let expect = refused("memory 8", "NUMA node 0 2, NUMA node 1 2");
    assert_eq!(run(&mut node, "c", 2000, 8).unwrap_err(), expect);
}

/// Also those of a container that the kubelet creates before the take-over.
#[test]
fn a_take_over_counts_limits_on_the_nodes_that_the_kubelet_has_set() {
    for knows_kubelet_first in [true, false] {
        let mut node = single_numa_node();
        let active = Event::Stance { stance: Stance::Observe, claims: Vec::new() };
        let a = limited("a", 2000, 8);
        let of_a = listed(limited_container(&a, "c", 2000, 8), "8-9", &[1]);
        let list = Event::Synchronize { pods: vec![a], containers: vec![of_a] };
        let events = if knows_kubelet_first { [active, list] } else { [list, active] };
        for event in events {
            node.event(event).unwrap();
        }
        let b = limited("b", 2000, 7);
        resize(&mut node, &limited("a", 2000, 8), 8, 6).unwrap();
        let of_b = listed(limited_container(&b, "c", 2000, 7), "2-3", &[0]);
        node.event(Admission::Create { pod: b.clone(), container: of_b.clone() }).unwrap();
        node.event(Event::Started { pod: b, container: of_b }).unwrap();
        node.event(Event::Stance { stance: Stance::Assign, claims: Vec::new() }).unwrap();
        check(&node, &["uid-a/c: 6 on 1", "uid-b/c: 7 on 0"]);
        assert!(sent_mems(&mut node).iter().all(Option::is_none));
        let expect = refused("memory 5", "NUMA node 0 3, NUMA node 1 4");
        assert_eq!(run(&mut node, "c", 2000, 5).unwrap_err(), expect);
    }
}

/// Nodes 2 and 3 are the memory of GPUs.
#[test]
fn memory_that_is_not_counted_is_not_given() {
    let machine = Machine { sockets: 2, cores: 8, memory_only: 2, ..Machine::default() };
    let machine = machine.topology().unwrap();
    let ledger = Ledger::new(machine, counting(TopologyPolicy::None), Vec::new());
    let mut node = Node { ledger, set: BTreeMap::new() };
    let a = limited("a", 2000, 2);
    let of_a = listed(limited_container(&a, "c", 2000, 2), "2-3", &[]);
    node.ledger.apply(Event::Synchronize { pods: vec![a], containers: vec![of_a] });
    check(&node, &["uid-a/c: 2 on 0,1,2,3"]);
    assert!(sent_mems(&mut node).iter().all(Option::is_none));
    assert_eq!(run(&mut node, "b", 2000, 15).unwrap(), "4-5 on 0,1");
    assert!(run(&mut node, "c", 2000, 4).is_err());
}

/// The limit of such a pod is the larger one of both limits.
#[test]
fn the_memory_of_an_ended_init_container_is_used_again() {
    for (init, limit) in [(8, 8), (8, 5), (5, 8)] {
        let mut node = single_numa_node();
        let a = limited("a", 2000, init.max(limit));
        let of_init = limited_container(&a, "init", 2000, init);
        assert_eq!(create(&mut node, &a, of_init).unwrap(), "2-3 on 0");
        node.stop("a-init");
        check(&node, &[&format!("uid-a/init: {init} on 0")]);
        let app = limited_container(&a, "app", 2000, limit);
        assert_eq!(create(&mut node, &a, app).unwrap(), "2-3 on 0");
        check(&node, &[&format!("uid-a/app: {limit} on 0")]);
    }
}

/// The kubelet admits all containers of a pod before it starts the first one.
#[test]
fn later_containers_avoid_the_nodes_of_an_ended_init_container() {
    let machine = Machine { sockets: 4, cores: 4, ..Machine::default() };
    let memory = Some(capacity(4));
    let ledger =
        Ledger::new(machine.topology().unwrap(), Settings { memory, ..settings() }, Vec::new());
    let mut node = Node { ledger, set: BTreeMap::new() };
    let a = limited("a", 500, 28);
    let start = |node: &mut Node, name: &str, memory| {
        let init = ["init", "next"].contains(&name);
        let kind = if init { ContainerKind::Init } else { ContainerKind::App };
        let container = Container { kind, ..limited_container(&a, name, 100, memory) };
        let set = create(node, &a, container).unwrap();
        if init {
            node.stop(&format!("a-{name}"));
        }
        set
    };
    assert_eq!(start(&mut node, "init", 15), "0-15 on 0,1");
    assert_eq!(start(&mut node, "next", 13), "0-15 on 0,1");
    assert_eq!(start(&mut node, "one", 5), "0-15 on 2");
    assert_eq!(start(&mut node, "two", 3), "0-15 on 2");
    check(&node, &["uid-a/one: 5 on 2", "uid-a/two: 3 on 2"]);
    // Other pods do not, and nothing is refused for it.
    assert_eq!(run(&mut node, "b", 500, 10).unwrap(), "0-15 on 0");
    assert_eq!(start(&mut node, "three", 10), "0-15 on 3");
    assert_eq!(start(&mut node, "four", 10), "0-15 on 1");
}

/// Whichever container of a pod comes first: one that shares CPUs, or one with whole cores.
#[test]
fn in_pod_scope_the_container_that_lacks_whole_cores_is_refused() {
    let machine = Machine { cores: 8, threads: 2, ..Machine::default() };
    for policy in TopologyPolicy::ALL {
        for engine in EngineKind::ALL {
            for (milli, memory) in [(500, 2), (500, 9), (2000, 2), (2000, 9)] {
                let mut settings = counting(policy);
                settings.memory = Some(capacity(1));
                settings.placement.engine = engine;
                settings.placement.options.full_pcpus_only = true;
                settings.placement.topology_manager.scope = Scope::Pod;
                let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
                let mut node = Node { ledger, set: BTreeMap::new() };
                let whole = milli / 1000 * 1000 + 3000;
                let a = limited("a", whole, memory + 2);
                create(&mut node, &a, limited_container(&a, "one", milli, memory)).unwrap();
                let refused = limited_container(&a, "two", 3000, 2);
                let expect = "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not \
                    multiple cpus per core = 2";
                let why = create(&mut node, &a, refused).unwrap_err();
                assert_eq!(why, expect, "{policy:?}, {engine:?}, {milli}m, {memory}");
            }
        }
    }
}

/// The runtime may have made the cgroup of the second container already, and changes only its record then.
#[test]
fn memory_that_moves_to_a_starting_container_is_sent_again_after_its_start() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 8);
    create(&mut node, &a, limited_container(&a, "init", 2000, 8)).unwrap();
    let app = limited_container(&a, "app", 500, 8);
    node.event(Admission::Create { pod: a.clone(), container: app.clone() }).unwrap();
    let on_0 = [Some(nodes(&[0]))];
    node.ledger.apply(Event::Stop(ContainerId("a-init".into())));
    check(&node, &["uid-a/app: 8 on 0"]);
    assert_eq!(sent_mems(&mut node), on_0);
    assert_eq!(sent_mems(&mut node), []);
    node.ledger.apply(Event::Started { pod: a, container: app });
    assert_eq!(sent_mems(&mut node), on_0);
}

#[test]
fn the_memory_of_a_sidecar_that_has_ended_is_kept_for_it() {
    let mut node = single_numa_node();
    let a = limited("a", 4000, 10);
    create(&mut node, &a, limited_container(&a, "side", 2000, 2)).unwrap();
    node.stop("a-side");
    create(&mut node, &a, limited_container(&a, "app", 2000, 8)).unwrap();
    check(&node, &["uid-a/app: 8 on 0", "uid-a/side: 2 on 0"]);
}

#[test]
fn in_pod_scope_one_node_has_the_memory_of_the_whole_pod() {
    for (scope, expect) in
        [(Scope::Container, ["3-4 on 0", "8-9 on 1"]), (Scope::Pod, ["8-9 on 1", "10-11 on 1"])]
    {
        let mut settings = counting(TopologyPolicy::SingleNumaNode);
        settings.placement.topology_manager.scope = scope;
        let mut node = node_with(settings);
        assert_eq!(run(&mut node, "other", 1000, 2).unwrap(), "2 on 0");
        let a = limited("a", 4000, 10);
        for (name, expect) in ["one", "two"].into_iter().zip(expect) {
            let container = limited_container(&a, name, 2000, 5);
            assert_eq!(create(&mut node, &a, container).unwrap(), expect, "{scope:?}, {name}");
        }
    }
}

/// Resizes the memory of a pod's only container. Returns the memory nodes of each update.
fn resize(node: &mut Node, pod: &Pod, from: u64, to: u64) -> Result<Vec<Option<NodeSet>>, String> {
    let requested = RequestedUpdate { limits: bytes(to), ..RequestedUpdate::default() };
    let container = limited_container(pod, "c", 2000, from);
    let update = Admission::Update { pod: pod.clone(), container, requested };
    let decision = admit(&mut node.ledger, update).map_err(|why| why.to_string())?;
    Ok(decision.due.updates.iter().map(|update| update.setting.mems()).collect())
}

#[test]
fn resized_memory_stays_where_it_is_and_gets_further_nodes() {
    let mut node = single_numa_node();
    let a = limited("a", 2000, 4);
    assert_eq!(run(&mut node, "a", 2000, 4).unwrap(), "2-3 on 0");
    assert_eq!(run(&mut node, "b", 2000, 7).unwrap(), "8-9 on 1");
    assert_eq!(resize(&mut node, &a, 4, 9).unwrap(), []);
    check(&node, &["uid-a/c: 9 on 0", "uid-b/c: 7 on 1"]);
    assert_eq!(resize(&mut node, &a, 9, 13).unwrap(), [Some(nodes(&[0, 1]))]);
    check(&node, &["uid-a/c: 13 on 0,1", "uid-b/c: 7 on 1"]);
    let asked = "memory 14 requested; free for it: NUMA node 0 10, NUMA node 1 3";
    let expect = format!("{NO_ROOM}; {asked}, any 2 together at most 13");
    assert_eq!(resize(&mut node, &a, 13, 14).unwrap_err(), expect);
    check(&node, &["uid-a/c: 13 on 0,1", "uid-b/c: 7 on 1"]);
    assert_eq!(resize(&mut node, &a, 13, 3).unwrap(), []);
    check(&node, &["uid-a/c: 3 on 0,1", "uid-b/c: 7 on 1"]);
}

#[test]
fn a_container_moves_only_where_its_memory_has_room() {
    for (other, moves) in [(None, true), (Some(5), false)] {
        let mut node = single_numa_node();
        assert_eq!(run(&mut node, "a", 2000, 6).unwrap(), "2-3 on 0");
        if let Some(memory) = other {
            assert_eq!(run(&mut node, "b", 2000, memory).unwrap(), "8-9 on 1");
        }
        node.send_due();
        let step = Move {
            occasion: Occasion::Departure,
            container: ContainerId("a-c".into()),
            from: cpus("2-3"),
            to: cpus("10-11"),
            outcome: MoveOutcome::Done,
            why: String::new(),
        };
        assert_eq!(node.ledger.apply(Event::Move(step)).moved, moves, "{other:?}");
        let claims: Vec<MemoryClaim> = node.ledger.memory_claims().collect();
        assert_eq!(claims[0].memory.nodes, nodes(if moves { &[1] } else { &[0] }), "{other:?}");
        let expect = if moves { vec![Some(nodes(&[1]))] } else { Vec::new() };
        assert_eq!(sent_mems(&mut node), expect, "{other:?}");
    }
}

/// A container keeps the nodes that are set for it. They are all nodes once an update has said so.
#[test]
fn memory_is_forgotten_and_counted_again_as_the_settings_say() {
    let on = counting(TopologyPolicy::SingleNumaNode);
    let off = Settings { memory: None, ..on.clone() };
    for (sends, expect) in [(true, "uid-a/c: 8 on 0,1"), (false, "uid-a/c: 8 on 0")] {
        let mut node = node_with(on.clone());
        assert_eq!(run(&mut node, "a", 2000, 8).unwrap(), "2-3 on 0");
        node.send_due();
        node.event(Event::Settings(off.clone())).unwrap();
        check(&node, &[]);
        if sends {
            assert_eq!(sent_mems(&mut node), [Some(nodes(&[0, 1]))]);
        }
        node.event(Event::Settings(on.clone())).unwrap();
        check(&node, &[expect]);
    }
}

#[test]
fn huge_pages_are_counted_beside_memory() {
    let node = |id| {
        let pool = if id == 1 { 4 } else { 0 };
        let huge_pages = Amounts::from([(HUGE, pool)]);
        NodeMemory { id, total: NODE + pool, huge_pages, reserved: Amounts::new() }
    };
    let memory = Some(Capacity::new((0..2).map(node)).unwrap());
    let mut node = node_with(Settings { memory, ..counting(TopologyPolicy::SingleNumaNode) });
    let limits = Amounts::from([(MemoryKind::Memory, 2), (HUGE, 3)]);
    let mut create_huge = |name: &str| {
        let pod = Pod { limits: limits.clone(), ..guaranteed(name, 2000) };
        let container = Container { limits: limits.clone(), ..container(&pod, "c", name, 2000) };
        create(&mut node, &pod, container)
    };
    assert_eq!(create_huge("a").unwrap(), "8-9 on 1");
    let expect = refused("hugepages-2Mi 3", "NUMA node 0 none, NUMA node 1 1");
    assert_eq!(create_huge("b").unwrap_err(), expect);
    assert_eq!(run(&mut node, "c", 2000, 8).unwrap(), "2-3 on 0");
    let claims: Vec<MemoryClaim> = node.ledger.memory_claims().collect();
    assert_eq!(claims[0].memory.amounts, limits);
}

/// Pods by what they ask for: CPU time, memory, and whether they have an init container that asks
/// for as much.
const KINDS: [(u64, u64, bool); 6] = [
    (1000, 3, false),
    (2000, 8, true),
    (500, 12, false),
    (2000, 5, true),
    (4000, 25, false),
    (1500, 9, true),
];

/// A pod of one of the [`KINDS`].
struct Living {
    pod: Pod,
    /// As the runtime lists it.
    running: Option<Container>,
    init_has_ended: bool,
    /// Whether a container of it was ever admitted, so that it has memory.
    has_memory: bool,
}

/// A node with pods on four NUMA nodes of 4 CPUs, and what must hold there.
struct World {
    node: Node,
    living: BTreeMap<usize, Living>,
    /// The number of instances so far, for new names and ids.
    instances: usize,
}

impl World {
    fn new(policy: TopologyPolicy, scope: Scope) -> World {
        let mut settings = Settings { memory: Some(capacity(4)), ..settings() };
        settings.placement.topology_manager.policy = policy;
        settings.placement.topology_manager.scope = scope;
        let node = Node { ledger: World::ledger(settings, Vec::new()), set: BTreeMap::new() };
        World { node, living: BTreeMap::new(), instances: 0 }
    }

    fn ledger(settings: Settings, remembered: Vec<Claim>) -> Ledger {
        let machine = Machine { sockets: 2, nodes: 2, cores: 8, ..Machine::default() };
        Ledger::new(machine.topology().unwrap(), settings, remembered)
    }

    /// Creates the next container of a pod, and the pod if it does not exist.
    fn create(&mut self, kind: usize) {
        let (milli, memory, has_init) = KINDS[kind];
        self.instances += 1;
        let number = self.instances;
        let living = self.living.entry(kind).or_insert_with(|| Living {
            pod: limited(&number.to_string(), milli, memory),
            running: None,
            init_has_ended: false,
            has_memory: false,
        });
        if living.running.is_some() {
            return;
        }
        let name = if has_init && !living.init_has_ended { "init" } else { "app" };
        let container = limited_container(&living.pod, name, milli, memory);
        let container = Container { id: ContainerId(number.to_string().into()), ..container };
        let pod = living.pod.clone();
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let Ok(setting) = self.node.event(create) else { return };
        self.node.event(Event::Started { pod, container: container.clone() }).unwrap();
        let setting = setting.unwrap();
        let cpus = Some(setting.cpus());
        living.running = Some(Container { cpus, mems: setting.mems(), ..container });
        living.has_memory = true;
    }

    /// Ends the running container of a pod.
    fn end(&mut self, kind: usize, is_removed: bool) {
        let Some(living) = self.living.get_mut(&kind) else { return };
        let Some(container) = living.running.take() else { return };
        living.init_has_ended |= container.name == "init";
        if is_removed {
            self.node.remove(&container.id.0);
        } else {
            self.node.stop(&container.id.0);
        }
    }

    fn end_pod(&mut self, kind: usize) {
        if let Some(living) = self.living.remove(&kind) {
            self.node.stop_pod(&living.pod);
        }
    }

    /// Restarts the plugin.
    fn restart(&mut self) {
        let before: Vec<MemoryClaim> = self.node.ledger.memory_claims().collect();
        let settings = self.node.ledger.settings().clone();
        let ledger = World::ledger(settings, self.node.ledger.claims().collect());
        self.node.ledger = ledger.with_memory(before.clone());
        let pods = self.living.values().map(|living| living.pod.clone()).collect();
        let containers = self.living.values().filter_map(|living| living.running.clone());
        let containers = containers.collect();
        self.node.event(Event::Synchronize { pods, containers }).unwrap();
        assert_eq!(self.node.ledger.memory_claims().collect::<Vec<_>>(), before);
    }

    fn check(&self) {
        let claims: Vec<MemoryClaim> = self.node.ledger.memory_claims().collect();
        let capacity = self.node.ledger.settings().memory.as_ref().unwrap();
        let room = Room::new(capacity, claims.iter().map(|claim| &claim.memory));
        assert!(room.is_legal(), "{claims:?}");
        let uids = self.living.iter().filter(|(_, living)| living.has_memory);
        let expect: BTreeMap<&PodUid, u64> =
            uids.map(|(kind, living)| (&living.pod.uid, KINDS[*kind].1)).collect();
        let mut held: BTreeMap<&PodUid, u64> = BTreeMap::new();
        for claim in &claims {
            *held.entry(&claim.pod_uid).or_default() += claim.memory.amounts[&MemoryKind::Memory];
        }
        assert_eq!(held, expect, "{claims:?}");
        let policy = self.node.ledger.settings().placement.topology_manager.policy;
        for MemoryClaim { memory, .. } in claims {
            let needed = memory.amounts[&MemoryKind::Memory].div_ceil(NODE);
            let is_narrow = memory.nodes.len() as u64 <= needed;
            assert!(is_narrow || !policy.is_strict(), "{memory:?} needs {needed} nodes");
        }
    }
}

proptest! {
    /// Claims can always be met at once, are those of living pods, and survive restarts. Under strict
    /// policies none is on more nodes than it needs.
    #[test]
    fn memory_is_never_promised_twice_and_never_lost(
        policy in prop::sample::select(&TopologyPolicy::ALL[..]),
        in_pod_scope: bool,
        steps in prop::collection::vec((0..8usize, 0..KINDS.len()), 1..60),
    ) {
        let scope = if in_pod_scope { Scope::Pod } else { Scope::Container };
        let mut world = World::new(policy, scope);
        for (step, kind) in steps {
            match step {
                0..4 => world.create(kind),
                4 => world.end(kind, false),
                5 => world.end(kind, true),
                6 => world.end_pod(kind),
                _ => world.restart(),
            }
            world.check();
        }
    }
}
