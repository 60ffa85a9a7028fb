//! Pods that wish for something.

use super::Node;
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::wish::Wish;
use nri_cpu_manager::ledger::{Bounds, Namespaces, Pod};
use proptest::prelude::*;

/// Every wish; the first value of a key stands for none.
const VALUES: [(&str, &[&str]); 4] = [
    ("cpus", &["", "exclusive", "shared"]),
    ("uncore", &["", "prefer", "require", "ignore"]),
    ("numa", &["", "single", "closest", "spread"]),
    ("smt", &["", "full-cores", "isolate"]),
];

/// Which value of each key; half of all pods wish for nothing.
pub(super) fn wishes() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![Just([0; 4]), [0..3u8, 0..4u8, 0..4u8, 0..3u8]]
}

/// As annotations of the pod, those about cores of its first container alone.
pub(super) fn annotations(wishes: [u8; 4]) -> Vec<(String, String)> {
    let chosen =
        VALUES.iter().zip(wishes).map(|((key, values), at)| (*key, values[usize::from(at)]));
    let chosen = chosen.filter(|(_, value)| !value.is_empty());
    let subject = |key| if key == "smt" { "container.c0" } else { "pod" };
    chosen
        .map(|(key, value)| {
            (format!("{key}.cpu-manager.nri.io/{}", subject(key)), value.to_owned())
        })
        .collect()
}

/// All pods may wish for everything.
pub(super) fn all_allowed() -> Namespaces {
    let wishes =
        VALUES.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    let allow = wishes.filter_map(|(key, value)| Wish::parse(key, value).ok()).collect();
    Namespaces::new(vec![(vec!["*".to_owned()], Bounds { allow, ..Bounds::default() })]).unwrap()
}

/// Whether a pod wishes for no CPUs of its own.
pub(super) fn opts_out(pod: &Pod) -> bool {
    pod.annotations.iter().any(|(name, value)| name.starts_with("cpus.") && value == "shared")
}

impl Node {
    /// Siblings that stay idle for a running container go to no other one, neither exclusive nor
    /// shared.
    pub(super) fn check_idle(&self) {
        let runs = |id: &str| self.instances.get(id).is_some_and(|instance| !instance.stopped);
        for claim in self.ledger.claims().filter(|claim| claim.isolated && runs(&claim.id.0)) {
            let cores = self.topology.cores().iter().map(|core| core.cpus);
            let whole: CpuSet = cores.filter(|core| !core.is_disjoint(&claim.cpus)).collect();
            let idle = whole - claim.cpus - self.settings.placement.reserved;
            for instance in self.instances.values().filter(|instance| !instance.stopped) {
                let Some(adjustment) = instance.adjustment else { continue };
                let id = &instance.container.id;
                let runs = self.runs_on(id, adjustment);
                assert!(runs.is_disjoint(&idle), "{id} runs on idle siblings {idle}");
            }
        }
    }
}
