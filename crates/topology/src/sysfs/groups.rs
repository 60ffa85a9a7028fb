//! Groups of CPUs (cores, caches) from the lists in the CPUs' own directories, which may contradict
//! each other.

use cpuset::CpuSet;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CpuGroups {
    /// The group of each CPU, named by the group's lowest CPU.
    pub(super) groups: BTreeMap<usize, usize>,
    /// The CPUs with claims that contradict those of others.
    pub(super) conflicting: CpuSet,
    /// The first contradiction, as text.
    pub(super) example: Option<String>,
}

/// Gives each CPU without a claim the claim of the lowest CPU that lists it, if any does.
pub(super) fn adopt(claims: &mut BTreeMap<usize, CpuSet>, silent: &CpuSet) {
    let named_by = |cpu: usize| claims.values().find(|claim| claim.contains(cpu)).copied();
    let adopted: Vec<(usize, CpuSet)> =
        silent.iter().filter_map(|cpu| Some((cpu, named_by(cpu)?))).collect();
    claims.extend(adopted);
}

/// Cuts CPUs into groups by their claims.
///
/// The claim of a CPU is its own list of its group, including itself. On a sane machine all members
/// of a group have the same claim. Otherwise two CPUs are in one group only if each lists the
/// other, and lower CPUs choose first, so that a CPU that wrongly lists half the machine does not
/// get it as its group.
pub(super) fn partition(claims: &BTreeMap<usize, CpuSet>) -> CpuGroups {
    let mut groups = BTreeMap::new();
    let mut conflicting = CpuSet::EMPTY;
    let mut example = None;
    for (&cpu, claim) in claims {
        for (other, others_claim) in claims_of(claim, claims) {
            if others_claim != claim {
                // Cannot fail: both come from a set.
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
    CpuGroups { groups, conflicting, example }
}

/// The claims of these CPUs.
fn claims_of<'a>(
    set: &CpuSet,
    claims: &'a BTreeMap<usize, CpuSet>,
) -> impl Iterator<Item = (usize, &'a CpuSet)> {
    set.iter().filter_map(|cpu| claims.get(&cpu).map(|claim| (cpu, claim)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims are written as `0:0-1 1:0-1`, expected groups as `0-1 2`.
    #[track_caller]
    fn check(claims: &str, expect: &str, conflicting: &str) {
        let claims = claims
            .split_whitespace()
            .map(|claim| {
                let (cpu, set) = claim.split_once(':').unwrap();
                (cpu.parse().unwrap(), set.parse().unwrap())
            })
            .collect();
        let actual = partition(&claims);
        let mut sets: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for (&cpu, &group) in &actual.groups {
            sets.entry(group).or_default().insert(cpu).unwrap();
        }
        let sets: Vec<String> = sets.values().map(CpuSet::to_string).collect();
        assert_eq!(sets.join(" "), expect);
        assert_eq!(actual.conflicting.to_string(), conflicting);
        assert_eq!(actual.example.is_some(), !conflicting.is_empty());
    }

    #[test]
    fn a_cpu_without_a_claim_adopts_that_of_the_lowest_cpu_that_lists_it() {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let mut claims = BTreeMap::from([(0, set("0-2")), (1, set("0-1")), (4, set("4"))]);
        adopt(&mut claims, &set("2-3"));
        assert_eq!(claims.get(&2), Some(&set("0-2")));
        assert_eq!(claims.get(&3), None);
    }

    #[test]
    fn cpus_are_grouped_if_they_list_each_other() {
        check("0:0-1 1:0-1 2:2", "0-1 2", "");
        check("0:0,2 1:1,3 2:0,2 3:1,3", "0,2 1,3", "");
        // One CPU lists the other, which does not list it.
        check("0:0-1 1:1", "0 1", "0-1");
        check("0:0 1:0-1", "0 1", "0-1");
        // A chain: the lowest CPU chooses first.
        check("0:0-1 1:0-2 2:1-2", "0-1 2", "0-2");
        // A CPU that lists all others does not get them.
        check("0:0-1 1:0-1 2:0-3 3:3", "0-1 2 3", "0-3");
        // A CPU is not in its own list.
        check("0: 1:1", "0 1", "0");
        check("5:6 6:6", "5 6", "5");
        // Offline CPUs have no claim and join no group.
        check("0:0-1", "0", "");
    }
}
