//! The part of `hack/lab all` and `hack/lab cgroups` that takes only minutes (docs/lab.md).

use std::time::Duration;

use lab::cgroup::Driver;
use lab::cgroup_model::{Comparison, ComparisonSettings};
use lab::containerd::Version;
use lab::job::Software;
use lab::scenario::shape::Shape;
use lab::suite::usual;
use lab::task::Task;
use lab::vm::Vm;

use crate::{machine, pass, vm};

/// Several uncore caches, two threads per core, gaps in the numbering.
#[test]
fn scenarios_pass_on_a_machine_with_gaps() {
    pass("offline", usual(Version::V2_1), "", "machine,churn,launched");
}

/// Near and far NUMA nodes, and containerd 1.7.
#[test]
fn scenarios_pass_on_a_machine_with_near_and_far_nodes() {
    pass("numa", usual(Version::V1_7), "", "machine,churn,restarts,drift,exposed-file");
}

/// Eight NUMA nodes, and containers that share the CPUs of their pod.
#[test]
fn memory_is_counted_by_node() {
    pass("two-socket", usual(Version::V2_1), "", "memory,pod-pool");
}

/// NUMA nodes without CPUs, and containerd 1.7.
#[test]
fn memory_of_nodes_without_cpus_is_counted() {
    pass("memory-only", usual(Version::V1_7), "", "memory");
}

#[test]
fn partitions_hold_with_cgroupfs() {
    let names = "partitions,partition-writes,foreign-partitions,privileges";
    pass("eight", Version::V2_1, "", names);
}

/// With pods as slices.
#[test]
fn partitions_hold_with_systemd() {
    let software = Software { driver: Driver::Systemd, ..Version::V2_1.into() };
    pass("eight", software, "", "partitions,classes,uninstall");
}

#[test]
fn exclusive_cpus_are_quiet() {
    pass("devices", usual(Version::V2_1), "", "quiet");
}

/// A dead kernel is not a failed step: the VM gets a second boot, and the second death is reported
/// with the console.
#[test]
fn a_kernel_that_dies_is_reported() {
    let machine = machine("small");
    let shape = Shape::of(&machine).unwrap();
    let tasks = [Task::Scenario("machine".to_owned(), shape), Task::Panic];
    let mut results = Vec::new();
    let mut on_result = |task, result: Result<_, String>, _| results.push((task, result.is_ok()));
    let vm = Vm { patience: Duration::from_secs(60), ..vm(&machine, Version::V2_1) };
    let error = format!("{:#}", vm.run_all(&tasks, &mut on_result).unwrap_err());
    assert!(error.contains("its kernel died, twice in a row"), "{error}");
    assert!(error.contains("Kernel panic - not syncing: sysrq triggered crash"), "{error}");
    assert_eq!(results, [(0, true)], "a task of the dead kernel was reported");
}

const STEPS: usize = 5000;

#[test]
fn the_cgroup_model_agrees_with_the_kernel() {
    for (name, seed) in [("small", 1), ("smt", 2)] {
        let task = Task::CompareCgroups(ComparisonSettings { seed, steps: STEPS });
        let comparison: Comparison = vm(&machine(name), Version::V2_1).run(task).unwrap();
        println!("{comparison}");
        assert!(comparison.difference.is_none(), "model and kernel differ");
        assert_eq!(comparison.steps, STEPS);
        // The cases on which the plugin relies must occur.
        assert!(comparison.cut_empty > 0, "no cgroup ever ran on all of its parent's CPUs");
        for result in ["write ok", "write ENOENT", "write ENOSPC", "write ERANGE", "offline ok"] {
            assert!(comparison.results.contains_key(result), "never: {result}");
        }
    }
}
