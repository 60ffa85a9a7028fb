//! The part of `hack/lab all` and `hack/lab cgroups` that takes only minutes (docs/lab.md).

use lab::cgroup_model::ComparisonSettings;
use lab::containerd::Version;
use lab::step::{Outcome, Step};
use lab::suite::usual;

use crate::exact;
use crate::part::{Part, machine, play, scenarios};

/// Several uncore caches, two threads a core, holes in the numbering: what has nothing to do with
/// NUMA nodes.
#[test]
fn a_server_with_holes() {
    let machine = machine("offline");
    let life = ["machine", "churn", "together", "init-sidecar", "pod-budget"];
    let later = ["launched", "config-swap", "containers-first", "hotplug-exclusive"];
    let wrong = ["drift", "lost-update", "quota", "reserved-change"];
    let names = [&life[..], &later, &wrong].concat();
    play(&machine, usual(Version::V2_1), &scenarios(&machine, &names));
}

/// Four NUMA nodes, near and far: the KEPs about them, and what only the state file and the runtime
/// know.
#[test]
fn a_server_with_near_and_far_nodes() {
    let machine = machine("numa");
    let names = ["machine", "kep-2902", "kep-3327", "plugin-restart", "both-restart", "drift"];
    let mut parts = scenarios(&machine, &names);
    parts.push(exact::near_numa_nodes());
    play(&machine, usual(Version::V1_7), &parts);
}

const STEPS: usize = 5000;

#[test]
fn the_model_of_cgroups_is_as_the_kernel_is() {
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
        // What the plugin relies on has happened.
        assert!(comparison.cut_empty > 0, "no group ever ran on all of its parent's CPUs");
        for result in ["write ok", "write ENOENT", "write ENOSPC", "write ERANGE", "offline ok"] {
            assert!(comparison.results.contains_key(result), "never: {result}");
        }
    })
}
