//! Pods with wishes, that is, annotations.

use super::Node;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::annotations::{Annotations, MAX_ANNOTATIONS};
use nri_cpu_manager::ledger::wish::{Cpus, Wish};
use nri_cpu_manager::ledger::{Bounds, Margin, Namespaces, Pod};
use nri_cpu_manager::topology::Domain;
use proptest::prelude::*;

/// Every wish; the first value of a key stands for none.
const VALUES: [(&str, &[&str]); 4] = [
    ("cpus", &["", "exclusive", "shared", "exclusive+shared"]),
    ("uncore", &["", "prefer", "require", "ignore", "exclusive"]),
    ("numa", &["", "single", "closest", "spread"]),
    ("smt", &["", "full-cores", "isolate"]),
];

/// A pod with more annotations than are accepted.
const TOO_MANY: [u8; 4] = [u8::MAX; 4];

/// The index of each key's value; half of all pods have no wish.
pub(super) fn wishes() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![8 => Just([0; 4]), 8 => [0..4u8, 0..5u8, 0..4u8, 0..3u8], 1 => Just(TOO_MANY)]
}

/// The wishes as annotations: `smt` of the first container, all others of the pod.
pub(super) fn annotations(wishes: [u8; 4]) -> Annotations {
    if wishes == TOO_MANY {
        let name = |number| format!("cpus.cpu-manager.nri.io/container.c{number}");
        return (0..=MAX_ANNOTATIONS).map(|number| (name(number), "exclusive")).collect();
    }
    let chosen =
        VALUES.iter().zip(wishes).map(|((key, values), at)| (*key, values[usize::from(at)]));
    let chosen = chosen.filter(|(_, value)| !value.is_empty());
    chosen
        .map(|(key, value)| {
            let subject = if key == "smt" { "container.c0" } else { "pod" };
            (format!("{key}.cpu-manager.nri.io/{subject}"), value)
        })
        .collect()
}

/// All wishes are allowed in all namespaces.
pub(super) fn all_allowed() -> Namespaces {
    let allow = Wish::all().collect();
    Namespaces::new(vec![(vec!["*".to_owned()], Bounds { allow, ..Bounds::default() })]).unwrap()
}

/// Whether a pod has the wish `cpus: shared`, or is refused and shares until then.
pub(super) fn opts_out(pod: &Pod) -> bool {
    pod.annotations.of("c0").cpus == Some(Cpus::Shared)
}

pub(super) fn is_mixed(pod: &Pod) -> bool {
    pod.annotations.of("c0").cpus == Some(Cpus::Mixed)
}

fn touched(domains: &[Domain], cpus: &CpuSet) -> CpuSet {
    domains.iter().map(|one| one.cpus).filter(|one| !one.is_disjoint(cpus)).collect()
}

impl Node {
    /// No container runs on a CPU that stays idle for a running one: a sibling, or the rest of its
    /// uncore caches.
    pub(super) fn check_idle(&self) {
        for claim in self.ledger.claims().filter(|claim| claim.margin != Margin::NONE) {
            if self.instances.get(&claim.id.0).is_none_or(|instance| instance.stopped) {
                continue;
            }
            let reserved = self.settings.placement.reserved;
            let mut idle = CpuSet::EMPTY;
            if claim.margin.siblings {
                idle = touched(self.topology.cores(), &claim.cpus) - claim.cpus - reserved;
            }
            if claim.margin.caches {
                idle |= touched(self.topology.uncores(), &claim.cpus) - claim.cpus - reserved;
            }
            for instance in self.instances.values().filter(|instance| !instance.stopped) {
                let Some(adjustment) = instance.adjustment else { continue };
                let id = &instance.container.id;
                let runs = self.runs_on(id, adjustment);
                assert!(runs.is_disjoint(&idle), "{id} runs on idle CPUs {idle}");
            }
        }
    }
}
