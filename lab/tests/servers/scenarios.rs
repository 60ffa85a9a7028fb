//! The part of `hack/lab all` that fits into minutes; docs/lab.md says why this one.

use lab::containerd::Version;
use lab::suite::usual;

use crate::exact;
use crate::part::{machine, play, scenarios};

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
