//! Figures of placements. [`Scorer`] counts how the exclusive CPUs of live containers lie on the
//! machine, in integers, so that every program that repeats a workload gets the same figures;
//! [`fragmentation`] is how scattered free CPUs are.

use cpuset::CpuSet;
use topology::Topology;

/// The placement of live containers with exclusive CPUs: sums over all of them, in all samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveScore {
    /// How many times the live containers were scored.
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

/// Adds samples of the live containers to a [`LiveScore`].
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

    /// Adds a sample with the CPUs of these containers. The machine must still be the one given to
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

/// How scattered the free CPUs of some domains (uncore caches, NUMA nodes) are, from 0 to 1.
///
/// `domains` are the numbers of assignable and of free CPUs of each. 0: the free CPUs are in the
/// largest pieces that so many can form, as on an empty or a full machine. Towards 1: the pieces
/// become ever smaller.
///
/// It is `1 - S / B`. `S` is the sum of the squares of the domains' free CPUs; divided by all free
/// CPUs it is the mean size of the piece that a free CPU is in. `B` is the largest possible `S` for
/// this number of free CPUs: as few domains as possible have them, the largest first. (The sum of
/// squared shares is known as the Herfindahl-Hirschman index.)
pub fn fragmentation(domains: &[(usize, usize)]) -> f64 {
    let mut left: usize = domains.iter().map(|(_, free)| free).sum();
    let mut sizes: Vec<usize> = domains.iter().map(|(size, free)| *size.max(free)).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let best: f64 = sizes
        .into_iter()
        .map(|size| {
            let here = size.min(left);
            left -= here;
            square(here)
        })
        .sum();
    if best == 0.0 {
        return 0.0;
    }
    1.0 - domains.iter().map(|(_, free)| square(*free)).sum::<f64>() / best
}

fn square(cpus: usize) -> f64 {
    (cpus * cpus) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(domains: &[(usize, usize)], expect: f64) {
        let found = fragmentation(domains);
        assert!((found - expect).abs() < 1e-9, "{found} for {domains:?}");
    }

    #[test]
    fn examples() {
        check(&[], 0.0);
        check(&[(8, 0), (8, 0)], 0.0);
        // Nothing runs; two CPUs of the first cache are reserved.
        check(&[(6, 6), (8, 8), (8, 8)], 0.0);
        // One of two caches is free: best.
        check(&[(8, 0), (8, 8)], 0.0);
        // The same eight, half in each.
        check(&[(8, 4), (8, 4)], 0.5);
        // One in each of eight.
        check(&[(8, 1); 8], 0.875);
        // Twelve: a full one and a rest of four would be best, 64 + 16; three of four are 48.
        check(&[(8, 4), (8, 4), (8, 4)], 0.4);
    }

    proptest! {
        #[test]
        fn it_is_a_share_and_packing_never_makes_it_larger(
            domains in prop::collection::vec((1..64usize, 0..64usize), 1..16)
        ) {
            let mut domains: Vec<(usize, usize)> =
                domains.into_iter().map(|(size, free)| (size, free.min(size))).collect();
            let before = fragmentation(&domains);
            prop_assert!((0.0..1.0).contains(&before), "{before}");
            // One free CPU moves from the domain with the fewest to one with more that has room.
            domains.sort_by_key(|(_, free)| *free);
            let from = domains.iter().position(|(_, free)| *free > 0);
            let to = domains.iter().rposition(|(size, free)| free < size);
            if let (Some(from), Some(to)) = (from, to) && from < to {
                domains[from].1 -= 1;
                domains[to].1 += 1;
                prop_assert!(fragmentation(&domains) <= before + 1e-9);
            }
        }
    }
}
