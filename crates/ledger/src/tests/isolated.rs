//! CPUs that the kernel was booted to isolate: mostly 8-15, of 16 CPUs in two uncore caches, with
//! CPUs 0-1 reserved.

use super::*;
use crate::pod_option::PodOption;
use machines::synthetic::Machine;
use placement::IsolatedCpus;

fn machine_with(isolated: &str) -> Topology {
    let isolated = isolated.parse().unwrap();
    Machine { cores: 16, caches: 2, isolated, ..Machine::default() }.topology().unwrap()
}

fn configured(isolated: IsolatedCpus) -> Settings {
    let mut settings = settings();
    settings.placement.isolated = isolated;
    let bounds = Bounds { allow: PodOption::all().collect(), ..Bounds::default() };
    settings.namespaces = Namespaces::new(vec![(vec!["default".to_owned()], bounds)]).unwrap();
    settings
}

fn node_on(isolated: &str, settings: Settings) -> Node {
    let ledger = Ledger::new(machine_with(isolated), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

fn node(isolated: IsolatedCpus) -> Node {
    node_on("8-15", configured(isolated))
}

fn asking(name: &str, milli: u64, value: &str) -> Pod {
    let pod_option = ("isolated-cpus.cpu-manager.nri.io".to_owned(), value);
    Pod { annotations: [pod_option].into_iter().collect(), ..guaranteed(name, milli) }
}

#[test]
fn isolated_cpus_are_never_shared() {
    for isolated in IsolatedCpus::ALL {
        let mut node = node(isolated);
        assert_eq!(node.create(&guaranteed("b", 500), "b", "b", 500).unwrap(), "0-7");
        assert_eq!(node.ledger.bound().to_string(), "0-7");
    }
    // Without a policy nothing changes.
    let settings = Settings { policy: Policy::None, ..configured(IsolatedCpus::Exclude) };
    let mut node = node_on("8-15", settings);
    assert_eq!(node.create(&guaranteed("b", 500), "b", "b", 500).unwrap(), "");
    assert_eq!(node.ledger.pool().to_string(), "0-15");
}

#[test]
fn the_configuration_and_pod_options_decide_who_gets_isolated_cpus() {
    use IsolatedCpus::{Exclude, Prefer, Require};
    for (isolated, pod_option, expect) in [
        (Exclude, None, "2-3"),
        (Exclude, Some("prefer"), "8-9"),
        (Exclude, Some("require"), "8-9"),
        (Prefer, None, "8-9"),
        (Prefer, Some("exclude"), "2-3"),
        (Require, None, "8-9"),
        (Require, Some("exclude"), "2-3"),
    ] {
        let mut node = node(isolated);
        let pod =
            pod_option.map_or(guaranteed("a", 2000), |pod_option| asking("a", 2000, pod_option));
        assert_eq!(
            node.create(&pod, "a", "a", 2000).unwrap(),
            expect,
            "{isolated:?} {pod_option:?}"
        );
        let claim: CpuSet = expect.parse().unwrap();
        let pool: CpuSet = "0-7".parse().unwrap();
        assert_eq!(node.ledger.pool(), pool - claim);
    }
}

#[test]
fn the_view_says_which_isolated_cpus_are_free() {
    for (isolated, free) in [
        (IsolatedCpus::Exclude, "2-7"),
        (IsolatedCpus::Prefer, "2-7,10-15"),
        (IsolatedCpus::Require, "10-15"),
    ] {
        let mut node = node(isolated);
        node.create(&asking("a", 2000, "require"), "a", "a", 2000).unwrap();
        let view = node.ledger.view();
        assert_eq!(view.figures.cpus.free.to_string(), free);
        assert_eq!(view.figures.cpus.isolated.to_string(), "8-15");
        assert_eq!(view.figures.cpus.isolated_free.to_string(), "10-15");
    }
}

/// Shared containers need CPUs even if all others are isolated.
#[test]
fn an_empty_pool_falls_back_to_reserved_or_isolated_cpus() {
    for (isolated, strict, offline, pool, bound) in [
        ("2-15", false, "", "0-1", "0-1"),
        ("2-15", true, "", "", "0-1"),
        ("1-15", false, "", "0", "0"),
        ("1-15", true, "", "", "0"),
        ("0-15", false, "", "", "0-1"),
        ("2-15", false, "0-1", "", "2-15"),
    ] {
        let mut settings = configured(IsolatedCpus::Exclude);
        settings.placement.options.strict_cpu_reservation = strict;
        let mut node = node_on(isolated, settings);
        let offline: CpuSet = offline.parse().unwrap();
        let machine = machine_with(isolated);
        if !offline.is_empty() {
            node.event(Event::Machine(machine.without(&offline).unwrap())).unwrap();
        }
        let found = [node.ledger.pool(), node.ledger.bound()].map(|cpus| cpus.to_string());
        assert_eq!(found, [pool, bound], "{isolated} {strict} {offline}");
        assert_eq!(node.create(&guaranteed("b", 500), "b", "b", 500).unwrap(), bound);
    }
}

/// As after a change of the configuration, or after the kubelet's static policy.
#[test]
fn a_container_keeps_the_isolated_cpus_that_it_has() {
    let mut node = node(IsolatedCpus::Prefer);
    let pod = guaranteed("a", 2000);
    assert_eq!(node.create(&pod, "a", "a", 2000).unwrap(), "8-9");
    node.event(Event::Settings(configured(IsolatedCpus::Exclude))).unwrap();
    node.check("a", "8-9");
    assert_eq!(node.ledger.exclusive().to_string(), "8-9");
    // A restarted container keeps them, too.
    node.stop("a");
    assert_eq!(node.create(&pod, "a", "a2", 2000).unwrap(), "8-9");

    let mut next = node_on("8-15", configured(IsolatedCpus::Exclude));
    next.event(node.running(&[(&pod, "a", "a2", 2000)])).unwrap();
    assert_eq!(next.ledger.exclusive().to_string(), "8-9");
    assert_eq!(next.create(&guaranteed("b", 2000), "b", "b", 2000).unwrap(), "2-3");
}

#[test]
fn an_isolated_cpu_that_comes_online_is_not_shared() {
    let mut node = node(IsolatedCpus::Exclude);
    let machine = machine_with("8-15");
    let offline = "9".parse().unwrap();
    node.event(Event::Machine(machine.without(&offline).unwrap())).unwrap();
    assert_eq!(node.ledger.view().figures.cpus.isolated_free.to_string(), "8,10-15");
    node.event(Event::Machine(machine)).unwrap();
    assert_eq!(node.ledger.pool().to_string(), "0-7");
    assert_eq!(node.ledger.view().figures.cpus.isolated_free.to_string(), "8-15");
}

/// The CPUs that a pod keeps free are isolated or not, as its later containers need them.
#[test]
fn promises_count_only_for_cpus_of_the_same_kind() {
    let mut node = node(IsolatedCpus::Exclude);
    // Five of the six CPUs that are not isolated are promised.
    node.event(Event::RunPod(guaranteed("late", 5000))).unwrap();
    assert_eq!(node.create(&asking("a", 4000, "require"), "a", "a", 4000).unwrap(), "8-11");
    let refused = node.create(&guaranteed("b", 2000), "b", "b", 2000).unwrap_err();
    assert!(refused.contains("requested=2, available=1"), "{refused}");
    // Three of the four isolated ones are promised.
    node.event(Event::RunPod(asking("later", 3000, "require"))).unwrap();
    assert_eq!(node.create(&guaranteed("c", 1000), "c", "c", 1000).unwrap(), "2");
    let refused = node.create(&asking("d", 2000, "require"), "d", "d", 2000).unwrap_err();
    assert!(refused.contains("requested=2, available=1"), "{refused}");
}
