//! Pods with wishes, that is, annotations.

use super::Node;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::wish::Wish;
use nri_cpu_manager::ledger::{Bounds, Margin, Namespaces, Pod};
use nri_cpu_manager::topology::Domain;
use proptest::prelude::*;

/// Every wish; the first value of a key stands for none.
const VALUES: [(&str, &[&str]); 4] = [
    ("cpus", &["", "exclusive", "shared", "exclusive+shared"]),
    ("uncore", &["", "prefer", "require", "ignore", "exclusive", "exclusive-shared"]),
    ("numa", &["", "single", "closest", "spread"]),
    ("smt", &["", "full-cores", "isolate"]),
];

/// The index of each key's value; half of all pods have no wish.
pub(super) fn wishes() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![Just([0; 4]), [0..4u8, 0..6u8, 0..4u8, 0..3u8]]
}

/// The wishes as annotations: `smt` of the first container, all others of the pod.
pub(super) fn annotations(wishes: [u8; 4]) -> Vec<(String, String)> {
    let chosen =
        VALUES.iter().zip(wishes).map(|((key, values), at)| (*key, values[usize::from(at)]));
    let chosen = chosen.filter(|(_, value)| !value.is_empty());
    chosen
        .map(|(key, value)| {
            let subject = if key == "smt" { "container.c0" } else { "pod" };
            (format!("{key}.cpu-manager.nri.io/{subject}"), value.to_owned())
        })
        .collect()
}

/// All wishes are allowed in all namespaces.
pub(super) fn all_allowed() -> Namespaces {
    let wishes =
        VALUES.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    let allow = wishes.filter_map(|(key, value)| Wish::parse(key, value).ok()).collect();
    Namespaces::new(vec![(vec!["*".to_owned()], Bounds { allow, ..Bounds::default() })]).unwrap()
}

/// Whether a pod has the wish `cpus: shared`.
pub(super) fn opts_out(pod: &Pod) -> bool {
    pod.annotations.iter().any(|(name, value)| name.starts_with("cpus.") && value == "shared")
}

pub(super) fn is_mixed(pod: &Pod) -> bool {
    pod.annotations.iter().any(|(_, value)| value == "exclusive+shared")
}

fn touched(domains: &[Domain], cpus: &CpuSet) -> CpuSet {
    domains.iter().map(|one| one.cpus).filter(|one| !one.is_disjoint(cpus)).collect()
}

impl Node {
    /// No container runs on a CPU that stays idle for a running one: a sibling, or the rest of its
    /// uncore caches, where those of its pod may run by its wish.
    pub(super) fn check_idle(&self) {
        for claim in self.ledger.claims().filter(|claim| claim.margin != Margin::NONE) {
            if self.instances.get(&claim.id.0).is_none_or(|instance| instance.stopped) {
                continue;
            }
            let reserved = self.settings.placement.reserved;
            let mut siblings = CpuSet::EMPTY;
            if claim.margin.siblings {
                siblings = touched(self.topology.cores(), &claim.cpus) - claim.cpus - reserved;
            }
            let mut idle = siblings;
            if claim.margin.caches {
                idle |= touched(self.topology.uncores(), &claim.cpus) - claim.cpus - reserved;
            }
            for instance in self.instances.values().filter(|instance| !instance.stopped) {
                let Some(adjustment) = instance.adjustment else { continue };
                let in_pod = instance.pod.uid == claim.pod_uid && claim.margin.in_pod;
                let idle = if in_pod { siblings } else { idle };
                let id = &instance.container.id;
                let runs = self.runs_on(id, adjustment);
                assert!(runs.is_disjoint(&idle), "{id} runs on idle CPUs {idle}");
            }
        }
    }
}
