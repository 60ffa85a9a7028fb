//! The plugin on virtual servers with many uncore caches: KEP-4800's examples, with assertions in place of the picture.
//!
//! A boot takes ten to twenty seconds, so each server plays several scenarios, one after the other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::time::Duration;

use lab::containerd::Version;
use lab::scenario::{Order, config, exclusive, kep_4800, refusals, shared, views, whole_cores};
use lab::step::{Outcome, Step};
use lab::view::View;
use lab::vm::{self, Machine};
use support::binaries;

fn play(machine: &Machine, version: Version, steps: &[Step]) -> Vec<Outcome> {
    vm::run(machine, version, steps, binaries(), Duration::from_secs(300))
        .unwrap_or_else(|error| panic!("{error:#}"))
}

/// Where the processes of these pods may run; whatever was decided, they must agree with it.
#[track_caller]
fn check(view: &View, expected: &[(&str, &str)]) {
    assert_eq!(view.disagreements(), [""; 0]);
    let found: Vec<(&str, &str)> =
        expected.iter().map(|(pod, _)| (*pod, view.allowed(pod))).collect();
    assert_eq!(found, expected);
}

/// The KEP's 32-CPU node: its own result, the kubelet's, and without alignment; then what happens when things end.
#[test]
fn the_keps_node() {
    let mut steps = kep_4800(Order::Numerical, true);
    steps.extend([
        // Nothing moves when the plugin is killed.
        Step::KillPlugin,
        Step::Look,
        // The pods' CPUs come back, and are found again.
        Step::Remove("cpus-10".into()),
        Step::Look,
        Step::Run(exclusive("again-10", 10)),
        Step::Look,
        // Nor does anything move when containerd is killed.
        Step::KillRuntime,
        Step::Look,
        Step::Clear,
    ]);
    steps.extend(kep_4800(Order::FewestFree, true));
    steps.push(Step::Clear);
    steps.extend(kep_4800(Order::Numerical, false));
    let outcomes = play(&Machine::kep_4800(), Version::V2_1, &steps);
    assert_eq!(refusals(&outcomes), [""; 0]);

    let views = views(&outcomes);
    let [numerical, killed_plugin, removed, again, killed_runtime, fewest_free, unaligned] =
        views[..]
    else {
        panic!("{} views", views.len());
    };
    assert_eq!(numerical.caches, ["0-7", "8-15", "16-23", "24-31"]);
    let keps_result = [
        ("cpus-10", "8-17"),
        ("cpus-8", "24-31"),
        ("cpus-6", "2-7"),
        ("web", "0-1,18-23"),
        ("batch", "0-1,18-23"),
    ];
    check(numerical, &keps_result);
    check(killed_plugin, &keps_result);
    let reconnected = outcomes
        .iter()
        .find_map(|o| if let Outcome::Reconnected(ms) = o { Some(*ms) } else { None });
    assert!(reconnected.is_some_and(|ms| ms < 5000), "reconnected after {reconnected:?} ms");
    check(
        removed,
        &[("cpus-8", "24-31"), ("cpus-6", "2-7"), ("web", "0-1,8-23"), ("batch", "0-1,8-23")],
    );
    check(again, &[("again-10", "8-17"), ("web", "0-1,18-23")]);
    assert_eq!(killed_runtime, again);
    check(
        fewest_free,
        &[
            ("cpus-10", "2-3,8-15"),
            ("cpus-8", "16-23"),
            ("cpus-6", "24-29"),
            ("web", "0-1,4-7,30-31"),
        ],
    );
    check(
        unaligned,
        &[("cpus-10", "2-11"), ("cpus-8", "12-19"), ("cpus-6", "20-25"), ("batch", "0-1,26-31")],
    );
}

/// The KEP's 16-CPU node with two caches: with containerd 1.7, and the plugin killed between the pods.
#[test]
fn the_keps_small_node() {
    let mut steps =
        vec![Step::StartPlugin(config(Order::Numerical, true)), Step::Run(shared("web"))];
    for name in ["one", "two", "three"] {
        steps.extend([Step::Run(exclusive(name, 4)), Step::KillPlugin]);
    }
    steps.push(Step::Look);
    let outcomes = play(&Machine::kep_4800_small(), Version::V1_7, &steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    check(
        views(&outcomes)[0],
        &[("one", "2-5"), ("two", "8-11"), ("three", "12-15"), ("web", "0-1,6-7")],
    );
}

/// Two threads a core: only whole cores may be exclusive.
#[test]
fn whole_cores_only() {
    let steps = [
        Step::StartPlugin(whole_cores()),
        Step::Run(shared("web")),
        Step::Run(exclusive("odd", 5)),
        Step::Remove("odd".into()),
        Step::Run(exclusive("even", 4)),
        Step::Look,
    ];
    let outcomes = play(&Machine::smt(), Version::V2_1, &steps);
    let refusals = refusals(&outcomes);
    assert!(refusals.len() == 1 && refusals[0].contains("SMTAlignmentError"), "{refusals:?}");
    println!("{}", refusals[0]);
    check(views(&outcomes)[0], &[("even", "2-5"), ("web", "0-1,6-7")]);
}
