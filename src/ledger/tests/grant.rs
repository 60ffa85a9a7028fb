//! Topology manager: scopes, devices, and CPUs that a pod reuses.

use super::*;
use crate::placement::{Scope, TopologyPolicy};
use crate::topology::synthetic::Machine;

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
    let mut node = Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 12_000);
    for (name, expect) in [("one", "2-7"), ("two", "8-13")] {
        assert_eq!(node.create(&a, name, name, 6000).unwrap(), expect);
        node.stop(name);
    }
    // The pod has six CPUs of each node; its budget is used up.
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");

    let mut node = Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");
}
