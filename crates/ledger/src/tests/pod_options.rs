//! Pod options (annotations). The machine has 16 CPUs: two uncore caches of four cores of two
//! threads, with adjacent siblings; core 0 is reserved.

use super::resize::resized;
use super::*;
use crate::pod_option::PodOption;
use machines::synthetic::Machine;

pub(super) fn machine() -> Topology {
    Machine { caches: 2, cores: 8, threads: 2, ..Machine::default() }.topology().unwrap()
}

fn pod_options(pairs: &[(&str, &str)]) -> impl Iterator<Item = PodOption> {
    pairs.iter().map(|(key, value)| PodOption::parse(key, value).unwrap())
}

/// Namespace `default` allows the pod options below and has these defaults; namespace `batch` has
/// policy `none`.
pub(super) fn allowing(defaults: &[(&str, &str)]) -> Settings {
    let all = [
        ("cpus", "exclusive"),
        ("cpus", "exclusive+shared"),
        ("cpus", "shared"),
        ("uncore", "require"),
        ("uncore", "exclusive"),
        ("smt", "isolate"),
        ("smt", "full-cores"),
        ("numa", "single"),
    ];
    let bounds = Bounds {
        allow: pod_options(&all).collect(),
        defaults: pod_options(defaults).collect(),
        ..Bounds::default()
    };
    let none = Bounds { policy: Some(Policy::None), ..Bounds::default() };
    let entries = vec![(vec!["default".to_owned()], bounds), (vec!["batch".to_owned()], none)];
    Settings {
        policy: Policy::Static,
        placement: placement::PlacementSettings {
            reserved: "0-1".parse().unwrap(),
            ..Default::default()
        },
        namespaces: Namespaces::new(entries).unwrap(),
        ..Settings::default()
    }
}

pub(super) fn node_with(settings: Settings, remembered: Vec<Claim>) -> Node {
    Node { ledger: Ledger::new(machine(), settings, remembered), set: BTreeMap::new() }
}

pub(super) fn node() -> Node {
    node_with(allowing(&[]), Vec::new())
}

pub(super) fn asking(pod: Pod, pod_options: &[(&str, &str)]) -> Pod {
    let annotations =
        pod_options.iter().map(|(key, value)| (format!("{key}.cpu-manager.nri.io/pod"), *value));
    Pod { annotations: annotations.collect(), ..pod }
}

#[test]
fn siblings_of_an_isolated_container_stay_idle() {
    let mut node = node();
    let a = asking(guaranteed("a", 3000), &[("smt", "isolate")]);
    let shared = pod("s", Qos::Burstable, 100);
    node.create(&shared, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 3000).unwrap(), "2,4,6");
    node.check("s", "0-1,8-15");
    assert_eq!(node.ledger.exclusive().to_string(), "2-7");
    // No other container gets them until the pod ends.
    assert_eq!(node.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap(), "8-11");
    let refused = node.create(&guaranteed("d", 6000), "c", "d", 6000).unwrap_err();
    assert!(refused.contains("requested=6, available=4"), "{refused}");
    node.stop_pod(&a);
    assert_eq!(node.ledger.exclusive().to_string(), "8-11");
    assert_eq!(node.create(&guaranteed("d", 6000), "c", "d", 6000).unwrap(), "2-7");
}

#[test]
fn siblings_stay_idle_after_a_restart_and_after_a_resize() {
    let mut node = node();
    let a = asking(guaranteed("a", 2000), &[("smt", "isolate")]);
    node.create(&a, "c", "a", 2000).unwrap();
    let claims: Vec<Claim> = node.ledger.claims().collect();
    assert_eq!((claims[0].cpus.to_string().as_str(), claims[0].margin.siblings), ("2,4", true));
    let running = node.running(&[(&a, "c", "a", 2000)]);
    // With the checkpoint, without one, and with one after the permission was withdrawn.
    let forbidden = Settings { namespaces: Namespaces::default(), ..allowing(&[]) };
    for (settings, remembered) in [
        (allowing(&[]), claims.clone()),
        (allowing(&[]), Vec::new()),
        (forbidden.clone(), claims.clone()),
    ] {
        let mut again = node_with(settings, remembered);
        again.event(running.clone()).unwrap();
        assert_eq!(again.ledger.exclusive().to_string(), "2-5");
        let shared = pod("s", Qos::Burstable, 100);
        assert_eq!(again.create(&shared, "c", "s", 100).unwrap(), "0-1,6-15");
        resize(&mut again, &a, 2000, 3000).unwrap();
        again.check("a", "2,4,6");
        again.check("s", "0-1,8-15");
        resize(&mut again, &a, 3000, 1000).unwrap();
        again.check("a", "2");
        assert_eq!(again.ledger.exclusive().to_string(), "2-3");
        assert_eq!(again.ledger.pool().to_string(), "0-1,4-15");
    }
    // Without checkpoint and permission it is an ordinary container.
    let mut again = node_with(forbidden, Vec::new());
    again.event(running).unwrap();
    assert_eq!(again.ledger.exclusive().to_string(), "2,4");
}

pub(super) fn resize(
    node: &mut Node,
    pod: &Pod,
    from: u64,
    to: u64,
) -> Result<Option<CpuSetting>, String> {
    node.event(resized(pod, "c", "a", from, to))
}

const WHOLE: &[(&str, &str)] = &[("uncore", "exclusive")];

#[test]
fn the_rest_of_a_whole_cache_stays_idle() {
    let mut node = node();
    let shared = pod("s", Qos::Burstable, 100);
    node.create(&shared, "c", "s", 100).unwrap();
    let a = asking(guaranteed("a", 3000), WHOLE);
    // The first cache has reserved CPUs.
    assert_eq!(node.create(&a, "c", "a", 3000).unwrap(), "8-10");
    node.check("s", "0-7");
    assert_eq!(node.ledger.exclusive().to_string(), "8-15");
    let b = asking(guaranteed("b", 1000), WHOLE);
    let refused = node.create(&b, "c", "b", 1000).unwrap_err();
    assert_eq!(
        refused,
        "UncoreAlignmentError: Uncore Alignment Error: whole uncore caches required: requested 1 cpus, free \
         whole caches = 0, usable cpus in them = 0, 1 cache has reserved cpus and cannot be taken; request fewer cpus, or \
         wait until other containers leave a cache"
    );
    // No other container gets the rest until the pod ends.
    let refused = node.create(&guaranteed("d", 7000), "c", "d", 7000).unwrap_err();
    assert!(refused.contains("requested=7, available=6"), "{refused}");
    node.stop_pod(&a);
    assert!(node.ledger.exclusive().is_empty());
    assert_eq!(node.create(&b, "c", "b", 1000).unwrap(), "8");
}

#[test]
fn the_rest_of_a_whole_cache_stays_idle_after_a_restart_and_after_a_resize() {
    let mut node = node();
    let a = asking(guaranteed("a", 2000), WHOLE);
    node.create(&a, "c", "a", 2000).unwrap();
    let claims: Vec<Claim> = node.ledger.claims().collect();
    let running = node.running(&[(&a, "c", "a", 2000)]);
    let forbidden = Settings { namespaces: Namespaces::default(), ..allowing(&[]) };
    for (settings, remembered) in [
        (allowing(&[]), claims.clone()),
        (allowing(&[]), Vec::new()),
        (forbidden.clone(), claims.clone()),
    ] {
        let mut again = node_with(settings, remembered);
        again.event(running.clone()).unwrap();
        assert_eq!(again.ledger.exclusive().to_string(), "8-15");
        let shared = pod("s", Qos::Burstable, 100);
        assert_eq!(again.create(&shared, "c", "s", 100).unwrap(), "0-7");
        resize(&mut again, &a, 2000, 8000).unwrap();
        again.check("a", "8-15");
        let refused = resize(&mut again, &a, 8000, 9000).unwrap_err();
        assert!(refused.contains("free whole caches = 1, usable cpus in them = 8"), "{refused}");
        resize(&mut again, &a, 8000, 1000).unwrap();
        again.check("a", "8");
        again.check("s", "0-7");
        assert_eq!(again.ledger.exclusive().to_string(), "8-15");
    }
    // Without checkpoint and permission it is an ordinary container.
    let mut again = node_with(forbidden, Vec::new());
    again.event(running).unwrap();
    assert_eq!(again.ledger.exclusive().to_string(), "8-9");
}

/// The rest also stays idle for a claim that no event has named yet.
#[test]
fn the_rest_of_a_remembered_cache_stays_idle() {
    let mut node = node();
    let a = asking(guaranteed("a", 2000), WHOLE);
    node.create(&a, "c", "a", 2000).unwrap();
    let mut again = node_with(allowing(&[]), node.ledger.claims().collect());
    assert_eq!(again.ledger.pool().to_string(), "0-7");
    assert_eq!(again.create(&guaranteed("b", 6000), "c", "b", 6000).unwrap(), "2-7");
    let refused = again.create(&guaranteed("d", 1000), "c", "d", 1000).unwrap_err();
    assert!(refused.contains("requested=1, available=0"), "{refused}");
}

#[test]
fn a_container_after_an_init_container_takes_over_its_cache() {
    let mut node = node();
    let a = asking(guaranteed("a", 4000), WHOLE);
    let create = |name: &str, kind, milli| {
        let container = Container { kind, ..container(&a, name, name, milli) };
        Admission::Create { pod: a.clone(), container }
    };
    let cpus = |setting: Option<CpuSetting>| setting.unwrap().cpus().to_string();
    let first = node.event(create("i", ContainerKind::Init, 4000)).unwrap();
    assert_eq!(cpus(first), "8-11");
    node.start(&a, "i", "i", 4000);
    node.stop("i");
    let main = node.event(create("m", ContainerKind::App, 3000)).unwrap();
    assert_eq!(cpus(main), "8-10");
    assert_eq!(node.ledger.exclusive().to_string(), "8-15");
}

#[test]
fn a_cpu_of_an_own_cache_that_comes_online_is_idle_too() {
    let whole = machine();
    let mut without = whole.online();
    without.remove(9);
    without.remove(15);
    let facts = topology::Facts {
        cpus: whole.cpus().iter().filter(|cpu| without.contains(cpu.id)).copied().collect(),
        ..Facts::default()
    };
    let without = Topology::build(facts).unwrap();
    let mut node = node();
    node.event(Event::Machine(without.clone())).unwrap();
    // Offline CPUs do not count.
    let a = asking(guaranteed("a", 2000), WHOLE);
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "8,14");
    assert_eq!(node.ledger.exclusive().to_string(), "8,10-14");
    node.event(Event::Machine(whole)).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "8-15");
    resize(&mut node, &a, 2000, 6000).unwrap();
    node.event(Event::Machine(without)).unwrap();
    let [claim] = &node.ledger.claims().collect::<Vec<_>>()[..] else { panic!("one claim") };
    assert_eq!(claim.cpus.to_string(), "8,10-14");
    assert_eq!(node.ledger.exclusive().to_string(), "8,10-14");
}

#[test]
fn a_sibling_that_comes_online_is_idle_too() {
    let whole = machine();
    let mut without = whole.online();
    without.remove(3);
    let facts = topology::Facts {
        cpus: whole.cpus().iter().filter(|cpu| without.contains(cpu.id)).copied().collect(),
        ..Facts::default()
    };
    let mut node = node();
    node.event(Event::Machine(Topology::build(facts).unwrap())).unwrap();
    let a = asking(guaranteed("a", 2000), &[("smt", "isolate")]);
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2,4");
    assert_eq!(node.ledger.exclusive().to_string(), "2,4-5");
    node.event(Event::Machine(whole)).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
}

#[test]
fn a_required_uncore_cache_bounds_creation_and_resize() {
    let mut node = node();
    let require = |name, milli| asking(guaranteed(name, milli), &[("uncore", "require")]);
    let a = require("a", 5000);
    assert_eq!(node.create(&a, "c", "a", 5000).unwrap(), "2-6");
    assert_eq!(node.create(&require("b", 6000), "c", "b", 6000).unwrap(), "8-13");
    let refused = node.create(&require("d", 3000), "c", "d", 3000).unwrap_err();
    assert_eq!(
        refused,
        "UncoreAlignmentError: Uncore Alignment Error: requested 3 cpus must be in 1 uncore cache, as few as can be on this \
         machine; at most 2 are free in so few"
    );
    let e = guaranteed("e", 3000);
    assert_eq!(node.create(&e, "c", "e", 3000).unwrap(), "7,14-15");
    node.stop_pod(&e);
    // A resize stays in the cache.
    resize(&mut node, &a, 5000, 6000).unwrap();
    node.check("a", "2-7");
    let refused = resize(&mut node, &a, 6000, 7000).unwrap_err();
    assert_eq!(
        refused,
        "UncoreAlignmentError: Uncore Alignment Error: requested 7 cpus must be in 1 uncore cache, as few as can be on this \
         machine; at most 6 are free in so few (7 requested, 6 held)"
    );
    node.check("a", "2-7");
}

#[test]
fn a_burstable_pod_can_have_exclusive_cpus() {
    let mut node = node();
    let pod_options = [("cpus", "exclusive")];
    let burstable = asking(pod("a", Qos::Burstable, 4000), &pod_options);
    let container = Container {
        cpu: CpuRequest { request: Some(MilliCpu(2000)), limit: Some(MilliCpu(4000)) },
        ..container(&burstable, "c", "a", 0)
    };
    let event = Admission::Create { pod: burstable.clone(), container: container.clone() };
    let setting = node.event(event).unwrap().unwrap();
    assert!(setting.is_exclusive());
    assert_eq!(setting.cpus().to_string(), "2-3");
    // It keeps them after a restart of the plugin, even if the pod option is no longer allowed.
    let claims: Vec<Claim> = node.ledger.claims().collect();
    for settings in [allowing(&[]), Settings { namespaces: Namespaces::default(), ..allowing(&[]) }]
    {
        let mut again = node_with(settings, claims.clone());
        let running = Container { cpus: Some(setting.cpus()), ..container.clone() };
        let event = Event::Synchronize { pods: vec![burstable.clone()], containers: vec![running] };
        again.event(event).unwrap();
        assert_eq!(again.ledger.exclusive().to_string(), "2-3");
    }
    // Its pod cannot exceed its limit, and only whole CPUs are exclusive.
    let second = Container { name: "d".to_owned(), id: ContainerId("d".into()), ..container };
    let three = CpuRequest { request: Some(MilliCpu(3000)), limit: None };
    let event = |container| Admission::Create { pod: burstable.clone(), container };
    let refused = node.event(event(Container { cpu: three, ..second.clone() })).unwrap_err();
    assert_eq!(
        refused,
        "PodOptionUnmetError: cpus: exclusive is more than the CPU limit of the pod leaves for this container"
    );
    let half = CpuRequest { request: Some(MilliCpu(500)), limit: None };
    let refused = node.event(event(Container { cpu: half, ..second })).unwrap_err();
    assert_eq!(
        refused,
        "PodOptionUnmetError: cpus: exclusive needs a request for whole CPUs, but 500m CPUs are requested"
    );
}

#[test]
fn a_namespace_default_refuses_no_container() {
    let mut node = node_with(allowing(&[("cpus", "exclusive")]), Vec::new());
    for (name, milli, expect) in [("a", 2000, "2-3"), ("b", 500, "0-1,4-15")] {
        let pod = pod(name, Qos::Burstable, 2000);
        assert_eq!(node.create(&pod, "c", name, milli).unwrap(), expect);
    }
}

#[test]
fn a_pod_can_opt_out_of_exclusive_cpus() {
    let mut node = node();
    let a = asking(guaranteed("a", 14_000), &[("cpus", "shared")]);
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "0-15");
    // It keeps no CPUs free for the rest of its budget.
    let b = guaranteed("b", 14_000);
    assert_eq!(node.create(&b, "c", "b", 14_000).unwrap(), "2-15");
    node.check("a", "0-1");
    node.stop_pod(&b);
    let batch = Pod { namespace: "batch".to_owned(), ..guaranteed("d", 4000) };
    let batch = asking(batch, &[("smt", "whatever")]);
    assert_eq!(node.create(&batch, "c", "d", 4000).unwrap(), "0-15");
}

/// The pod keeps CPUs free for that container.
#[test]
fn a_pod_can_opt_out_except_for_one_container() {
    let mut node = node();
    let pod_options = [
        ("cpus.cpu-manager.nri.io/pod", "shared"),
        ("cpus.cpu-manager.nri.io/container.db", "exclusive"),
    ];
    let a = Pod { annotations: pod_options.into_iter().collect(), ..guaranteed("a", 6000) };
    assert_eq!(node.create(&a, "web", "web", 2000).unwrap(), "0-15");
    let refused = node.create(&guaranteed("b", 14_000), "c", "b", 14_000).unwrap_err();
    assert!(refused.contains("available=10"), "{refused}");
    node.create(&guaranteed("d", 10_000), "c", "d", 10_000).unwrap();
    node.create(&a, "db", "db", 4000).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-15");
}

fn with_annotations(pod: Pod, count: usize) -> Pod {
    let name = |number| format!("cpus.cpu-manager.nri.io/container.c{number}");
    Pod { annotations: (0..count).map(|number| (name(number), "exclusive")).collect(), ..pod }
}

/// None of its containers is admitted, so it needs no CPUs for them.
#[test]
fn a_pod_with_too_many_annotations_keeps_no_cpus_free() {
    let mut node = node();
    let most = with_annotations(guaranteed("a", 2000), 64);
    node.ledger.apply(Event::RunPod(most.clone()));
    let refused = node.create(&guaranteed("b", 14_000), "c", "b", 14_000).unwrap_err();
    assert!(refused.contains("available=12"), "{refused}");
    assert_eq!(node.create(&most, "c0", "a", 2000).unwrap(), "2-3");

    let mut node = super::pod_options::node();
    let too_many = with_annotations(guaranteed("a", 2000), 65);
    node.ledger.apply(Event::RunPod(too_many.clone()));
    let refused = node.create(&too_many, "c0", "a", 2000).unwrap_err();
    assert!(refused.starts_with("PodOptionNotAllowedError: the pod has more than 64"), "{refused}");
    node.create(&guaranteed("b", 14_000), "c", "b", 14_000).unwrap();
    // In a namespace with policy none their number does not matter.
    let batch =
        Pod { namespace: "batch".to_owned(), ..with_annotations(guaranteed("d", 2000), 65) };
    assert_eq!(node.create(&batch, "c0", "d", 2000).unwrap(), "0-1");
}

/// Annotations are parsed once, but the bounds of the namespace can change later.
#[test]
fn bounds_that_change_apply_to_known_annotations() {
    let shared = asking(guaranteed("a", 14_000), &[("cpus", "shared")]);
    let mut node = node_with(Settings { namespaces: Default::default(), ..allowing(&[]) }, vec![]);
    node.ledger.apply(Event::RunPod(shared.clone()));
    assert!(
        node.create(&shared, "c", "a", 14_000).unwrap_err().contains("may not use the pod option")
    );
    node.ledger.apply(Event::Settings(allowing(&[])));
    assert_eq!(node.create(&shared, "c", "a", 14_000).unwrap(), "0-15");
}

#[test]
fn a_refused_pod_option_leaves_nothing_behind() {
    let mut node = node();
    for (key, value, reason) in [
        ("smt", "isolated", "PodOptionUnknownError"),
        ("uncore", "prefer", "PodOptionNotAllowedError"),
    ] {
        let a = asking(guaranteed("a", 2000), &[(key, value)]);
        let refused = node.create(&a, "c", "a", 2000).unwrap_err();
        assert!(refused.starts_with(reason), "{refused}");
        assert_eq!(counts(&node), ContainerCounts::default());
    }
}
