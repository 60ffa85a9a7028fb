//! Whole uncore caches, which `uncore: exclusive` gives a container.

use cpuset::CpuSet;
use topology::Topology;

/// The CPUs of all uncore caches that `cpus` touches.
pub fn whole_caches(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let caches = topology.uncores().iter().map(|cache| cache.cpus);
    caches.filter(|cache| !cache.is_disjoint(cpus)).collect()
}

/// The part of `free` in uncore caches that are entirely free, and in the caches of `held`, which
/// the container has already. Offline CPUs do not count. `free` must not have reserved CPUs: a
/// cache with a reserved CPU is never entirely free.
pub(super) fn in_free_caches(topology: &Topology, free: &CpuSet, held: &CpuSet) -> CpuSet {
    let caches = topology.uncores().iter().map(|cache| cache.cpus);
    let usable = caches.filter(|cache| cache.is_subset(free) || !cache.is_disjoint(held));
    usable.collect::<CpuSet>() & *free
}

/// How many of `sizes` are needed at least for a sum of `n`; all of them if their sum is too small.
pub(super) fn fewest(mut sizes: Vec<usize>, n: usize) -> usize {
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let sums = sizes.iter().scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    (sums.take_while(|&sum| sum < n).count() + 1).min(sizes.len())
}

#[cfg(test)]
mod tests {
    use super::super::machines::{caches, set};
    use super::*;

    #[test]
    fn a_cache_is_free_as_a_whole_or_not_at_all() {
        let machine = caches(3, 4);
        let free = |free, held| in_free_caches(&machine, &set(free), &set(held)).to_string();
        assert_eq!(free("1-11", ""), "4-11");
        assert_eq!(free("1-6,8-11", ""), "8-11");
        // The free rest of the container's own cache counts, even with other containers in that
        // cache.
        assert_eq!(free("1-2,4-6,8-11", "7"), "4-6,8-11");
        assert_eq!(whole_caches(&machine, &set("1,6")), set("0-7"));
    }
}
