//! The part of `hack/lab all` that fits into minutes; docs/lab.md says why this one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use lab::containerd::Version;
use lab::suite::{on_machine, scenarios, usual};
use lab::vm::Machine;
use support::binaries;

/// These scenarios fit the machine, and pass.
#[track_caller]
fn check(machine: &str, version: Version, names: &[&str]) {
    let machine = Machine::load(machine).unwrap();
    let scenarios = scenarios(&names.join(",")).unwrap();
    let rows = on_machine(&machine, &usual(version), &scenarios, binaries()).unwrap();
    let failed: Vec<String> =
        rows.iter().filter(|row| !row.passed()).map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let played: Vec<&str> = rows.iter().map(|row| row.scenario.as_str()).collect();
    assert_eq!(played, names);
}

/// Several uncore caches, two threads a core, holes in the numbering: what has nothing to do with NUMA nodes.
#[test]
fn a_server_with_holes() {
    let life = ["machine", "churn", "together", "init-sidecar", "pod-budget"];
    let later = ["launched", "config-swap", "containers-first", "hotplug-exclusive"];
    let wrong = ["drift", "lost-update", "quota", "reserved-change"];
    check("offline", Version::V2_1, &[&life[..], &later, &wrong].concat());
}

/// Four NUMA nodes, near and far: the KEPs about them, and what only the state file and the runtime know.
#[test]
fn a_server_with_near_and_far_nodes() {
    let names = ["machine", "kep-2902", "kep-3327", "plugin-restart", "both-restart", "drift"];
    check("numa", Version::V1_7, &names);
}
