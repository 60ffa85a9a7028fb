//! `topologies.jsonl`: the machines the other files speak of.

use super::{Machines, Outcome};
use nri_cpu_manager::topology::{Cpu, Facts, Topology};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Machine {
    name: String,
    ncpu: usize,
    core: usize,
    socket: usize,
    numa: usize,
    uncore: usize,
    cpus: Vec<[usize; 5]>,
}

/// Builds the machine and keeps it; it passes if it has as many CPUs and domains as the vector
/// says.
pub(super) fn check(machine: Machine, machines: &mut Machines) -> Outcome {
    let topology = match build(&machine.cpus) {
        Ok(topology) => topology,
        Err(error) => return Outcome::Failed(format!("{}: {error}", machine.name)),
    };
    let expect = [machine.ncpu, machine.core, machine.socket, machine.numa, machine.uncore];
    let found = [
        topology.cpus().len(),
        topology.cores().len(),
        topology.sockets().len(),
        topology.cpu_nodes(),
        topology.uncores().len(),
    ];
    let outcome = match found == expect {
        true => Outcome::Passed,
        false => Outcome::Failed(format!(
            "{}: CPUs, cores, sockets, NUMA nodes, uncore caches are {found:?}, expected {expect:?}",
            machine.name
        )),
    };
    machines.insert(machine.name, topology);
    outcome
}

/// A machine from rows of CPU, core, socket, NUMA node and uncore cache.
pub(crate) fn build(
    rows: &[[usize; 5]],
) -> Result<Topology, nri_cpu_manager::topology::model::TopologyError> {
    let cpus = rows.iter().map(|&[id, core, socket, numa, uncore]| Cpu {
        id,
        core,
        uncore,
        numa,
        socket,
        die: None,
        kind: None,
    });
    Topology::build(Facts { cpus: cpus.collect(), ..Facts::default() })
}
