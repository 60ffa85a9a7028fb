//! Topology manager: scopes, devices, and CPUs that a pod reuses.

use super::wishes::{allowing, wishing};
use super::*;
use placement::{Scope, TopologyPolicy};
use topology::synthetic::Machine;

/// `single-numa-node` on two NUMA nodes of eight CPUs, CPUs 0-1 reserved.
fn single_numa_node(scope: Scope, remembered: Vec<Claim>) -> Ledger {
    let mut settings = settings();
    let policy = TopologyPolicy::SingleNumaNode;
    settings.placement.topology_manager =
        TopologyManager { policy, scope, ..TopologyManager::default() };
    let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
    Ledger::new(machine.topology().unwrap(), settings, remembered)
}

#[test]
fn a_restart_keeps_a_pods_numa_node() {
    let mut node = Node { ledger: single_numa_node(Scope::Pod, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 4000);
    let gone = guaranteed("gone", 4000);
    assert_eq!(node.create(&gone, "c", "g", 4000).unwrap(), "2-5");
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "8-9");
    node.ledger = single_numa_node(Scope::Pod, node.ledger.claims().collect());
    node.event(node.running(&[(&a, "one", "1", 2000)])).unwrap();
    // Node 0 has room for the whole pod again.
    assert_eq!(node.create(&a, "two", "2", 2000).unwrap(), "10-11");
}

#[test]
fn misaligned_cpus_of_ended_containers_do_not_block_their_pod() {
    let mut node =
        Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 12_000);
    for (name, expect) in [("one", "2-7"), ("two", "8-13")] {
        assert_eq!(node.create(&a, name, name, 6000).unwrap(), expect);
        node.stop(name);
    }
    // The pod has six CPUs of each node; its budget is used up.
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");

    let mut node =
        Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");
}

/// Two NUMA nodes of 8 CPUs, CPUs 0-1 reserved.
fn node_with_devices(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 8, ..Machine::default() };
    let mut settings = settings();
    settings.placement.topology_manager.policy = policy;
    Node {
        ledger: Ledger::new(machine.topology().unwrap(), settings, Vec::new()),
        set: BTreeMap::new(),
    }
}

fn create_with_devices(
    node: &mut Node,
    name: &str,
    milli: u64,
    on: &[usize],
) -> Result<String, String> {
    let pod = guaranteed(name, milli);
    let devices =
        on.iter().map(|&at| Device { block: false, major: 242, minor: 0, node: Some(at) });
    let container = Container { devices: devices.collect(), ..container(&pod, "c", name, milli) };
    let setting = node.event(Admission::Create { pod, container })?;
    Ok(setting.unwrap().cpus().to_string())
}

#[test]
fn cpus_are_on_the_numa_nodes_of_devices() {
    let mut restricted = node_with_devices(TopologyPolicy::Restricted);
    assert_eq!(create_with_devices(&mut restricted, "a", 6000, &[0]).unwrap(), "2-7");
    assert_eq!(create_with_devices(&mut restricted, "b", 2000, &[1]).unwrap(), "8-9");
    let refused = create_with_devices(&mut restricted, "d", 2000, &[0]).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(create_with_devices(&mut restricted, "d", 2000, &[]).unwrap(), "10-11");
    let mut best_effort = node_with_devices(TopologyPolicy::BestEffort);
    assert_eq!(create_with_devices(&mut best_effort, "a", 2000, &[0]).unwrap(), "2-3");
    assert_eq!(create_with_devices(&mut best_effort, "b", 4000, &[0]).unwrap(), "4-7");
    assert_eq!(create_with_devices(&mut best_effort, "d", 2000, &[0]).unwrap(), "8-9");
    let mut none = node_with_devices(TopologyPolicy::None);
    assert_eq!(create_with_devices(&mut none, "a", 2000, &[1]).unwrap(), "2-3");
}

/// Pod scope on two NUMA nodes of 8 CPUs in cores of two, siblings adjacent; core 0 is reserved.
fn node_with_pod_scope(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 4, threads: 2, ..Machine::default() };
    let mut settings = allowing(&[]);
    settings.placement.topology_manager =
        TopologyManager { policy, scope: Scope::Pod, ..TopologyManager::default() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

/// Creates a container of a Burstable pod, whose limit is its pod's.
fn create_burstable(
    node: &mut Node,
    pod: &Pod,
    name: &str,
    request: u64,
) -> Result<String, String> {
    let cpu = CpuRequest { request: Some(MilliCpu(request)), limit: pod.budget };
    let container = Container { cpu, ..container(pod, name, name, 0) };
    let setting = node.event(Admission::Create { pod: pod.clone(), container })?;
    Ok(setting.unwrap().cpus().to_string())
}

#[test]
fn a_burstable_pods_limit_is_not_counted_as_demand() {
    let mut node = node_with_pod_scope(TopologyPolicy::SingleNumaNode);
    let a = wishing(pod("a", Qos::Burstable, 16_000), &[("cpus", "exclusive")]);
    assert_eq!(create_burstable(&mut node, &a, "one", 4000).unwrap(), "2-5");
    // The pod's other containers must fit on the same node.
    let refused = create_burstable(&mut node, &a, "two", 4000).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(create_burstable(&mut node, &a, "three", 2000).unwrap(), "6-7");
}

#[test]
fn a_container_with_its_own_alignment_is_excluded_from_its_pods_affinity() {
    for wish in ["smt", "numa"] {
        for order in [["a", "b"], ["b", "a"]] {
            let mut node = node_with_pod_scope(TopologyPolicy::Restricted);
            let value = if wish == "smt" { "isolate" } else { "single" };
            let name = format!("{wish}.cpu-manager.nri.io/container.a");
            let annotations = [(name, value)].into_iter().collect();
            let pod = Pod { annotations, ..guaranteed("p", 7000) };
            for name in order {
                let milli = if name == "a" { 3000 } else { 4000 };
                let created = node.create(&pod, name, name, milli);
                assert!(created.is_ok(), "{wish}, {order:?}: {name} is refused: {created:?}");
            }
        }
    }
}
