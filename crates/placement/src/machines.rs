//! Machines for this crate's unit tests.

use cpuset::CpuSet;
use topology::model::NodeFacts;
use topology::{Cpu, Facts, Topology};

/// How many of each are in one of the level above: `nodes` per socket, `uncores` per node, and so
/// on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) sockets: usize,
    pub(super) nodes: usize,
    pub(super) uncores: usize,
    pub(super) cores: usize,
    pub(super) threads: usize,
}

impl Shape {
    fn all_cores(self) -> usize {
        self.sockets * self.nodes * self.uncores * self.cores
    }

    /// The machine with these distances between its nodes. SMT siblings are numbered after all
    /// cores, as on x86 servers.
    pub(super) fn with_distances(self, distances: &[&[u32]]) -> Topology {
        let cpus = (0..self.all_cores() * self.threads).map(|id| {
            let core = id % self.all_cores();
            let uncore = core / self.cores;
            let numa = uncore / self.uncores;
            let socket = numa / self.nodes;
            Cpu { id, core, uncore: uncore * self.cores, numa, socket, die: None, kind: None }
        });
        let nodes = distances.iter().enumerate().map(|(id, distances)| NodeFacts {
            id,
            distances: distances.to_vec(),
            memoryless: false,
        });
        Topology::build(Facts { cpus: cpus.collect(), nodes: nodes.collect(), ..Facts::default() })
            .unwrap()
    }

    /// The machine without known distances.
    pub(super) fn build(self) -> Topology {
        self.with_distances(&[])
    }
}

/// One socket with one node and this many caches of `cores` cores each, without SMT.
pub(super) fn caches(uncores: usize, cores: usize) -> Topology {
    Shape { sockets: 1, nodes: 1, uncores, cores, threads: 1 }.build()
}

#[track_caller]
pub(super) fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}
