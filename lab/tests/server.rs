//! The plugin on virtual servers with many uncore caches: KEP-4800's examples, with assertions in place of the picture.
//!
//! A boot takes ten to twenty seconds, so each server plays several scenarios, one after the other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod support;

use std::time::Duration;

use lab::cgroup::Driver;
use lab::containerd::Version;
use lab::pod::{Container, Pod};
use lab::scenario::{
    Order, config, exclusive, exclusivity, kep_4800, numa, refusals, resizes, shared, views,
    whole_cores,
};
use lab::step::{Outcome, Step};
use lab::view::View;
use lab::vm::{self, Machine, Software};
use nri_cpu_manager::cpuset::CpuSet;
use support::binaries;

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn play(machine: &str, software: impl Into<Software>, steps: &[Step]) -> Vec<Outcome> {
    let machine = Machine::load(machine).unwrap_or_else(|error| panic!("{error:#}"));
    vm::run(&machine, software, steps, binaries(), Duration::from_secs(300))
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
    let outcomes = play("kep-4800", Version::V2_1, &steps);
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
    steps.extend([Step::Look, Step::Clear]);
    steps.extend(resizes(15));
    let outcomes = play("kep-4800-small", Version::V1_7, &steps);
    let views = views(&outcomes);
    check(views[0], &[("one", "2-5"), ("two", "8-11"), ("three", "12-15"), ("web", "0-1,6-7")]);
    check_resizes(&views[1..], "0-1,6-15", "0-1,8-15", "0-1,3,6-15", "0-3,6-15");
    check_refusal(&outcomes, 0, "UnexpectedAdmissionError: ");
    assert_eq!(refusals(&outcomes).len(), 1);
}

/// What [`resizes`] shows: the CPUs of `db`, and `web` on what is left: of 2, 4 and 1 CPUs, and together with it.
#[track_caller]
fn check_resizes(views: &[&View], two: &str, four: &str, one: &str, none: &str) {
    let [start, grown, shrunk, shared, back, refused] = views[..] else {
        panic!("{} views", views.len());
    };
    for (view, db, web, quota) in [
        (start, "2-3", two, None),
        (grown, "2-3,6-7", four, None),
        (shrunk, "2", one, None),
        (shared, none, none, Some(500)),
        (back, "2-3", two, None),
    ] {
        check(view, &[("db", db), ("neighbour", "4-5"), ("web", web)]);
        assert_eq!(view.quota("db"), quota, "db on {db}");
        assert_eq!(view.quota("neighbour"), None);
    }
    assert_eq!(refused, back, "a refused resize changes nothing");
}

/// The runtime's answer to the kubelet, of the refusal numbered `index`.
#[track_caller]
fn check_refusal(outcomes: &[Outcome], index: usize, reason: &str) {
    let refusals = refusals(outcomes);
    let refusal = refusals.get(index).unwrap_or_else(|| panic!("only refused: {refusals:?}"));
    assert!(refusal.contains(reason), "not {reason}: {refusal}");
    println!("{refusal}");
}

/// Two threads a core: resizes, first by single CPUs, then by whole cores only; then containers of whole cores only.
#[test]
fn whole_cores_only() {
    let mut steps = resizes(5);
    let db = |milli| Step::Resize("db".into(), milli);
    steps.extend([
        Step::Reconfigure(whole_cores()),
        db(3000),
        Step::Look,
        db(4000),
        Step::Look,
        Step::KillPlugin,
        Step::Look,
        Step::Clear,
        Step::StartPlugin(whole_cores()),
        Step::Run(shared("web")),
        Step::Run(exclusive("odd", 5)),
        Step::Remove("odd".into()),
        Step::Run(exclusive("even", 4)),
        Step::Look,
    ]);
    let outcomes = play("smt", Version::V2_1, &steps);
    let views = views(&outcomes);
    check_resizes(&views[..6], "0-1,6-7", "0-1", "0-1,3,6-7", "0-3,6-7");
    check_refusal(&outcomes, 0, "UnexpectedAdmissionError: ");
    check_refusal(&outcomes, 1, "SMTAlignmentError: ");
    check_refusal(&outcomes, 2, "SMTAlignmentError: ");
    assert_eq!(refusals(&outcomes).len(), 3);
    assert_eq!(views[6], views[5], "half a core is refused, and nothing changes");
    check(views[7], &[("db", "2-3,6-7"), ("neighbour", "4-5"), ("web", "0-1")]);
    assert_eq!(views[8], views[7], "a plugin that was killed remembers the resize");
    check(views[9], &[("even", "2-5"), ("web", "0-1,6-7")]);
}

/// Two sockets of two NUMA nodes, one CPU offline: where a container of one and a half nodes may and shall be.
///
/// Node 1 is taken. Of the rest, nodes 0 and 2 come first by number, but they are far from each other; 2 and 3 are near.
#[test]
fn near_numa_nodes() {
    let large = || Step::Run(exclusive("large", 6));
    let remove = |pod: &str| Step::Remove(pod.into());
    let steps = [
        Step::StartPlugin(numa("single-numa-node", false)),
        Step::Run(shared("web")),
        Step::Run(exclusive("node-1", 4)),
        large(),
        Step::Look,
        // With nodes that are near it gets in, where it was refused.
        Step::Reconfigure(numa("restricted", true)),
        Step::Retry("large".into()),
        Step::Look,
        remove("large"),
        // Without the option it would be the first ones.
        Step::Reconfigure(numa("best-effort", false)),
        large(),
        Step::Look,
        remove("large"),
        // One of the near nodes is taken too: only far ones have room.
        Step::Reconfigure(numa("best-effort", true)),
        Step::Run(exclusive("node-2", 4)),
        large(),
        Step::Look,
    ];
    let outcomes = play("numa", Version::V2_1, &steps);
    check_refusal(&outcomes, 0, "TopologyAffinityError: ");
    assert_eq!(refusals(&outcomes).len(), 1);

    let views = views(&outcomes);
    let [refused, near, first, far] = views[..] else { panic!("{} views", views.len()) };
    assert_eq!(refused.online, "0-14");
    let nodes: Vec<(&str, &[u32])> =
        refused.nodes.iter().map(|n| (n.cpus.as_str(), n.distances.as_slice())).collect();
    assert_eq!(
        nodes,
        [
            ("0-3", &[10, 12, 32, 32][..]),
            ("4-7", &[12, 10, 32, 32]),
            ("8-11", &[32, 32, 10, 12]),
            ("12-14", &[32, 32, 12, 10]),
        ]
    );
    check(refused, &[("node-1", "4-7"), ("web", "0-3,8-14"), ("large", "(not there)")]);
    check(near, &[("node-1", "4-7"), ("large", "8-10,12-14"), ("web", "0-3,11")]);
    check(first, &[("node-1", "4-7"), ("large", "1-2,8-11"), ("web", "0,3,12-14")]);
    check(far, &[("node-1", "4-7"), ("node-2", "8-11"), ("large", "1-3,12-14"), ("web", "0")]);
}

/// A node of a kubelet with its static policy, taken over without a move; placed as no algorithm of ours would.
#[test]
fn a_kubelets_node() {
    const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    let on = |name: &str, milli, cpus| {
        Step::Run(Pod::new(name, [Container::guaranteed("main", milli).on(cpus)]))
    };
    let steps = [
        on("db", 4000, "3,5,9,11"),
        on("cache", 2000, "6-7"),
        on("web", 500, "0-2,4,8,10,12-15"),
        Step::KubeletState(NONE.to_owned()),
        Step::StartPlugin(config(Order::Numerical, true)),
        Step::Look,
        Step::Run(exclusive("new", 4)),
        Step::Look,
        Step::KillPlugin,
        Step::Look,
    ];
    let outcomes = play("kep-4800-small", Version::V2_1, &steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    let views = views(&outcomes);
    check(views[0], &[("db", "3,5,9,11"), ("cache", "6-7"), ("web", "0-2,4,8,10,12-15")]);
    let later =
        [("db", "3,5,9,11"), ("cache", "6-7"), ("new", "8,10,12-13"), ("web", "0-2,4,14-15")];
    check(views[1], &later);
    check(views[2], &later);
}

/// The kernel keeps exclusivity: a busy process in an ordinary pod and one of the host leave the exclusive CPUs, though
/// nobody writes to their groups; it holds while the plugin is dead, and the CPUs come back when the pod ends.
///
/// Then the quota: a busy exclusive container is never throttled, as its pod's quota is lifted as well. In runtime mode
/// it is not: the figure is printed.
#[test]
fn the_kernel_keeps_exclusivity() {
    check_partitions(Version::V2_1);
}

/// The same where systemd makes the groups, and pods are slices.
#[test]
fn the_kernel_keeps_exclusivity_in_slices() {
    check_partitions(Software { driver: Driver::Systemd, ..Version::V2_1.into() });
}

/// A busy process may run on these CPUs, and ran on some of them and on no other.
#[track_caller]
fn check_busy(view: &View, name: &str, expected: &str) {
    let (allowed, ran) = view.busy(name);
    assert_eq!(allowed, expected, "where {name} may run");
    let (expected, ran) = (cpus(expected), cpus(ran));
    assert!(!ran.is_empty() && ran.is_subset(&expected), "{name} ran on {ran}, not {expected}");
}

fn check_partitions(software: impl Into<Software>) {
    let steps = [
        Step::StartPlugin(exclusivity("kernel")),
        Step::RunBusy(shared("web")),
        Step::RunBusyOnHost("service".into()),
        Step::Look,
        Step::Run(exclusive("db", 2)),
        Step::Look,
        Step::EndPlugin,
        Step::Look,
        Step::Remove("db".into()),
        Step::Look,
        Step::Clear,
        Step::StartPlugin(exclusivity("kernel")),
        Step::RunBusy(exclusive("db", 2)),
        Step::Look,
        Step::Throttling("db".into(), 5),
        Step::Clear,
        Step::StartPlugin(exclusivity("runtime")),
        Step::RunBusy(exclusive("db", 2)),
        Step::Look,
        Step::Throttling("db".into(), 5),
    ];
    let outcomes = play("small", software, &steps);
    assert_eq!(refusals(&outcomes), [""; 0]);
    let views = views(&outcomes);
    let [before, exclusive, plugin_dead, pod_gone, kernel, runtime] = views[..] else {
        panic!("{} views", views.len())
    };
    for view in [before, pod_gone] {
        let names = ["web", "service"];
        assert_eq!(names.map(|n| view.busy(n).0), ["0-3"; 2], "while there are no exclusive CPUs");
        // Which CPUs a process runs on that may run on all is the scheduler's business, and one with a quota may well
        // keep to two. Together they are more busy threads than CPUs.
        let ran = names.map(|n| cpus(view.busy(n).1));
        assert!(ran.iter().any(|ran| !ran.is_disjoint(&cpus("1-2"))), "they ran on {ran:?}");
    }
    for name in ["web", "service"] {
        check_busy(exclusive, name, "0,3");
        check_busy(plugin_dead, name, "0,3");
    }
    assert_eq!([exclusive, plugin_dead].map(|view| view.allowed("db")), ["1-2"; 2]);
    check(exclusive, &[("db", "1-2"), ("web", "0,3")]);
    let written = |view: &View| view.busy.iter().map(|b| b.set.clone()).collect::<Vec<_>>();
    for view in [exclusive, plugin_dead, pod_gone] {
        assert_eq!(written(view), written(before), "somebody wrote to the group of a busy process");
    }

    for view in [kernel, runtime] {
        check_busy(view, "db", "1-2");
        assert_eq!(view.quota("db"), None);
    }
    let throttled: Vec<(u64, u64)> = outcomes
        .iter()
        .filter_map(|o| match o {
            Outcome::Throttled { container, pod } => Some((*container, *pod)),
            _ => None,
        })
        .collect();
    println!("throttled periods in 5 s (container, pod): kernel and runtime mode {throttled:?}");
    assert_eq!((throttled.len(), throttled.first()), (2, Some(&(0, 0))));
}
