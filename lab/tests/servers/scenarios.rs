//! The part of `hack/lab all` and `hack/lab cgroups` that takes only minutes (docs/lab.md).

use std::time::Duration;

use lab::cgroup_model::ComparisonSettings;
use lab::containerd::Version;
use lab::debian::KernelPackage;
use lab::step::{Outcome, Step};
use lab::suite::usual;
use lab::vm::{self, Turn, Vm};

use crate::part::{Part, machine, play, scenarios};
use crate::support::binaries;

/// Several uncore caches, two threads per core, gaps in the numbering.
#[test]
fn scenarios_pass_on_a_machine_with_gaps() {
    let machine = machine("offline");
    let names =
        ["machine", "churn", "launched", "hotplug-exclusive", "nested-cgroups", "exposed-notice"];
    play(&machine, usual(Version::V2_1), &scenarios(&machine, &names));
}

/// Near and far NUMA nodes, and containerd 1.7.
#[test]
fn scenarios_pass_on_a_machine_with_near_and_far_nodes() {
    let machine = machine("numa");
    let names = ["machine", "churn", "plugin-restart", "runtime-restart", "drift", "exposed-file"];
    play(&machine, usual(Version::V1_7), &scenarios(&machine, &names));
}

/// A dead kernel is not a failed step: the VM gets a second boot, and the second death is reported
/// with the console.
#[test]
fn a_kernel_that_dies_is_reported() {
    let machine = machine("small");
    let parts = [vec![Step::View], vec![Step::Panic]];
    let mut played_parts = Vec::new();
    let mut on_part = |part, played: vm::Played, _| played_parts.push((part, played.is_ok()));
    let vm = Vm {
        machine: &machine,
        kernel: KernelPackage::default(),
        software: Version::V2_1.into(),
        binaries: binaries(),
        turn: Turn::WithOthers,
        patience: Duration::from_secs(60),
    };
    let error = vm.play(&parts, &mut on_part);
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("its kernel died, twice in a row"), "{error}");
    assert!(error.contains("Kernel panic - not syncing: sysrq triggered crash"), "{error}");
    assert_eq!(played_parts, [(0, true)], "a part of the dead kernel was reported");
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
