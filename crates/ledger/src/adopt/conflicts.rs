//! Which of the containers that hold the same CPUs have to leave them.

use cpuset::CpuSet;
use std::collections::BTreeSet;

/// The search ends with its best answer after so many steps. Conflicts of real nodes need far
/// fewer.
const PATIENCE: usize = 10_000;

/// The smallest set of `claims`, by index, without which no two of the others overlap. Of two
/// equally small sets it is the one that keeps the earlier claims. An empty claim overlaps with
/// none.
pub(super) fn in_the_way(claims: &[CpuSet]) -> BTreeSet<usize> {
    let all: BTreeSet<usize> = (0..claims.len()).collect();
    let mut patience = PATIENCE;
    fewest(claims, all, &mut patience)
}

/// A minimum vertex cover: the nodes are claims, the edges are overlaps.
fn fewest(claims: &[CpuSet], mut left: BTreeSet<usize>, patience: &mut usize) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    loop {
        let overlaps: Vec<(usize, Vec<usize>)> = left
            .iter()
            .map(|&one| (one, neighbours(claims, &left, one)))
            .filter(|(_, others)| !others.is_empty())
            .collect();
        // A claim that overlaps with only one other can always stay, and the other one goes.
        if let Some((_, others)) = overlaps.iter().find(|(_, others)| others.len() == 1) {
            out.extend(others);
            left.retain(|one| !others.contains(one));
            continue;
        }
        // Of equal degrees this is the younger claim.
        let Some((worst, others)) = overlaps.into_iter().max_by_key(|(_, others)| others.len())
        else {
            return out;
        };
        *patience = patience.saturating_sub(1);
        let without = |gone: &[usize]| -> BTreeSet<usize> {
            left.iter().copied().filter(|one| !gone.contains(one)).collect()
        };
        let mut goes = fewest(claims, without(&[worst]), patience);
        goes.insert(worst);
        if *patience > 0 {
            let mut stays = fewest(claims, without(&others), patience);
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
    // All are indices of claims.
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
        assert_eq!(in_the_way(&claims).into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn examples() {
        check(&[], &[]);
        check(&["0-1", "2-3"], &[]);
        // Of two the younger one.
        check(&["0-1", "1-2"], &[1]);
        // One between two goes, however old it is.
        check(&["1-2", "0-1", "2-3"], &[0]);
        check(&["0-1", "1-2", "2-3", "3-4"], &[1, 3]);
        check(&["0", "0", "0"], &[1, 2]);
        check(&["", ""], &[]);
    }

    fn disjoint(claims: &[CpuSet], out: impl Fn(usize) -> bool) -> bool {
        let mut seen = CpuSet::EMPTY;
        claims.iter().enumerate().filter(|(at, _)| !out(*at)).all(|(_, claim)| {
            let free = seen.is_disjoint(claim);
            seen |= *claim;
            free
        })
    }

    proptest! {
        #[test]
        fn no_smaller_answer_there_is(
            claims in prop::collection::vec(prop::collection::vec(0..12usize, 0..4), 0..9)
        ) {
            let claims: Vec<CpuSet> =
                claims.into_iter().map(cpus).collect();
            let found = in_the_way(&claims);
            prop_assert!(disjoint(&claims, |at| found.contains(&at)));
            for out in 0u32..1 << claims.len() {
                if (out.count_ones() as usize) < found.len() {
                    prop_assert!(!disjoint(&claims, |at| out & 1 << at != 0), "{out:b}");
                }
            }
        }
    }

    #[test]
    fn many_conflicts_take_no_time() {
        let claims: Vec<CpuSet> =
            (0..200usize).map(|at| cpus([at % 64, at * 7 % 64, at * 13 % 64])).collect();
        let found = in_the_way(&claims);
        assert!(disjoint(&claims, |at| found.contains(&at)));
    }
}
