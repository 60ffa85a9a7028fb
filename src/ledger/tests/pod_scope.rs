//! NUMA affinity of whole pods: two nodes of 8 CPUs in cores of two, siblings adjacent; core 0 is
//! reserved.

use super::wishes::{allowing, wishing};
use super::*;
use crate::placement::{Scope, TopologyPolicy};
use crate::topology::synthetic::Machine;

fn node(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 4, threads: 2, ..Machine::default() };
    let mut settings = allowing(&[]);
    settings.placement.topology_manager =
        TopologyManager { policy, scope: Scope::Pod, ..TopologyManager::default() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

/// A container of a Burstable pod, whose limit is its pod's.
fn burst(node: &mut Node, pod: &Pod, name: &str, request: u64) -> Result<String, String> {
    let cpu = CpuRequest { request: Some(MilliCpu(request)), limit: pod.budget };
    let container = Container { cpu, ..container(pod, name, name, 0) };
    let adjustment = node.event(Admission::Create { pod: pod.clone(), container })?;
    Ok(adjustment.map(|adjustment| adjustment.cpus().to_string()).unwrap_or_default())
}

#[test]
fn a_burstable_pods_limit_is_not_counted_as_demand() {
    let mut node = node(TopologyPolicy::SingleNumaNode);
    let a = wishing(pod("a", Qos::Burstable, 16_000), &[("cpus", "exclusive")]);
    assert_eq!(burst(&mut node, &a, "one", 4000).unwrap(), "2-5");
    // The others go where it is, as long as they fit there.
    let refused = burst(&mut node, &a, "two", 4000).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(burst(&mut node, &a, "three", 2000).unwrap(), "6-7");
}

#[test]
fn a_container_with_its_own_alignment_is_excluded_from_its_pods_affinity() {
    for wish in ["smt", "numa"] {
        for order in [["a", "b"], ["b", "a"]] {
            let mut node = node(TopologyPolicy::Restricted);
            let value = if wish == "smt" { "isolate" } else { "single" };
            let name = format!("{wish}.cpu-manager.nri.io/container.a");
            let pod = Pod { annotations: vec![(name, value.to_owned())], ..guaranteed("p", 7000) };
            for name in order {
                let milli = if name == "a" { 3000 } else { 4000 };
                let placed = node.create(&pod, name, name, milli);
                assert!(placed.is_ok(), "{wish}, {order:?}: {name} is refused: {placed:?}");
            }
        }
    }
}
