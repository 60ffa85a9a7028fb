//! How a program learns the CPUs of its container. Environment variables are set at creation and
//! never change; files with the same values follow later changes.

use super::setting::Reach;
use super::settings::Settings;
use cpuset::CpuSet;
use topology::Topology;

pub type Variable = (&'static str, String);

/// The container's exclusive CPUs, in the kernel's list format: `8-15,40`.
pub const CPUS: &str = "NRI_CPU_MANAGER_CPUS";
/// The NUMA nodes of these CPUs, in the same format: `0-1`.
pub const NUMA_NODES: &str = "NRI_CPU_MANAGER_NUMA_NODES";
/// These CPUs by uncore cache: a list for each, separated by semicolons: `8-15;40`.
pub const UNCORE_CACHES: &str = "NRI_CPU_MANAGER_UNCORE_CACHES";

/// Shared CPUs that the container may also use, in the format of [`CPUS`]; only with `cpus:
/// exclusive+shared`.
pub const SHARED_CPUS: &str = "NRI_CPU_MANAGER_SHARED_CPUS";

/// The exclusive CPUs on which interrupts may stay, in the format of [`CPUS`]; only with
/// `interrupts: housekeeping`.
pub const HOUSEKEEPING_CPUS: &str = "NRI_CPU_MANAGER_HOUSEKEEPING_CPUS";

/// CRI-O's name for [`HOUSEKEEPING_CPUS`]; only with `compatibility: [crio]`.
pub const CRIO_HOUSEKEEPING_CPUS: &str = "OPENSHIFT_HOUSEKEEPING_CPUS";

/// The directory in the container whose files have its present CPUs.
pub const DIRECTORY: &str = "NRI_CPU_MANAGER_DIR";

/// The variables of a new container with exclusive CPUs; `housekeeping` are those on which
/// interrupts may stay.
pub fn environment(
    settings: &Settings,
    topology: &Topology,
    reach: &Reach,
    housekeeping: CpuSet,
) -> Vec<Variable> {
    let Description { cpus, numa_nodes, uncore_caches } =
        Description::of(topology, reach.exclusive);
    let mut variables =
        vec![(CPUS, cpus), (NUMA_NODES, numa_nodes), (UNCORE_CACHES, uncore_caches)];
    if !reach.shared.is_empty() {
        variables.push((SHARED_CPUS, reach.shared.to_string()));
    }
    if !housekeeping.is_empty() {
        variables.push((HOUSEKEEPING_CPUS, housekeeping.to_string()));
        if settings.reads_crio {
            variables.push((CRIO_HOUSEKEEPING_CPUS, housekeeping.to_string()));
        }
    }
    variables
}

/// CPUs in the formats of [`CPUS`], [`NUMA_NODES`] and [`UNCORE_CACHES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub cpus: String,
    pub numa_nodes: String,
    pub uncore_caches: String,
}

impl Description {
    pub fn of(topology: &Topology, cpus: CpuSet) -> Description {
        let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(&cpus));
        // A `CpuSet` of node ids, for its format: a machine has fewer nodes than CPUs.
        let nodes: CpuSet = nodes.filter_map(|node| CpuSet::of(node.id).ok()).collect();
        let parts = topology.uncores().iter().map(|uncore| uncore.cpus & cpus);
        let caches: Vec<String> =
            parts.filter(|part| !part.is_empty()).map(|part| part.to_string()).collect();
        Description {
            cpus: cpus.to_string(),
            numa_nodes: nodes.to_string(),
            uncore_caches: caches.join(";"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::synthetic::Machine;

    #[track_caller]
    fn check(machine: &str, cpus: &str, expect: [&str; 3]) {
        let topology = machine.parse::<Machine>().unwrap().topology().unwrap();
        let Description { cpus: list, numa_nodes, uncore_caches } =
            Description::of(&topology, cpus.parse().unwrap());
        assert_eq!([list, numa_nodes, uncore_caches], expect, "{cpus} of {machine}");
    }

    #[test]
    fn a_description_lists_the_numa_nodes_and_the_cpus_of_each_cache() {
        let machine = "pack:2 numa:2 l3:2 core:4 pu:1";
        check(machine, "3", ["3", "0", "3"]);
        check(machine, "2-9,16", ["2-9,16", "0-2", "2-3;4-7;8-9;16"]);
        check(machine, "0-3,24-27", ["0-3,24-27", "0,3", "0-3;24-27"]);
    }
}
