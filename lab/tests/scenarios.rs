//! The part of `hack/lab all` that fits into minutes; docs/lab.md says why this one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use lab::containerd::Version;
use lab::suite::{on_machine, scenarios};
use lab::vm::Machine;
use support::binaries;

/// Every scenario that fits the machine passes, and these are among them.
#[track_caller]
fn check(machine: &str, version: Version, among: &[&str]) {
    let machine = Machine::load(machine).unwrap();
    let rows =
        on_machine(&machine, &version.into(), &scenarios("all").unwrap(), binaries()).unwrap();
    let failed: Vec<String> =
        rows.iter().filter(|row| !row.passed()).map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    for name in among {
        assert!(rows.iter().any(|row| row.scenario == *name), "{name} was not played");
    }
}

/// Several uncore caches, two threads a core, holes in the numbering.
#[test]
fn a_server_with_holes() {
    check("offline", Version::V2_1, &["machine", "churn", "hotplug-exclusive", "kernel"]);
}

/// Four NUMA nodes, near and far.
#[test]
fn a_server_with_near_and_far_nodes() {
    check("numa", Version::V1_7, &["kep-2902", "kep-3327", "kep-3545", "kep-693"]);
}
