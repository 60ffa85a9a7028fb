//! `topologies.jsonl`: the machines of the other files.

use super::{Machines, Outcome};
use serde::Deserialize;
use topology::{Cpu, Facts, Topology};

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

/// Builds a machine and adds it to the others. It passes if it has the vector's numbers of CPUs and
/// domains.
pub(super) fn check(machine: Machine, machines: &mut Machines) -> Outcome {
    let topology = match build(&machine.cpus) {
        Ok(topology) => topology,
        Err(error) => return Outcome::Failed(format!("{}: {error}", machine.name)),
    };
    let expect = [machine.ncpu, machine.core, machine.socket, machine.numa, machine.uncore];
    let built = [
        topology.cpus().len(),
        topology.cores().len(),
        topology.sockets().len(),
        topology.cpu_nodes(),
        topology.uncores().len(),
    ];
    let outcome = if built == expect {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "{}: CPUs, cores, sockets, NUMA nodes, uncore caches are {built:?}, expected {expect:?}",
            machine.name
        ))
    };
    machines.insert(machine.name, topology);
    outcome
}

/// A machine from rows of CPU, core, socket, NUMA node and uncore cache.
pub(crate) fn build(rows: &[[usize; 5]]) -> Result<Topology, topology::model::TopologyError> {
    Topology::build(Facts { cpus: self::rows(rows), ..Facts::default() })
}

pub(crate) fn rows(rows: &[[usize; 5]]) -> Vec<Cpu> {
    let cpus = rows.iter().map(|&[id, core, socket, numa, uncore]| Cpu {
        id,
        core,
        uncore,
        numa,
        socket,
        die: None,
        kind: None,
    });
    cpus.collect()
}
