//! The machines: most are those of the conformance vectors, by name.

use crate::runner;
use cpuset::CpuSet;
use machines::synthetic::{self, Numbering};
use std::error::Error;
use std::path::Path;
use topology::model::NodeFacts;
use topology::{Facts, Topology};

/// Distances between NUMA nodes; the vectors have none.
const LOCAL: u32 = 10;
const SAME_SOCKET: u32 = 12;
const OTHER_SOCKET: u32 = 32;

const NAMES: [&str; 13] = [
    "epyc-7702p-64c-smt-nps1",
    "epyc-7702p-64c-smt-nps4",
    "2p-epyc-7303-32c-smt-nps1",
    // Two EPYC 9654 with one NUMA node each.
    "kubelet-topoDualSocketSingleNumaPerSocketSMTUncore",
    "2p-epyc-9654-96c-nosmt-nps2",
    "2p-epyc-9654-96c-smt-nps4",
    "epyc-9754-128c-smt-nps1",
    "2p-xeon-8490h-60c-ht-snc4",
    "ampere-altra-128c",
    "power9-2s-smt4",
    "graviton3-64c",
    "epyc-7702p-64c-smt-l3-as-numa",
    "2p-epyc-7713-64c-smt-l3-as-numa-uncore-is-socket",
];

pub(crate) struct NamedMachine {
    pub(crate) name: String,
    pub(crate) topology: Topology,
    /// The core of CPU 0.
    pub(super) reserved: CpuSet,
}

impl NamedMachine {
    fn new(name: &str, topology: Topology) -> NamedMachine {
        let first = topology.cores().iter().find(|core| core.cpus.contains(0));
        let reserved = first.map_or(CpuSet::EMPTY, |core| core.cpus);
        NamedMachine { name: name.to_owned(), topology, reserved }
    }

    /// The CPUs that may be exclusive.
    pub(super) fn capacity(&self) -> usize {
        (self.topology.online() - self.reserved).len()
    }

    /// CPUs of the largest uncore cache, including reserved ones.
    pub(super) fn cache_size(&self) -> usize {
        self.topology.sizes().uncores.iter().copied().max().unwrap_or(1)
    }

    /// CPUs of the largest NUMA node, including reserved ones.
    pub(super) fn node_size(&self) -> usize {
        self.topology.sizes().nodes.iter().copied().max().unwrap_or(1)
    }

    /// Whether an engine has a choice of caches or nodes.
    pub(crate) fn is_divided(&self) -> bool {
        self.topology.uncores().len() > 1
    }
}

/// All machines; `vectors` is the directory of the conformance vectors.
pub(crate) fn machines(vectors: &Path) -> Result<Vec<NamedMachine>, Box<dyn Error>> {
    let (known, _) = runner::machines(vectors)?;
    let mut machines = Vec::new();
    for name in NAMES {
        let topology = known.get(name).ok_or_else(|| format!("no machine {name}"))?;
        machines.push(NamedMachine::new(name, with_distances(topology)?));
    }
    let large = synthetic::Machine {
        sockets: 2,
        nodes: 16,
        caches: 16,
        cores: 128,
        threads: 2,
        numbering: Numbering::Interleaved,
        near: SAME_SOCKET,
        far: OTHER_SOCKET,
        ..synthetic::Machine::default()
    };
    machines.push(NamedMachine::new("512cpu-32node", large.topology()?));
    Ok(machines)
}

fn with_distances(topology: &Topology) -> Result<Topology, Box<dyn Error>> {
    let socket_of =
        |cpus: &CpuSet| cpus.first().and_then(|cpu| topology.cpu(cpu)).map(|cpu| cpu.socket);
    let nodes = topology.nodes();
    let distance = |from: &CpuSet, to: &CpuSet| {
        if from == to {
            LOCAL
        } else if socket_of(from) == socket_of(to) {
            SAME_SOCKET
        } else {
            OTHER_SOCKET
        }
    };
    let facts = Facts {
        cpus: topology.cpus().to_vec(),
        nodes: nodes
            .iter()
            .map(|node| NodeFacts {
                id: node.id,
                distances: nodes.iter().map(|to| distance(&node.cpus, &to.cpus)).collect(),
                memoryless: node.memoryless,
            })
            .collect(),
        ..Facts::default()
    };
    Ok(Topology::build(facts)?)
}
