//! Environment variables that describe a container's exclusive CPUs. They are set at creation and
//! never change.

use super::adjustment::Adjustment;
use super::settings::Settings;
use crate::cpuset::CpuSet;
use crate::topology::Topology;

pub type Variable = (&'static str, String);

/// The container's exclusive CPUs, in the kernel's list format: `8-15,40`.
pub const CPUS: &str = "NRI_CPU_MANAGER_CPUS";
/// The NUMA nodes that these are in, in the same format: `0-1`.
pub const NUMA_NODES: &str = "NRI_CPU_MANAGER_NUMA_NODES";
/// These CPUs by uncore cache, a list for each, with semicolons between: `8-15;40`.
pub const UNCORE_CACHES: &str = "NRI_CPU_MANAGER_UNCORE_CACHES";

/// The variables of a new container; none unless `exposeCpus` is set and its CPUs are exclusive.
pub(super) fn environment(
    topology: &Topology,
    settings: &Settings,
    adjustment: &Adjustment,
) -> Vec<Variable> {
    if settings.expose_cpus && adjustment.is_exclusive() {
        describe(topology, adjustment.cpus())
    } else {
        Vec::new()
    }
}

fn describe(topology: &Topology, cpus: CpuSet) -> Vec<Variable> {
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(&cpus));
    // A machine has fewer nodes than a set has room for CPUs.
    let nodes: CpuSet = nodes.filter_map(|node| CpuSet::of(node.id).ok()).collect();
    let shares = topology.uncores().iter().map(|uncore| uncore.cpus & cpus);
    let caches: Vec<String> =
        shares.filter(|share| !share.is_empty()).map(|share| share.to_string()).collect();
    vec![
        (CPUS, cpus.to_string()),
        (NUMA_NODES, nodes.to_string()),
        (UNCORE_CACHES, caches.join(";")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic::Machine;

    #[track_caller]
    fn check(machine: &str, cpus: &str, expect: [&str; 3]) {
        let topology = machine.parse::<Machine>().unwrap().topology().unwrap();
        let variables = describe(&topology, cpus.parse().unwrap());
        let values: Vec<&str> = variables.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, expect, "{cpus} of {machine}");
    }

    #[test]
    fn cpus_by_node_and_cache() {
        let machine = "pack:2 numa:2 l3:2 core:4 pu:1";
        check(machine, "3", ["3", "0", "3"]);
        check(machine, "2-9,16", ["2-9,16", "0-2", "2-3;4-7;8-9;16"]);
        check(machine, "0-3,24-27", ["0-3,24-27", "0,3", "0-3;24-27"]);
    }
}
