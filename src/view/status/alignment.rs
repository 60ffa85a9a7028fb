//! [`Scorer`]: how the exclusive CPUs of live containers lie on the machine, in integers, so that
//! every program that repeats a workload gets the same figures.

use cpuset::CpuSet;
use ledger::{Phase, View};
use serde::{Deserialize, Serialize};
use topology::Topology;

/// The placement of live containers with exclusive CPUs: sums over all of them, at each
/// look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveScore {
    /// Looks.
    pub samples: u64,
    pub containers: u64,
    /// Containers no larger than the largest uncore cache.
    pub fit_one_cache: u64,
    /// Of these, the ones in one uncore cache.
    pub in_one_cache: u64,
    /// Uncore caches beyond the fewest possible if all were as large as the largest.
    pub excess_uncore_caches: u64,
    /// Likewise.
    pub excess_numa_nodes: u64,
    /// Cores of which another container has CPUs too.
    pub shared_cores: u64,
}

impl LiveScore {
    /// One look at a node.
    pub(crate) fn of(view: &View) -> LiveScore {
        let alive = view.containers.iter().filter(|seen| seen.phase != Phase::Ended);
        let mut score = LiveScore::default();
        let live = alive.filter_map(|seen| seen.exclusive);
        Scorer::new(&view.topology).sample(&view.topology, live, &mut score);
        score
    }
}

/// Looks at all live containers and adds what it sees to a [`LiveScore`].
#[derive(Debug)]
pub struct Scorer {
    /// CPUs of the largest uncore cache and of the largest NUMA node, reserved ones included.
    cache_size: usize,
    node_size: usize,
    uncores: Marks,
    nodes: Marks,
    cores: Marks,
    /// By core: containers with CPUs in it.
    tenants: Vec<usize>,
}

/// By domain: the number of the last container seen in it; 0 for none.
#[derive(Debug)]
struct Marks(Vec<usize>);

impl Marks {
    /// Whether the container is seen in this domain for the first time.
    fn enter(&mut self, domain: usize, container: usize) -> bool {
        std::mem::replace(&mut self.0[domain], container) != container
    }
}

impl Scorer {
    pub fn new(topology: &Topology) -> Scorer {
        let sizes = topology.sizes();
        let largest = |sizes: &[usize]| sizes.iter().copied().max().unwrap_or(1);
        Scorer {
            cache_size: largest(&sizes.uncores),
            node_size: largest(&sizes.nodes),
            uncores: Marks(vec![0; sizes.uncores.len()]),
            nodes: Marks(vec![0; sizes.nodes.len()]),
            cores: Marks(vec![0; sizes.cores.len()]),
            tenants: vec![0; sizes.cores.len()],
        }
    }

    /// Adds a look at these containers' CPUs. The machine must still be the one given to
    /// [`Scorer::new`].
    pub fn sample(
        &mut self,
        topology: &Topology,
        live: impl Iterator<Item = CpuSet>,
        score: &mut LiveScore,
    ) {
        for marks in [&mut self.uncores.0, &mut self.nodes.0, &mut self.cores.0, &mut self.tenants]
        {
            marks.fill(0);
        }
        score.samples += 1;
        for (number, cpus) in (1..).zip(live) {
            let size = cpus.len();
            let mut uncores = 0;
            let mut nodes = 0;
            for place in cpus.iter().filter_map(|cpu| topology.place(cpu)) {
                uncores += u64::from(self.uncores.enter(place.uncore(), number));
                nodes += u64::from(self.nodes.enter(place.node(), number));
                if self.cores.enter(place.core(), number) {
                    self.tenants[place.core()] += 1;
                }
            }
            let fits = size <= self.cache_size;
            score.containers += 1;
            score.fit_one_cache += u64::from(fits);
            score.in_one_cache += u64::from(fits && uncores == 1);
            score.excess_uncore_caches += excess(uncores, size, self.cache_size);
            score.excess_numa_nodes += excess(nodes, size, self.node_size);
        }
        let shared = self.tenants.iter().filter(|tenants| **tenants > 1);
        score.shared_cores += shared.map(|tenants| *tenants as u64).sum::<u64>();
    }
}

/// How many more domains than so many CPUs need if all domains are as large as the largest one.
fn excess(touched: u64, cpus: usize, largest: usize) -> u64 {
    touched.saturating_sub(cpus.div_ceil(largest) as u64)
}
