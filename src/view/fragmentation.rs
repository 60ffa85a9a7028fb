//! How scattered free CPUs are.

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
pub(crate) fn fragmentation(domains: &[(usize, usize)]) -> f64 {
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
