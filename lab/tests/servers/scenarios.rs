//! The part of `hack/lab all` and `hack/lab cgroups` that takes only minutes (docs/lab.md).

use lab::cgroup_model::ComparisonSettings;
use lab::containerd::Version;
use lab::step::{Outcome, Step};
use lab::suite::usual;

use crate::exact;
use crate::part::{Part, machine, play, scenarios};

/// Several uncore caches, two threads per core, gaps in the numbering: scenarios that do not depend
/// on NUMA nodes.
#[test]
fn a_machine_with_gaps() {
    let machine = machine("offline");
    let life = ["machine", "churn", "together", "init-sidecar", "pod-budget"];
    let later = ["launched", "config-swap", "containers-first", "hotplug-exclusive"];
    let wrong = ["drift", "lost-update", "quota", "reserved-change"];
    let names = [&life[..], &later, &wrong].concat();
    play(&machine, usual(Version::V2_1), &scenarios(&machine, &names));
}

/// Near and far NUMA nodes: the KEPs about them, restarts and drift.
#[test]
fn a_machine_with_near_and_far_nodes() {
    let machine = machine("numa");
    let names = ["machine", "kep-2902", "kep-3327", "plugin-restart", "both-restart", "drift"];
    let mut parts = scenarios(&machine, &names);
    parts.push(exact::near_numa_nodes());
    play(&machine, usual(Version::V1_7), &parts);
}

const STEPS: usize = 5000;

#[test]
fn the_cgroup_model_agrees_with_the_kernel() {
    for (name, seed) in [("small", 1), ("smt", 2)] {
        play(&machine(name), Version::V2_1, &[compared(seed)]);
    }
}

fn compared(seed: u64) -> Part {
    let steps = vec![Step::CompareCgroups(ComparisonSettings { seed, steps: STEPS })];
    Part::new("the model of cgroups", steps, |outcomes| {
        let [Outcome::Comparison(comparison)] = outcomes else { panic!("not one comparison") };
        println!("{comparison}");
        assert!(comparison.difference.is_none(), "model and kernel differ");
        assert_eq!(comparison.steps, STEPS);
        // The cases on which the plugin relies must occur.
        assert!(comparison.cut_empty > 0, "no cgroup ever ran on all of its parent's CPUs");
        for result in ["write ok", "write ENOENT", "write ENOSPC", "write ERANGE", "offline ok"] {
            assert!(comparison.results.contains_key(result), "never: {result}");
        }
    })
}
