//! Interrupts and latency knobs of exclusive CPUs. The machine is that of
//! [`pod_options`](super::pod_options).

use super::pod_options::{allowing, asking, node_with};
use super::*;
use crate::environment::{CRIO_HOUSEKEEPING_CPUS, HOUSEKEEPING_CPUS, environment};
use quiet::{InterruptMode, Knobs};

/// Allows all interrupt modes and some knobs in namespace `default`.
fn settings(interrupts: InterruptMode) -> Settings {
    let mut bounds = Bounds::default();
    for (key, value) in [
        ("interrupts", "leave"),
        ("interrupts", "away"),
        ("interrupts", "housekeeping"),
        ("cpus", "exclusive+shared"),
        ("c-states", "disable"),
        ("smt", "isolate"),
    ] {
        bounds.allow(key, value).unwrap();
    }
    let namespaces = Namespaces::new(vec![(vec!["default".to_owned()], bounds)]).unwrap();
    Settings { interrupts, namespaces, ..allowing(&[]) }
}

/// The mode and the C-states of each container, by the name of its pod.
fn quiet_of(node: &Node) -> Vec<(String, &'static str, Option<String>)> {
    let view = node.ledger.view();
    let containers = view.containers.iter();
    containers
        .map(|one| {
            let c_states = one.knobs.c_states.map(|limit| limit.to_string());
            (one.pod.name.clone(), one.interrupts.name(), c_states)
        })
        .collect()
}

/// Whether interrupts are kept off the CPUs of any container, or it has knobs.
fn is_any_quiet(node: &Node) -> bool {
    let view = node.ledger.view();
    let mut containers = view.containers.iter();
    containers.any(|one| one.interrupts != InterruptMode::Leave || one.knobs != Knobs::NONE)
}

#[test]
fn only_exclusive_cpus_are_quiet_by_pod_option_or_by_the_nodes_field() {
    let mut node = node_with(settings(InterruptMode::Leave), Vec::new());
    node.create(&guaranteed("a", 2000), "c", "a", 2000).unwrap();
    assert_eq!(quiet_of(&node), [("a".to_owned(), "leave", None)]);
    let pod_options = [("interrupts", "away"), ("c-states", "disable")];
    node.create(&asking(guaranteed("b", 2000), &pod_options), "c", "b", 2000).unwrap();
    let shared = asking(pod("s", Qos::Burstable, 100), &pod_options);
    node.create(&shared, "c", "s", 100).unwrap();
    let disable = Some("disable".to_owned());
    assert_eq!(
        quiet_of(&node),
        [
            ("a".to_owned(), "leave", None),
            ("b".to_owned(), "away", disable.clone()),
            ("s".to_owned(), "leave", None),
        ]
    );
    // The field counts for running containers without a pod option.
    node.event(Event::Settings(settings(InterruptMode::Housekeeping))).unwrap();
    assert_eq!(
        quiet_of(&node)[..2],
        [("a".to_owned(), "housekeeping", None), ("b".to_owned(), "away", disable)]
    );
    // Pod options that are not allowed any more do not count, and the field does.
    let forbidding =
        Settings { namespaces: Namespaces::default(), ..settings(InterruptMode::Leave) };
    node.event(Event::Settings(forbidding)).unwrap();
    assert_eq!(quiet_of(&node)[1], ("b".to_owned(), "leave", None));
    assert!(!is_any_quiet(&node));
}

#[test]
fn lent_cpus_are_not_quiet() {
    let mut node = node_with(settings(InterruptMode::Away), Vec::new());
    node.create(&guaranteed("a", 2000), "c", "a", 2000).unwrap();
    assert!(is_any_quiet(&node));
    // Its pod has no other container, so its CPUs are lent at once.
    node.stop("a");
    assert!(!is_any_quiet(&node));
    node.create(&guaranteed("a", 2000), "c", "a2", 2000).unwrap();
    assert!(is_any_quiet(&node));
}

#[test]
fn the_goal_has_the_containers_that_run_and_ask_for_something() {
    let mut node = node_with(settings(InterruptMode::Leave), Vec::new());
    let options = [("interrupts", "housekeeping"), ("smt", "isolate")];
    let asking_pod = asking(guaranteed("a", 3000), &options);
    node.create(&asking_pod, "c", "a", 2000).unwrap();
    node.create(&asking_pod, "ended", "b", 1000).unwrap();
    node.create(&guaranteed("left", 2000), "c", "left", 2000).unwrap();
    let shared = asking(pod("s", Qos::Burstable, 100), &options[..1]);
    node.create(&shared, "c", "s", 100).unwrap();
    // Its pod runs on, so it keeps its CPUs.
    node.stop("b");
    let goal = node.ledger.quiet_goal();
    assert_eq!((goal.online, goal.nodes.len()), (node.ledger.topology().online(), 1));
    let containers = goal.containers.iter();
    let containers: Vec<_> =
        containers.map(|one| (one.name.as_str(), one.cpus.to_string(), one.interrupts)).collect();
    // Its idle siblings keep no interrupts: the housekeeping core is one that it uses.
    assert_eq!(
        containers,
        [
            ("default/a/c", "2,4".to_owned(), InterruptMode::Housekeeping),
            ("default/a/c", "3,5".to_owned(), InterruptMode::Away),
        ]
    );
    node.event(Event::Stance { stance: Stance::Observe, claims: Vec::new() }).unwrap();
    assert!(node.ledger.quiet_goal().is_empty());
}

#[test]
fn a_container_learns_its_housekeeping_cpus() {
    for (mode, pod_options, milli, expect) in [
        (InterruptMode::Housekeeping, &[][..], 4000, "2-3"),
        (InterruptMode::Housekeeping, &[], 1000, "2"),
        (InterruptMode::Leave, &[("interrupts", "housekeeping")], 3000, "2-3"),
        (
            InterruptMode::Leave,
            &[("interrupts", "housekeeping"), ("cpus", "exclusive+shared")],
            2000,
            "2-3",
        ),
        (InterruptMode::Housekeeping, &[("interrupts", "away")], 4000, ""),
    ] {
        for reads_crio in [false, true] {
            let settings = Settings { reads_crio, ..settings(mode) };
            let mut node = node_with(settings, Vec::new());
            let a = asking(guaranteed("a", milli), pod_options);
            node.create(&a, "c", "a", milli).unwrap();
            let id = ContainerId("a".into());
            let housekeeping = node.ledger.housekeeping(&id);
            assert_eq!(housekeeping.to_string(), expect, "{mode:?} {pod_options:?}");
            let reach = node.ledger.reach(&id).unwrap();
            let (settings, machine) = (node.ledger.settings(), node.ledger.topology());
            let variables = environment(settings, machine, &reach, housekeeping);
            let names = variables.iter().filter(|(_, value)| value == expect && !value.is_empty());
            let names: Vec<&str> = names.map(|(name, _)| *name).collect();
            assert_eq!(names.contains(&HOUSEKEEPING_CPUS), !expect.is_empty());
            assert_eq!(names.contains(&CRIO_HOUSEKEEPING_CPUS), !expect.is_empty() && reads_crio);
        }
    }
}

fn with_annotations(pod: Pod, annotations: &[(&str, &str)]) -> Pod {
    Pod { annotations: annotations.iter().copied().collect(), ..pod }
}

const OF_CRIO: &[(&str, &str)] = &[
    ("irq-load-balancing.crio.io", "disable"),
    ("cpu-quota.crio.io", "disable"),
    ("cpu-load-balancing.crio.io", "disable"),
    ("cpu-c-states.crio.io", "disable"),
];

fn notes(node: &mut Node) -> Vec<String> {
    let notes = node.ledger.take_notes().into_iter();
    let about =
        notes.filter(|note| matches!(note.what, What::NoEffect { .. } | What::LeftToRuntime));
    about.map(|note| note.to_string()).collect()
}

#[test]
fn annotations_for_crio_mean_the_same_within_the_namespaces_bounds() {
    let reading = Settings { reads_crio: true, ..settings(InterruptMode::Leave) };
    let mut node = node_with(reading, Vec::new());
    let a = with_annotations(guaranteed("a", 2000), OF_CRIO);
    node.create(&a, "c", "a", 2000).unwrap();
    assert_eq!(quiet_of(&node), [("a".to_owned(), "away", Some("disable".to_owned()))]);
    let balancing = notes(&mut node);
    assert_eq!(balancing.len(), 1, "{balancing:?}");
    assert!(
        balancing[0]
            .starts_with("default/a/c: annotation cpu-load-balancing.crio.io has no effect")
    );
    let s = with_annotations(pod("s", Qos::Burstable, 100), OF_CRIO);
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(
        notes(&mut node),
        [
            "default/s/c: annotation cpu-quota.crio.io has no effect: the container shares CPUs, so its CPU limit stays in force"
        ]
    );
    let forbidden =
        with_annotations(guaranteed("b", 2000), &[("cpu-c-states.crio.io", "max_latency:5")]);
    let refused = node.create(&forbidden, "c", "b", 2000).unwrap_err();
    assert!(
        refused.starts_with("PodOptionNotAllowedError: pods of namespace \"default\" may not use the pod option c-states: max-latency:5;"),
        "{refused}"
    );
    // Without the setting they mean nothing.
    let mut node = node_with(settings(InterruptMode::Leave), Vec::new());
    node.create(&a, "c", "a", 2000).unwrap();
    node.create(&forbidden, "c", "b", 2000).unwrap();
    assert!(!is_any_quiet(&node));
    assert_eq!(notes(&mut node), [""; 0]);
}

#[test]
fn a_pod_whose_runtime_acts_itself_is_left_to_it() {
    let reading = Settings { reads_crio: true, ..settings(InterruptMode::Away) };
    let mut node = node_with(reading, Vec::new());
    let mut a = asking(guaranteed("a", 4000), &[("c-states", "disable")]);
    a.annotations.leave_to_runtime();
    node.create(&a, "c", "a", 2000).unwrap();
    assert_eq!(quiet_of(&node), [("a".to_owned(), "leave", None)]);
    assert_eq!(node.ledger.view().containers[0].knobs, Knobs::NONE);
    let expect = "default/a/c: interrupts and latency knobs are left to the runtime, whose high-performance handler sets them";
    assert_eq!(notes(&mut node), [expect]);
    node.create(&a, "d", "a-d", 2000).unwrap();
    assert_eq!(notes(&mut node), [""; 0]);
}
