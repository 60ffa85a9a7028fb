//! Groups of CPUs from the CPUs' own, possibly contradictory lists.

use cpuset::CpuSet;
use std::collections::BTreeMap;

/// CPUs cut into groups.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Groups {
    /// Each CPU's group, by the group's lowest CPU.
    pub(super) groups: BTreeMap<usize, usize>,
    /// The CPUs with claims that contradict those of others.
    pub(super) conflicting: CpuSet,
    /// The first contradiction, in words.
    pub(super) example: Option<String>,
}

/// Gives each silent CPU the claim of the lowest CPU that names it, if any does.
pub(super) fn adopt(claims: &mut BTreeMap<usize, CpuSet>, silent: &CpuSet) {
    let named_by = |cpu: usize| claims.values().find(|claim| claim.contains(cpu)).copied();
    let adopted: Vec<(usize, CpuSet)> =
        silent.iter().filter_map(|cpu| Some((cpu, named_by(cpu)?))).collect();
    claims.extend(adopted);
}

/// Cuts CPUs into groups by their claims.
///
/// A CPU's claim is its own list of its group, itself included. On a sane machine all members of a
/// group have the same claim. Elsewhere two CPUs are in one group only if each names the other, and
/// lower CPUs choose first: a CPU that wrongly lists half the machine does not get it as its group.
pub(super) fn partition(claims: &BTreeMap<usize, CpuSet>) -> Groups {
    let mut groups = BTreeMap::new();
    let mut conflicting = CpuSet::EMPTY;
    let mut example = None;
    for (&cpu, claim) in claims {
        for (other, others_claim) in claims_of(claim, claims) {
            if others_claim != claim {
                // Numbers out of a set fit into one.
                let _ = conflicting.insert(cpu);
                let _ = conflicting.insert(other);
                example.get_or_insert_with(|| {
                    format!("CPU {cpu} says {claim:?}, CPU {other} says {others_claim:?}")
                });
            }
        }
        if !claim.contains(cpu) {
            let _ = conflicting.insert(cpu);
            example.get_or_insert_with(|| format!("CPU {cpu} is not in its own list {claim:?}"));
        }
        if groups.contains_key(&cpu) {
            continue;
        }
        groups.insert(cpu, cpu);
        for (other, others_claim) in claims_of(claim, claims) {
            if others_claim.contains(cpu) {
                groups.entry(other).or_insert(cpu);
            }
        }
    }
    Groups { groups, conflicting, example }
}

/// The claims of the CPUs in a set.
fn claims_of<'a>(
    set: &CpuSet,
    claims: &'a BTreeMap<usize, CpuSet>,
) -> impl Iterator<Item = (usize, &'a CpuSet)> {
    set.iter().filter_map(|cpu| claims.get(&cpu).map(|claim| (cpu, claim)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims like `0:0-1 1:0-1`, expected groups like `0-1 2`, then the CPUs in conflict.
    #[track_caller]
    fn check(claims: &str, expect: &str, conflicting: &str) {
        let claims = claims
            .split_whitespace()
            .map(|claim| {
                let (cpu, set) = claim.split_once(':').unwrap();
                (cpu.parse().unwrap(), set.parse().unwrap())
            })
            .collect();
        let found = partition(&claims);
        let mut sets: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for (&cpu, &group) in &found.groups {
            sets.entry(group).or_default().insert(cpu).unwrap();
        }
        let sets: Vec<String> = sets.values().map(CpuSet::to_string).collect();
        assert_eq!(sets.join(" "), expect);
        assert_eq!(found.conflicting.to_string(), conflicting);
        assert_eq!(found.example.is_some(), !conflicting.is_empty());
    }

    #[test]
    fn silent_cpus() {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let mut claims = BTreeMap::from([(0, set("0-2")), (1, set("0-1")), (4, set("4"))]);
        adopt(&mut claims, &set("2-3"));
        assert_eq!(claims.get(&2), Some(&set("0-2")));
        assert_eq!(claims.get(&3), None);
    }

    #[test]
    fn groups() {
        check("0:0-1 1:0-1 2:2", "0-1 2", "");
        check("0:0,2 1:1,3 2:0,2 3:1,3", "0,2 1,3", "");
        // One names the other, which does not name it back.
        check("0:0-1 1:1", "0 1", "0-1");
        check("0:0 1:0-1", "0 1", "0-1");
        // A chain: the lowest CPU chooses first.
        check("0:0-1 1:0-2 2:1-2", "0-1 2", "0-2");
        // A CPU that lists everything draws nothing in.
        check("0:0-1 1:0-1 2:0-3 3:3", "0-1 2 3", "0-3");
        // Not in its own list.
        check("0: 1:1", "0 1", "0");
        check("5:6 6:6", "5 6", "5");
        // CPUs that claim nothing (offline ones) join no group.
        check("0:0-1", "0", "");
    }
}
