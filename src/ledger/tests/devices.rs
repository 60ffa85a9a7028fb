//! Containers with devices: two NUMA nodes of 8 CPUs, CPUs 0-1 reserved.

use super::*;
use crate::placement::TopologyPolicy;
use crate::topology::synthetic::Machine;

fn node(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 8, ..Machine::default() };
    let mut settings = settings();
    settings.placement.topology_manager.policy = policy;
    Node {
        ledger: Ledger::new(machine.topology().unwrap(), settings, Vec::new()),
        set: BTreeMap::new(),
    }
}

fn create(node: &mut Node, name: &str, milli: u64, on: &[usize]) -> Result<String, String> {
    let pod = guaranteed(name, milli);
    let device = |&at| Device { block: false, major: 242, minor: 0, node: Some(at) };
    let devices = on.iter().map(device).collect();
    let container = Container { devices, ..container(&pod, "c", name, milli) };
    let adjustment = node.event(Admission::Create { pod, container })?;
    Ok(adjustment.unwrap().cpus().to_string())
}

#[test]
fn cpus_are_on_the_numa_nodes_of_devices() {
    let mut restricted = node(TopologyPolicy::Restricted);
    assert_eq!(create(&mut restricted, "a", 6000, &[0]).unwrap(), "2-7");
    assert_eq!(create(&mut restricted, "b", 2000, &[1]).unwrap(), "8-9");
    let refused = create(&mut restricted, "d", 2000, &[0]).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(create(&mut restricted, "d", 2000, &[]).unwrap(), "10-11");
    let mut best_effort = node(TopologyPolicy::BestEffort);
    assert_eq!(create(&mut best_effort, "a", 2000, &[0]).unwrap(), "2-3");
    assert_eq!(create(&mut best_effort, "b", 4000, &[0]).unwrap(), "4-7");
    assert_eq!(create(&mut best_effort, "d", 2000, &[0]).unwrap(), "8-9");
    let mut none = node(TopologyPolicy::None);
    assert_eq!(create(&mut none, "a", 2000, &[1]).unwrap(), "2-3");
}
