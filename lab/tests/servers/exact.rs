//! Exact CPU sets: KEP-4800's examples, resizes, whole cores, near NUMA nodes.

use std::time::Duration;

use lab::containerd::Version;
use lab::debian::KernelPackage;
use lab::manifests::Manifests;
use lab::pod::{Container, Pod};
use lab::scenario::{
    Order, config, exclusive, kep_4800, numa, refusals, resizes, shared, views, whole_cores,
};
use lab::step::{Outcome, Step};
use lab::suite::usual;
use lab::view::View;
use lab::vm::{self, Turn, Vm};

use crate::part::{Part, machine, play};
use crate::support::binaries;

/// Checks where pods may run, and that decisions agree with it.
#[track_caller]
fn check_view(view: &View, expected: &[(&str, &str)]) {
    assert_eq!(view.disagreements(), [""; 0]);
    let allowed: Vec<(&str, &str)> =
        expected.iter().map(|(pod, _)| (*pod, view.allowed(pod))).collect();
    assert_eq!(allowed, expected);
}

#[test]
fn the_keps_node() {
    let parts = [the_keps_order(), the_kubelets_order(), without_alignment()];
    play(&machine("kep-4800"), usual(Version::V2_1), &parts);
}

/// The KEP's result, also after kills and removals.
fn the_keps_order() -> Part {
    let mut steps = kep_4800(Order::Numerical, true);
    steps.extend([
        // No container moves when the plugin is killed.
        Step::KillPlugin,
        Step::View,
        // CPUs of removed pods are assigned again.
        Step::Remove("cpus-10".into()),
        Step::View,
        Step::Run(exclusive("again-10", 10)),
        Step::View,
        // No container moves when containerd is killed.
        Step::KillRuntime,
        Step::View,
    ]);
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let views = views(outcomes);
        let [first, killed_plugin, removed, again, killed_runtime] = views[..] else {
            panic!("{} views", views.len());
        };
        assert_eq!(first.hardware.caches, ["0-7", "8-15", "16-23", "24-31"]);
        let keps_result = [
            ("cpus-10", "8-17"),
            ("cpus-8", "24-31"),
            ("cpus-6", "2-7"),
            ("web", "0-1,18-23"),
            ("batch", "0-1,18-23"),
        ];
        check_view(first, &keps_result);
        check_view(killed_plugin, &keps_result);
        let reconnected = outcomes
            .iter()
            .find_map(|o| if let Outcome::Reconnected(ms) = o { Some(*ms) } else { None });
        assert!(reconnected.is_some_and(|ms| ms < 5000), "reconnected after {reconnected:?} ms");
        check_view(
            removed,
            &[("cpus-8", "24-31"), ("cpus-6", "2-7"), ("web", "0-1,8-23"), ("batch", "0-1,8-23")],
        );
        check_view(again, &[("again-10", "8-17"), ("web", "0-1,18-23")]);
        assert_eq!(killed_runtime, again);
    };
    Part::new("the KEP's order", steps, check)
}

fn the_kubelets_order() -> Part {
    let expected = [
        ("cpus-10", "2-3,8-15"),
        ("cpus-8", "16-23"),
        ("cpus-6", "24-29"),
        ("web", "0-1,4-7,30-31"),
    ];
    view_at_the_end("the kubelet's order", kep_4800(Order::FewestFree, true), expected)
}

fn without_alignment() -> Part {
    let expected =
        [("cpus-10", "2-11"), ("cpus-8", "12-19"), ("cpus-6", "20-25"), ("batch", "0-1,26-31")];
    view_at_the_end("without alignment", kep_4800(Order::Numerical, false), expected)
}

/// Steps with one view at the end.
fn view_at_the_end(
    name: &str,
    steps: Vec<Step>,
    expected: [(&'static str, &'static str); 4],
) -> Part {
    Part::new(name, steps, move |outcomes| {
        assert_eq!(refusals(outcomes), [""; 0]);
        check_view(views(outcomes)[0], &expected);
    })
}

/// The KEP's 16-CPU node with two caches, on containerd 1.7.
#[test]
fn the_keps_small_node() {
    let parts = [killed_between_pods(), resizes_of_cpus(), a_kubelets_node()];
    play(&machine("kep-4800-small"), Version::V1_7, &parts);
}

/// A dead kernel is not a failed step: the VM gets a second boot, and the second death is reported
/// with the console.
#[test]
fn a_kernel_that_dies() {
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

/// The plugin is killed between pods; their CPUs are as without kills.
fn killed_between_pods() -> Part {
    let mut steps =
        vec![Step::StartPlugin(config(Order::Numerical, true)), Step::Run(shared("web"))];
    for name in ["one", "two", "three"] {
        steps.extend([Step::Run(exclusive(name, 4)), Step::KillPlugin]);
    }
    steps.push(Step::View);
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let expected = [("one", "2-5"), ("two", "8-11"), ("three", "12-15"), ("web", "0-1,6-7")];
        check_view(views(outcomes)[0], &expected);
    };
    Part::new("killed between pods", steps, check)
}

fn resizes_of_cpus() -> Part {
    let check = |outcomes: &[Outcome]| {
        check_resizes(&views(outcomes), "0-1,6-15", "0-1,8-15", "0-1,3,6-15", "0-3,6-15");
        check_refusal(outcomes, 0, "UnexpectedAdmissionError: ");
        assert_eq!(refusals(outcomes).len(), 1);
    };
    Part::new("resizes", resizes(15), check)
}

/// The views of [`resizes`]: the CPUs of `web` while `db` has 2, 4, 1 and no exclusive CPUs.
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
        check_view(view, &[("db", db), ("neighbour", "4-5"), ("web", web)]);
        assert_eq!(view.quota("db"), quota, "db on {db}");
        assert_eq!(view.quota("neighbour"), None);
    }
    assert_eq!(refused, back, "a refused resize changed something");
}

/// The runtime's answer to the kubelet for refusal number `index`.
#[track_caller]
fn check_refusal(outcomes: &[Outcome], index: usize, reason: &str) {
    let refusals = refusals(outcomes);
    let refusal = refusals.get(index).unwrap_or_else(|| panic!("only refused: {refusals:?}"));
    assert!(refusal.contains(reason), "not {reason}: {refusal}");
    println!("{refusal}");
}

/// Two threads per core: resizes by single CPUs, then by whole cores; then containers of whole
/// cores.
#[test]
fn whole_cores_only() {
    play(&machine("smt"), usual(Version::V2_1), &[resizes_of_cores(), containers_of_cores()]);
}

fn resizes_of_cores() -> Part {
    let mut steps = resizes(5);
    let db = |milli| Step::Resize("db".into(), milli);
    steps.extend([
        Step::Reconfigure(whole_cores()),
        db(3000),
        Step::View,
        db(4000),
        Step::View,
        Step::KillPlugin,
        Step::View,
    ]);
    let check = |outcomes: &[Outcome]| {
        let views = views(outcomes);
        check_resizes(&views[..6], "0-1,6-7", "0-1", "0-1,3,6-7", "0-3,6-7");
        check_refusal(outcomes, 0, "UnexpectedAdmissionError: ");
        check_refusal(outcomes, 1, "SMTAlignmentError: ");
        assert_eq!(refusals(outcomes).len(), 2);
        assert_eq!(views[6], views[5], "a refused resize changed something");
        check_view(views[7], &[("db", "2-3,6-7"), ("neighbour", "4-5"), ("web", "0-1")]);
        assert_eq!(views[8], views[7], "a killed plugin lost the resize");
    };
    Part::new("resizes of whole cores", steps, check)
}

fn containers_of_cores() -> Part {
    let steps = vec![
        Step::StartPlugin(whole_cores()),
        Step::Run(shared("web")),
        Step::Run(exclusive("odd", 5)),
        Step::Remove("odd".into()),
        Step::Run(exclusive("even", 4)),
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        check_refusal(outcomes, 0, "SMTAlignmentError: ");
        assert_eq!(refusals(outcomes).len(), 1);
        check_view(views(outcomes)[0], &[("even", "2-5"), ("web", "0-1,6-7")]);
    };
    Part::new("containers of whole cores", steps, check)
}

/// Placement of a container of one and a half NUMA nodes, on two sockets of two nodes with one CPU
/// offline.
///
/// Node 1 is full. Of the rest, nodes 0 and 2 come first by number but are far from each other; 2
/// and 3 are near.
pub(crate) fn near_numa_nodes() -> Part {
    let large = || Step::Run(exclusive("large", 6));
    let remove = |pod: &str| Step::Remove(pod.into());
    let steps = vec![
        Step::StartPlugin(numa("single-numa-node", false)),
        Step::Run(shared("web")),
        Step::Run(exclusive("node-1", 4)),
        large(),
        Step::View,
        // Admitted with near nodes, where it was refused.
        Step::Reconfigure(numa("restricted", true)),
        Step::Retry("large".into()),
        Step::View,
        remove("large"),
        // Without the option: the first nodes.
        Step::Reconfigure(numa("best-effort", false)),
        large(),
        Step::View,
        remove("large"),
        // A near node is full too: only far ones have room.
        Step::Reconfigure(numa("best-effort", true)),
        Step::Run(exclusive("node-2", 4)),
        large(),
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        check_refusal(outcomes, 0, "TopologyAffinityError: ");
        assert_eq!(refusals(outcomes).len(), 1);

        let views = views(outcomes);
        let [refused, near, first, far] = views[..] else { panic!("{} views", views.len()) };
        assert_eq!(refused.hardware.online, "0-14");
        let nodes: Vec<(&str, &[u32])> = refused
            .hardware
            .nodes
            .iter()
            .map(|n| (n.cpus.as_str(), n.distances.as_slice()))
            .collect();
        assert_eq!(
            nodes,
            [
                ("0-3", &[10, 12, 32, 32][..]),
                ("4-7", &[12, 10, 32, 32]),
                ("8-11", &[32, 32, 10, 12]),
                ("12-14", &[32, 32, 12, 10]),
            ]
        );
        check_view(refused, &[("node-1", "4-7"), ("web", "0-3,8-14"), ("large", "(missing)")]);
        check_view(near, &[("node-1", "4-7"), ("large", "8-10,12-14"), ("web", "0-3,11")]);
        check_view(first, &[("node-1", "4-7"), ("large", "1-2,8-11"), ("web", "0,3,12-14")]);
        check_view(
            far,
            &[("node-1", "4-7"), ("node-2", "8-11"), ("large", "1-3,12-14"), ("web", "0")],
        );
    };
    Part::new("near NUMA nodes", steps, check)
}

/// A node of a kubelet with the static policy is taken over with the overlay `migrate`, without a
/// move. The plugin itself would not choose these CPUs.
fn a_kubelets_node() -> Part {
    const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    let moving = Manifests::of("migrate").unwrap();
    let on = |name: &str, milli, cpus| {
        Step::Run(Pod::new(name, [Container::guaranteed("main", milli).on(cpus)]))
    };
    let steps = vec![
        on("db", 4000, "3,5,9,11"),
        on("cache", 2000, "6-7"),
        on("web", 500, "0-2,4,8,10,12-15"),
        Step::KubeletState(NONE.to_owned()),
        Step::StartDaemonSet(Box::new(moving.configured(&config(Order::Numerical, true)))),
        Step::View,
        Step::Run(exclusive("new", 4)),
        Step::View,
        Step::KillPlugin,
        Step::View,
    ];
    let check = |outcomes: &[Outcome]| {
        assert_eq!(refusals(outcomes), [""; 0]);
        let views = views(outcomes);
        check_view(views[0], &[("db", "3,5,9,11"), ("cache", "6-7"), ("web", "0-2,4,8,10,12-15")]);
        let later =
            [("db", "3,5,9,11"), ("cache", "6-7"), ("new", "8,10,12-13"), ("web", "0-2,4,14-15")];
        check_view(views[1], &later);
        check_view(views[2], &later);
    };
    Part::new("a kubelet's node", steps, check)
}
