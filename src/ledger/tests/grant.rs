//! Scopes of the topology manager, and CPUs that a pod uses again.

use super::*;
use crate::placement::{Scope, TopologyPolicy};
use crate::topology::synthetic::Machine;

/// Two NUMA nodes of eight CPUs, 0 and 1 are reserved, and a container or pod is in one node or
/// refused.
fn single(scope: Scope, remembered: Vec<Claim>) -> Ledger {
    let mut settings = settings();
    let policy = TopologyPolicy::SingleNumaNode;
    settings.placement.topology_manager =
        TopologyManager { policy, scope, ..TopologyManager::default() };
    let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
    Ledger::new(machine.topology().unwrap(), settings, remembered)
}

#[test]
fn a_new_life_keeps_a_pods_numa_node() {
    let mut node = Node { ledger: single(Scope::Pod, Vec::new()), set: BTreeMap::new() };
    let (a, gone) = (guaranteed("a", 4000), guaranteed("gone", 4000));
    assert_eq!(node.create(&gone, "c", "g", 4000).unwrap(), "2-5");
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "8-9");
    node.ledger = single(Scope::Pod, node.ledger.claims().collect());
    node.event(node.running(&[(&a, "one", "1", 2000)])).unwrap();
    // Node 0 has room for the whole pod again.
    assert_eq!(node.create(&a, "two", "2", 2000).unwrap(), "10-11");
}

#[test]
fn badly_lying_cpus_of_ended_containers_do_not_keep_their_pod_out() {
    let mut node = Node { ledger: single(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 12_000);
    for (name, expect) in [("one", "2-7"), ("two", "8-13")] {
        assert_eq!(node.create(&a, name, name, 6000).unwrap(), expect);
        node.stop(name);
    }
    // The pod has six CPUs of each node; its budget is used up.
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");

    let mut node = Node { ledger: single(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");
}
