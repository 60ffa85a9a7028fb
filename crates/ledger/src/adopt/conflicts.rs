//! Which containers move if several hold the same CPUs: the fewest.

use cpuset::CpuSet;
use std::collections::BTreeSet;

/// The bound of the search, in steps; it then ends with the best answer so far. Conflicts of real
/// nodes need far fewer.
const MAX_STEPS: usize = 10_000;

/// The smallest set of `claims`, as indices, without which the remaining ones do not overlap. Of
/// two equally small sets it is the one that keeps the earlier claims.
pub(super) fn fewest_to_move(claims: &[CpuSet]) -> BTreeSet<usize> {
    // Most containers claim nothing: each step costs the square of the claims.
    let some = (0..claims.len()).filter(|at| !claims[*at].is_empty());
    let mut steps_left = MAX_STEPS;
    cover(claims, some.collect(), &mut steps_left)
}

/// A minimum vertex cover: the nodes are claims, the edges are overlaps.
fn cover(claims: &[CpuSet], mut left: BTreeSet<usize>, steps_left: &mut usize) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    loop {
        let overlaps: Vec<(usize, Vec<usize>)> = left
            .iter()
            .map(|&one| (one, neighbours(claims, &left, one)))
            .filter(|(_, others)| !others.is_empty())
            .collect();
        // A claim that overlaps with only one other can stay: moving the other is at least as good.
        if let Some((_, others)) = overlaps.iter().find(|(_, others)| others.len() == 1) {
            out.extend(others);
            left.retain(|one| !others.contains(one));
            continue;
        }
        // `max_by_key` returns the last of equal ones: the younger claim moves.
        let Some((worst, others)) = overlaps.into_iter().max_by_key(|(_, others)| others.len())
        else {
            return out;
        };
        *steps_left = steps_left.saturating_sub(1);
        let without = |gone: &[usize]| -> BTreeSet<usize> {
            left.iter().copied().filter(|one| !gone.contains(one)).collect()
        };
        // Either the worst one moves, or all that it overlaps with.
        let mut goes = cover(claims, without(&[worst]), steps_left);
        goes.insert(worst);
        if *steps_left > 0 {
            let mut stays = cover(claims, without(&others), steps_left);
            stays.extend(others);
            if stays.len() < goes.len() {
                goes = stays;
            }
        }
        out.extend(goes);
        return out;
    }
}

fn neighbours(claims: &[CpuSet], left: &BTreeSet<usize>, one: usize) -> Vec<usize> {
    // The indexing cannot fail: `left` is a part of the indices of `claims`.
    let overlaps = |other: &usize| *other != one && !claims[one].is_disjoint(&claims[*other]);
    left.iter().copied().filter(overlaps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        cpus.into_iter().map(|cpu| CpuSet::of(cpu).unwrap()).collect()
    }

    #[track_caller]
    fn check(claims: &[&str], expect: &[usize]) {
        let claims: Vec<CpuSet> = claims.iter().map(|list| list.parse().unwrap()).collect();
        assert_eq!(fewest_to_move(&claims).into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn the_fewest_and_youngest_claims_move() {
        check(&[], &[]);
        check(&["0-1", "2-3"], &[]);
        // The younger one of two moves.
        check(&["0-1", "1-2"], &[1]);
        // A claim that overlaps with two others moves, even if it is the oldest.
        check(&["1-2", "0-1", "2-3"], &[0]);
        check(&["0-1", "1-2", "2-3", "3-4"], &[1, 3]);
        check(&["0", "0", "0"], &[1, 2]);
        check(&["", ""], &[]);
    }

    /// With steps that look at them it would take many minutes.
    #[test]
    fn claims_of_nothing_cost_nothing() {
        let mut claims = vec![CpuSet::EMPTY; 60_000];
        claims.extend([cpus([1, 2]), cpus([2, 3])]);
        assert_eq!(fewest_to_move(&claims).into_iter().collect::<Vec<_>>(), [60_001]);
    }

    fn disjoint(claims: &[CpuSet], out: impl Fn(usize) -> bool) -> bool {
        let mut taken = CpuSet::EMPTY;
        claims.iter().enumerate().filter(|(at, _)| !out(*at)).all(|(_, claim)| {
            let free = taken.is_disjoint(claim);
            taken |= *claim;
            free
        })
    }

    proptest! {
        #[test]
        fn no_smaller_set_resolves_the_conflicts(
            claims in prop::collection::vec(prop::collection::vec(0..12usize, 0..4), 0..9)
        ) {
            let claims: Vec<CpuSet> =
                claims.into_iter().map(cpus).collect();
            let moved = fewest_to_move(&claims);
            prop_assert!(disjoint(&claims, |at| moved.contains(&at)));
            for out in 0u32..1 << claims.len() {
                if (out.count_ones() as usize) < moved.len() {
                    prop_assert!(!disjoint(&claims, |at| out & 1 << at != 0), "{out:b}");
                }
            }
        }
    }

    #[test]
    fn the_search_ends_with_many_conflicts() {
        let claims: Vec<CpuSet> =
            (0..200usize).map(|at| cpus([at % 64, at * 7 % 64, at * 13 % 64])).collect();
        let moved = fewest_to_move(&claims);
        assert!(disjoint(&claims, |at| moved.contains(&at)));
    }
}
