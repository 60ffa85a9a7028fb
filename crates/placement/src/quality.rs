//! Figures that say how good placements are. [`Scorer`] counts caches, nodes and cores of live
//! containers in integers, so that every program that repeats a workload gets the same figures.
//! [`fragmentation`] says how scattered free CPUs are.

use cpuset::CpuSet;
use topology::Topology;

/// Sums over all live containers with exclusive CPUs, in all samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveScore {
    /// How many times the live containers were scored.
    pub samples: u64,
    pub containers: u64,
    /// Containers that are no larger than the largest uncore cache.
    pub fit_one_uncore_cache: u64,
    /// Containers of [`fit_one_uncore_cache`](LiveScore::fit_one_uncore_cache) that are in one
    /// uncore cache.
    pub in_one_uncore_cache: u64,
    /// Uncore caches in excess of the fewest possible, if all were as large as the largest.
    pub excess_uncore_caches: u64,
    /// NUMA nodes in excess of the fewest possible, if all were as large as the largest.
    pub excess_numa_nodes: u64,
    /// Cores with CPUs of several containers, counted for each of these containers.
    pub shared_cores: u64,
}

/// Adds samples of the live containers to a [`LiveScore`].
#[derive(Debug)]
pub struct Scorer {
    /// The CPUs of the largest uncore cache, including reserved ones.
    cache_size: usize,
    /// The CPUs of the largest NUMA node, including reserved ones.
    node_size: usize,
    uncores: Marks,
    nodes: Marks,
    cores: Marks,
    /// For each core, the number of containers with CPUs of it.
    tenants: Vec<usize>,
}

/// For each domain, the number of the last container that was counted there; 0 for none.
#[derive(Debug)]
struct Marks(Vec<usize>);

impl Marks {
    /// Whether this is the first CPU of the container in this domain.
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

    /// Adds a sample with the CPUs of these containers. The machine must be the one that was passed
    /// to [`Scorer::new`].
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
            score.fit_one_uncore_cache += u64::from(fits);
            score.in_one_uncore_cache += u64::from(fits && uncores == 1);
            score.excess_uncore_caches += excess(uncores, size, self.cache_size);
            score.excess_numa_nodes += excess(nodes, size, self.node_size);
        }
        let shared = self.tenants.iter().filter(|tenants| **tenants > 1);
        score.shared_cores += shared.map(|tenants| *tenants as u64).sum::<u64>();
    }
}

/// How many domains more than `cpus` CPUs need, if all domains are as large as the largest one.
fn excess(touched: u64, cpus: usize, largest: usize) -> u64 {
    touched.saturating_sub(cpus.div_ceil(largest) as u64)
}

/// How scattered the free CPUs of domains (uncore caches or NUMA nodes) are, from 0 to 1.
///
/// `domains` has the number of assignable CPUs and of free CPUs of each domain. At 0 the free CPUs
/// are in the largest possible pieces, as on an empty or a full machine. Towards 1 the pieces
/// become ever smaller.
///
/// The value is `1 - S / B`. `S` is the sum of the squares of the domains' free CPUs; `S` divided
/// by the number of free CPUs is the mean size of the piece that a free CPU is in. `B` is the
/// largest possible `S` for this number of free CPUs: the largest domains have them all. (The sum
/// of squared shares is known as the Herfindahl-Hirschman index.)
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
        let actual = fragmentation(domains);
        assert!((actual - expect).abs() < 1e-9, "{actual} for {domains:?}");
    }

    #[test]
    fn fragmentation_is_one_minus_the_ratio_of_sums_of_squares() {
        check(&[], 0.0);
        check(&[(8, 0), (8, 0)], 0.0);
        // The machine is empty; two CPUs of the first cache are reserved.
        check(&[(6, 6), (8, 8), (8, 8)], 0.0);
        // One of two caches is entirely free.
        check(&[(8, 0), (8, 8)], 0.0);
        // Eight free CPUs, half of them in each of two caches.
        check(&[(8, 4), (8, 4)], 0.5);
        // One free CPU in each of eight caches.
        check(&[(8, 1); 8], 0.875);
        // Twelve free CPUs: at best eight and four, 64 + 16; three times four are 48.
        check(&[(8, 4), (8, 4), (8, 4)], 0.4);
    }

    proptest! {
        #[test]
        fn fragmentation_is_below_one_and_packing_never_raises_it(
            domains in prop::collection::vec((1..64usize, 0..64usize), 1..16)
        ) {
            let mut domains: Vec<(usize, usize)> =
                domains.into_iter().map(|(size, free)| (size, free.min(size))).collect();
            let before = fragmentation(&domains);
            prop_assert!((0.0..1.0).contains(&before), "{before}");
            // Move one free CPU from the domain with the fewest to one that has more, and room for
            // it.
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
