//! `podLevelResources: own-pool` (KEP-5526): a pod's containers share the rest of the pod's CPUs.

use super::groups::{create as create_in_cgroup, with_cgroup};
use super::hotplug::machine_without;
use super::pod_options::{allowing, asking};
use super::resize::resize;
use super::*;
use machines::synthetic::Machine;
use placement::{EngineKind, Scope, TopologyPolicy};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn own_pools() -> Settings {
    let mut own_pools = Settings { pod_level_resources: PodLevelResources::OwnPool, ..settings() };
    own_pools.placement.topology_manager.scope = Scope::Pod;
    own_pools
}

fn node() -> Node {
    Node::with(own_pools(), Vec::new())
}

/// A pod of 6 CPUs: a container on the slice 2-3, and two that share 4-7.
fn node_with_pod() -> (Node, Pod) {
    let mut node = node();
    let a = guaranteed("a", 6000);
    assert_eq!(node.create(&a, "own", "o", 2000).unwrap(), "2-3");
    assert_eq!(node.create(&a, "half", "h", 500).unwrap(), "4-7");
    assert_eq!(node.create(&a, "inherits", "i", 6000).unwrap(), "4-7");
    (node, a)
}

fn own_pool(node: &Node, pod: &Pod) -> String {
    let view = node.ledger.view();
    let of_pod =
        view.containers.iter().find(|one| one.pod.uid == pod.uid && !one.own_pool.is_empty());
    of_pod.map_or_else(String::new, |container| container.own_pool.to_string())
}

/// Slices and own pool of a pod, in order of the containers' names; the own pool is first.
fn claims(node: &Node, pod: &Pod) -> Vec<String> {
    let of_pod = node.ledger.claims().filter(|claim| claim.pod_uid == pod.uid);
    of_pod.map(|claim| format!("{}:{}", claim.container, claim.cpus)).collect()
}

#[test]
fn a_pods_containers_share_what_its_slices_leave_and_no_other_pod_does() {
    let (mut node, a) = node_with_pod();
    let s = pod("s", Qos::Burstable, 100);
    assert_eq!(node.create(&s, "c", "s", 100).unwrap(), "0-1,8-15");
    assert_eq!(node.create(&guaranteed("b", 8000), "c", "b", 8000).unwrap(), "8-15");
    node.check("s", "0-1");
    assert_eq!(claims(&node, &a), [":4-7", "own:2-3"]);
    assert_eq!(own_pool(&node, &a), "4-7");
    let refused = node.create(&guaranteed("c", 1000), "c", "c", 1000).unwrap_err();
    assert!(refused.contains("available=0"), "{refused}");
    // They keep the pod's CPUs through the end and the restart of each.
    for id in ["o", "h", "i"] {
        node.stop(id);
    }
    node.event(Event::QuietPeriod).unwrap();
    node.event(Event::QuietPeriod).unwrap();
    assert_eq!(node.create(&a, "half", "h2", 500).unwrap(), "4-7");
    assert_eq!(node.create(&a, "own", "o2", 2000).unwrap(), "2-3");
    node.stop_pod(&a);
    node.stop("any");
    node.check("s", "0-7");
    assert_eq!(claims(&node, &a), Vec::<String>::new());
}

#[test]
fn the_first_container_decides_all_cpus_of_a_pod() {
    let mut node = node();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&a, "half", "h", 500).unwrap(), "2-5");
    assert_eq!(node.create(&guaranteed("b", 2000), "c", "b", 2000).unwrap(), "6-7");
    assert_eq!(node.create(&a, "own", "o", 3000).unwrap(), "2-4");
    node.check("h", "5");
    let notes: Vec<String> = node.ledger.take_notes().iter().map(Note::to_string).collect();
    assert_eq!(
        notes,
        [
            "default/a: CPUs 2-5 for the containers of this pod only",
            "default/a/half: shares CPUs 2-5 with containers of its pod only",
            "default/b/c: exclusive CPUs 6-7",
            "default/a/own: exclusive CPUs 2-4",
        ]
    );
    node.stop_pod(&a);
    let notes: Vec<String> = node.ledger.take_notes().iter().map(Note::to_string).collect();
    assert_eq!(
        notes,
        [
            "default/a/own: exclusive CPUs 2-4 are free again",
            "default/a: exclusive CPU 5 is free again"
        ]
    );
}

#[test]
fn a_container_that_leaves_no_cpus_to_others_is_refused() {
    const EMPTY: &str = "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests \
                         equals pod budget, leaving no cpus for shared containers";
    let mut node = node();
    let a = guaranteed("a", 4000);
    node.create(&a, "half", "h", 500).unwrap();
    assert_eq!(node.create(&a, "own", "o", 2000).unwrap(), "2-3");
    assert_eq!(node.create(&a, "two", "t", 2000).unwrap_err(), EMPTY);
    assert_eq!(claims(&node, &a), [":4-5", "own:2-3"]);
    assert_eq!(node.create(&a, "two", "t", 1000).unwrap(), "4");
    let b = guaranteed("b", 4000);
    node.create(&b, "one", "b1", 2000).unwrap();
    node.create(&b, "two", "b2", 2000).unwrap();
    assert_eq!(node.create(&b, "half", "b3", 500).unwrap_err(), EMPTY);
    let more = node.create(&a, "more", "m", 3000).unwrap_err();
    assert!(more.ends_with("requested=3, available=1, which is unexpected"), "{more}");
}

#[test]
fn a_pod_whose_cpus_are_not_free_is_refused_and_leaves_nothing_behind() {
    let mut node = node();
    node.create(&guaranteed("b", 11_000), "c", "b", 11_000).unwrap();
    let a = guaranteed("a", 4000);
    let refused = node.create(&a, "half", "h", 500).unwrap_err();
    assert!(refused.contains("requested=4, available=3"), "{refused}");
    assert_eq!(claims(&node, &a), Vec::<String>::new());
    node.create(&a, "half", "h", 500).unwrap_err();
    // The daemon could not send the answer.
    let small = guaranteed("small", 2000);
    node.event(Admission::Create {
        pod: small.clone(),
        container: container(&small, "c", "s", 500),
    })
    .unwrap();
    assert_eq!(claims(&node, &small).len(), 1);
    node.event(Event::Revoked(ContainerId("s".into()))).unwrap();
    assert_eq!(claims(&node, &small), Vec::<String>::new());
}

#[test]
fn a_container_with_the_amount_of_its_pod_shares_as_soon_as_another_one_arrives() {
    let mut node = node();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&a, "main", "m", 4000).unwrap(), "2-5");
    assert_eq!(counts(&node).exclusive, 1);
    assert_eq!(node.create(&a, "second", "n", 4000).unwrap(), "2-5");
    node.check("m", "2-5");
    assert_eq!(counts(&node).exclusive, 0);
    assert_eq!(claims(&node, &a), [":2-5"]);
    assert_eq!(node.create(&a, "own", "o", 3000).unwrap(), "2-4");
    node.check("m", "5");
    node.check("n", "5");
    // A restart changes none of that, in any order.
    for (name, id, milli, expect) in
        [("main", "m", 4000, "5"), ("own", "o", 3000, "2-4"), ("second", "n", 4000, "5")]
    {
        node.stop(id);
        assert_eq!(node.create(&a, name, &format!("{id}2"), milli).unwrap(), expect);
    }
}

#[test]
fn a_container_that_insists_on_exclusive_cpus_does_not_share_them() {
    let settings = Settings { namespaces: allowing(&[]).namespaces, ..own_pools() };
    let mut node = Node::with(settings, Vec::new());
    let annotations = [("cpus.cpu-manager.nri.io/container.main".to_owned(), "exclusive")];
    let a = Pod { annotations: annotations.into_iter().collect(), ..guaranteed("a", 4000) };
    assert_eq!(node.create(&a, "main", "m", 4000).unwrap(), "2-5");
    let refused = node.create(&a, "half", "h", 500).unwrap_err();
    assert!(refused.starts_with("EmptyPodSharedPoolError: "), "{refused}");
    assert_eq!(node.create(&a, "main", "m2", 4000).unwrap(), "2-5");
}

#[test]
fn slices_of_ended_init_containers_return_to_the_own_pool() {
    for kind in [ContainerKind::Unknown, ContainerKind::Init] {
        let mut node = node();
        let a = guaranteed("a", 4000);
        for (name, milli, expect) in
            [("one", 4000, "2-5"), ("two", 3000, "2-4"), ("three", 500, "2-5")]
        {
            let init = Container { kind, ..container(&a, name, name, milli) };
            let setting =
                node.event(Admission::Create { pod: a.clone(), container: init }).unwrap();
            assert_eq!(setting.unwrap().cpus().to_string(), expect);
            node.start(&a, name, name, milli);
            node.stop(name);
        }
        assert_eq!(node.create(&a, "app", "p", 2000).unwrap(), "2-3");
        assert_eq!(node.create(&a, "half", "h", 500).unwrap(), "4-5");
        // A crash of the app is no end of an init container.
        node.stop("p");
        assert_eq!(node.create(&a, "half", "h2", 500).unwrap(), "4-5");
        assert_eq!(node.create(&a, "app", "p2", 2000).unwrap(), "2-3");
    }
    // The only container of the pod that stays has all CPUs.
    let mut node = node();
    let a = guaranteed("a", 4000);
    node.create(&a, "init", "i", 500).unwrap();
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 4000).unwrap(), "2-5");
    assert_eq!(counts(&node).exclusive, 1);
}

/// KEP-5532: all containers are killed and removed, and created again.
#[test]
fn a_pod_that_starts_over_gives_its_init_containers_slices_again() {
    let mut node = node();
    let a = guaranteed("a", 4000);
    for _ in 0..3 {
        assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
        node.stop("i");
        assert_eq!(node.create(&a, "one", "o", 2000).unwrap(), "2-3");
        assert_eq!(node.create(&a, "two", "t", 2000).unwrap(), "4-5");
        for id in ["i", "o", "t"] {
            node.stop(id);
        }
        for id in ["i", "o", "t"] {
            node.remove(id);
        }
    }
}

#[test]
fn a_restarted_container_is_never_refused() {
    let mut node = node();
    let a = guaranteed("a", 4000);
    node.create(&a, "one", "o", 2000).unwrap();
    node.stop("o");
    // It counts as an init container, so its CPUs are for others.
    assert_eq!(node.create(&a, "two", "t", 3000).unwrap(), "2-4");
    assert_eq!(node.create(&a, "one", "o2", 2000).unwrap(), "5");
    node.stop("o2");
    assert_eq!(node.create(&a, "one", "o3", 2000).unwrap(), "5");
}

/// In the kubelet a restart chooses the pod's CPUs a second time, and the first ones are lost.
#[test]
fn a_restart_of_the_plugin_keeps_the_cpus_of_a_pod() {
    for mechanism in [Mechanism::Runtime, Mechanism::Groups] {
        let (mut node, a) = node_with_pod();
        node.event(Event::Mechanism(mechanism)).unwrap();
        let listed = [(&a, "own", "o", 2000), (&a, "half", "h", 500), (&a, "inherits", "i", 6000)];
        for stays in [3, 2, 1] {
            let before: Vec<Claim> = node.ledger.claims().collect();
            let mut next = Node::with(own_pools(), before.clone());
            next.event(Event::Mechanism(mechanism)).unwrap();
            next.set.clone_from(&node.set);
            next.event(next.running(&listed[..stays])).unwrap();
            assert_eq!(next.ledger.claims().collect::<Vec<_>>(), before, "{mechanism}, {stays}");
            assert!(!next.ledger.owes());
            assert_eq!(next.create(&a, "late", "l", 500).unwrap(), {
                if mechanism == Mechanism::Runtime { "4-7" } else { "0-1,4-15" }
            });
            assert_eq!(next.ledger.claims().collect::<Vec<_>>(), before);
            next.stop_pod(&a);
            assert_eq!(next.ledger.claims().count(), 0);
            assert_eq!(next.ledger.pool().to_string(), "0-15");
        }
    }
}

#[test]
fn shared_cpus_are_not_taken_for_exclusive_ones_if_the_state_file_is_lost() {
    let mut whole = node();
    let w = guaranteed("w", 4000);
    whole.create(&w, "one", "1", 4000).unwrap();
    whole.create(&w, "two", "2", 4000).unwrap();
    let mut next = Node::with(own_pools(), Vec::new());
    next.set.clone_from(&whole.set);
    next.event(next.running(&[(&w, "one", "1", 4000), (&w, "two", "2", 4000)])).unwrap();
    assert_eq!(claims(&next, &w), [":2-5"]);

    let (node, a) = node_with_pod();
    let mut next = Node::with(own_pools(), Vec::new());
    next.set.clone_from(&node.set);
    let listed = [(&a, "own", "o", 2000), (&a, "half", "h", 500), (&a, "inherits", "i", 6000)];
    next.event(next.running(&listed)).unwrap();
    assert_eq!(claims(&next, &a), [":4-7", "own:2-3"]);
}

#[test]
fn a_claim_of_a_pod_that_has_ended_is_dropped() {
    let (node, a) = node_with_pod();
    let mut next = Node::with(own_pools(), node.ledger.claims().collect());
    assert_eq!(next.ledger.pool().to_string(), "0-1,8-15");
    next.event(Event::Synchronize { pods: Vec::new(), containers: Vec::new() }).unwrap();
    assert_eq!(next.ledger.pool().to_string(), "0-15");
    // Without a list, an event of the pod recalls it.
    let mut next = Node::with(own_pools(), node.ledger.claims().collect());
    assert_eq!(next.create(&a, "half", "h2", 500).unwrap(), "4-7");
    assert_eq!(next.create(&a, "own", "o2", 2000).unwrap(), "2-3");
    assert_eq!(claims(&next, &a), [":4-7", "own:2-3"]);
}

#[test]
fn a_container_that_was_created_without_the_plugin_gets_its_slice() {
    let (node, a) = node_with_pod();
    let mut next = Node::with(own_pools(), node.ledger.claims().collect());
    next.set.clone_from(&node.set);
    let listed = [(&a, "own", "o", 2000), (&a, "half", "h", 500), (&a, "new", "n", 1000)];
    next.event(next.running(&listed)).unwrap();
    next.send_due();
    next.check("n", "4");
    next.check("h", "5-7");
}

#[test]
fn a_container_that_was_created_without_the_plugin_shares_the_cpus_of_the_first_one() {
    let mut first = node();
    let a = guaranteed("a", 4000);
    first.create(&a, "main", "m", 4000).unwrap();
    let mut next = Node::with(own_pools(), first.ledger.claims().collect());
    next.set.clone_from(&first.set);
    next.event(next.running(&[(&a, "main", "m", 4000), (&a, "late", "l", 500)])).unwrap();
    next.send_due();
    next.check("m", "2-5");
    next.check("l", "2-5");
    assert_eq!(claims(&next, &a), [":2-5"]);
}

/// In the kubelet the pod's CPUs go away with its last container, or stay after its end.
#[test]
fn the_cpus_of_a_pod_are_free_exactly_when_it_ends() {
    let (mut node, a) = node_with_pod();
    for id in ["o", "h", "i"] {
        node.stop(id);
        node.remove(id);
    }
    assert_eq!(claims(&node, &a), [":4-7", "own:2-3"]);
    assert_eq!(node.ledger.free().to_string(), "8-15");
    node.event(Event::StopPod(a.sandbox.clone())).unwrap();
    assert_eq!(node.ledger.free().to_string(), "2-15");
    assert_eq!(node.ledger.deserted().count(), 0);
}

#[test]
fn resizes_move_cpus_between_a_slice_and_the_own_pool() {
    let (mut node, a) = node_with_pod();
    resize(&mut node, &a, "own", "o", 2000, 4000).unwrap();
    node.check("o", "2-5");
    node.send_due();
    node.check("h", "6-7");
    resize(&mut node, &a, "own", "o", 4000, 1000).unwrap();
    node.check("o", "2");
    node.send_due();
    node.check("h", "3-7");
    resize(&mut node, &a, "own", "o", 1000, 500).unwrap();
    node.send_due();
    node.check("o", "2-7");
    resize(&mut node, &a, "own", "o", 500, 3000).unwrap();
    node.send_due();
    node.check("o", "2-4");
    node.check("h", "5-7");
    assert_eq!(node.ledger.free().to_string(), "8-15");
}

#[test]
fn a_new_budget_of_a_pod_changes_its_own_pool() {
    let (mut node, a) = node_with_pod();
    node.event(Event::UpdatePod(guaranteed("a", 8000))).unwrap();
    assert_eq!(claims(&node, &a), [":4-9", "own:2-3"]);
    resize(&mut node, &a, "inherits", "i", 6000, 8000).unwrap();
    assert_eq!(claims(&node, &a), [":4-9", "own:2-3"]);
    node.event(Event::UpdatePod(guaranteed("a", 3000))).unwrap();
    assert_eq!(own_pool(&node, &a).parse::<CpuSet>().unwrap().len(), 1);
    // More than the budget leaves.
    let refused = resize(&mut node, &a, "own", "o", 2000, 3000).unwrap_err();
    assert!(refused.starts_with("EmptyPodSharedPoolError: "), "{refused}");
    resize(&mut node, &a, "own", "o", 2000, 1000).unwrap();
    assert_eq!(node.ledger.exclusive().len(), 3);
}

/// The runtime does not report resized pods.
#[test]
fn a_resize_beyond_the_own_pool_needs_free_cpus() {
    let (mut node, a) = node_with_pod();
    resize(&mut node, &a, "inherits", "i", 6000, 8000).unwrap();
    assert_eq!(claims(&node, &a), [":4-9", "own:2-3"]);
    node.create(&guaranteed("b", 6000), "c", "b", 6000).unwrap();
    let before = claims(&node, &a);
    let refused = resize(&mut node, &a, "own", "o", 2000, 8000).unwrap_err();
    assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
    assert_eq!(claims(&node, &a), before);
}

#[test]
fn a_slice_that_shrinks_after_a_notice_returns_its_cpus_then() {
    let settings = Settings { notice_seconds: 10, ..own_pools() };
    let mut node = Node::with(settings, Vec::new());
    let a = guaranteed("a", 6000);
    node.create(&a, "own", "o", 4000).unwrap();
    node.create(&a, "half", "h", 500).unwrap();
    node.event(Event::UpdatePod(guaranteed("a", 4000))).unwrap();
    resize(&mut node, &a, "own", "o", 4000, 2000).unwrap();
    node.check("o", "2-5");
    node.event(Event::Time(Duration::from_secs(10))).unwrap();
    node.event(Event::NoticeOver).unwrap();
    // It waits for the CPUs that the other one leaves.
    node.send_due();
    node.send_due();
    assert_eq!(node.set["o"].len(), 2);
    assert_eq!(node.set["h"].len(), 2);
    assert_eq!(node.ledger.exclusive().len(), 4);
}

#[test]
fn offline_cpus_leave_the_own_pool_and_are_replaced() {
    let (mut node, a) = node_with_pod();
    node.event(Event::Machine(machine_without("3-4"))).unwrap();
    node.send_due();
    assert_eq!(node.set["o"].len(), 2);
    assert_eq!(node.set["h"].len(), 4);
    assert!(node.set["h"].is_disjoint(&node.set["o"]));
    node.create(&guaranteed("b", 6000), "c", "b", 6000).unwrap();
    let own_pool = own_pool(&node, &a);
    node.event(Event::Machine(machine_without(&format!("3-4,{own_pool}")))).unwrap();
    node.send_due();
    // None of the pod's CPUs are left for them, and no others are free.
    node.check("h", "0-1");
    node.event(Event::Machine(machine(2, 8))).unwrap();
    node.send_due();
    assert_eq!(node.set["h"].len(), 4);
    assert!(node.set["h"].is_disjoint(&node.set["b".to_owned().as_str()]));
}

#[test]
fn the_cgroup_of_a_pod_is_kept_on_its_own_pool() {
    for mechanism in [Mechanism::Groups, Mechanism::Partitions] {
        let mut node = Node::by(mechanism, own_pools());
        let a = with_cgroup(guaranteed("a", 4000));
        let s = with_cgroup(pod("s", Qos::Burstable, 100));
        create_in_cgroup(&mut node, &s, "s", 100);
        assert_eq!(create_in_cgroup(&mut node, &a, "half", 500), "0-15");
        let bounds = |node: &Node| -> Vec<String> {
            node.ledger.places().map(|place| place.bound.to_string()).collect()
        };
        assert_eq!(bounds(&node), ["2-5", "0-1,6-15"]);
        assert_eq!(create_in_cgroup(&mut node, &a, "own", 2000), "2-3");
        assert_eq!(bounds(&node), ["4-5", "0-1,6-15"]);
        let target = node.ledger.target(&ContainerId("half".into())).unwrap();
        // In the kubelet containers of the pod run on its slices.
        assert_eq!(target.runs_on.to_string(), "4-5");
        assert_eq!(target.kept_from_siblings.unwrap().to_string(), "2-3");
    }
}

/// In the kubelet shared containers of a pod run on the slices of others.
#[test]
fn no_container_of_a_pod_runs_on_the_slice_of_another() {
    let (mut node, a) = node_with_pod();
    node.create(&a, "more", "m", 3000).unwrap();
    for shared in ["h", "i"] {
        for slice in ["o", "m"] {
            assert!(node.set[shared].is_disjoint(&node.set[slice]), "{shared} {slice}");
        }
    }
    let changes = node.ledger.targets().filter(|target| !target.setting.is_exclusive());
    assert!(changes.map(|target| target.runs_on).all(|cpus| cpus == node.set["h"]));
}

#[test]
fn a_change_of_the_settings_is_for_new_pods_and_its_end_for_all() {
    let mut node = Node::new();
    let old = guaranteed("old", 4000);
    assert_eq!(node.create(&old, "main", "m", 4000).unwrap(), "2-5");
    node.event(Event::Settings(own_pools())).unwrap();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&old, "half", "h", 500).unwrap(), "0-1,6-15");
    node.check("m", "2-5");
    assert_eq!(node.create(&a, "own", "o", 1000).unwrap(), "8");
    assert_eq!(node.create(&a, "half", "g", 500).unwrap(), "9-11");
    let mut shared = own_pools();
    shared.pod_level_resources = PodLevelResources::Shared;
    node.event(Event::Settings(shared)).unwrap();
    node.send_due();
    node.check("o", "8");
    node.check("g", "0-1,6-7,9-15");
    assert_eq!(claims(&node, &a), ["own:8"]);
    // It is not given back by a later change.
    node.event(Event::Settings(own_pools())).unwrap();
    node.send_due();
    node.check("g", "0-1,6-7,9-15");
}

#[test]
fn other_pods_stay_as_without_own_pools() {
    let cases = [
        (guaranteed("fraction", 2500), own_pools()),
        (pod("burstable", Qos::Burstable, 4000), own_pools()),
        (guaranteed("scope", 4000), {
            let mut settings = own_pools();
            settings.placement.topology_manager.scope = Scope::Container;
            settings
        }),
        (asking(guaranteed("out", 4000), &[("cpus", "shared")]), {
            Settings { namespaces: allowing(&[]).namespaces, ..own_pools() }
        }),
        (asking(guaranteed("idle", 4000), &[("smt", "isolate")]), {
            Settings { namespaces: allowing(&[]).namespaces, ..own_pools() }
        }),
    ];
    for (pod, settings) in cases {
        let mut node = Node::with(settings, Vec::new());
        assert_eq!(node.create(&pod, "half", "h", 500).unwrap(), "0-15", "{}", pod.name);
        assert_eq!(claims(&node, &pod), Vec::<String>::new());
    }
}

#[test]
fn a_slice_is_of_whole_cores_if_its_container_asks_for_them() {
    let machine = Machine { cores: 8, threads: 2, ..Machine::default() }.topology().unwrap();
    for engine in EngineKind::ALL {
        let mut settings = Settings { namespaces: allowing(&[]).namespaces, ..own_pools() };
        settings.placement.engine = engine;
        let ledger = Ledger::new(machine.clone(), settings, Vec::new());
        let mut node = Node { ledger, set: BTreeMap::new() };
        let a = asking(guaranteed("a", 6000), &[("smt", "full-cores")]);
        let refused = node.create(&a, "own", "o", 3000).unwrap_err();
        assert!(refused.starts_with("SMTAlignmentError"), "{engine:?}: {refused}");
        assert_eq!(node.create(&a, "own", "o", 4000).unwrap(), "2-5", "{engine:?}");
    }
}

#[test]
fn the_numa_affinity_is_for_all_cpus_of_a_pod() {
    let mut settings = own_pools();
    settings.placement.topology_manager.policy = TopologyPolicy::SingleNumaNode;
    let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    let mut node = Node { ledger, set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(node.create(&a, "own", "o", 2000).unwrap(), "8-9");
    assert_eq!(node.create(&a, "half", "h", 500).unwrap(), "10-15");
    let refused = node.create(&guaranteed("b", 8000), "half", "b", 500).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError: "), "{refused}");
}

#[test]
fn containers_of_a_pod_with_an_own_pool_do_not_move() {
    let rebalance = Rebalance {
        mode: RebalanceMode::Move,
        moves_per_100_starts: 100,
        across_numa_nodes: true,
        min_stay: Duration::ZERO,
    };
    let mut node = Node::with(Settings { rebalance: Some(rebalance), ..own_pools() }, Vec::new());
    let a = guaranteed("a", 4000);
    node.create(&a, "own", "o", 2000).unwrap();
    let stays = |node: &Node| node.ledger.view().containers.iter().find_map(|one| one.stays);
    assert_eq!(stays(&node), Some(StayReason::OwnPool));
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Stop(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5usize).prop_map(Step::Create),
        (0..5usize).prop_map(Step::Stop),
        Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn the_cpus_of_a_pod_are_constant_and_no_cpu_is_exclusive_and_shared(
        steps in prop::collection::vec(step(), 1..20)
    ) {
        const REQUESTS: [u64; 5] = [500, 1000, 2000, 4000, 0];
        let a = guaranteed("a", 4000);
        let mut node = node();
        let mut running: BTreeMap<usize, String> = BTreeMap::new();
        let mut created_before = BTreeSet::new();
        for (serial, step) in steps.iter().enumerate() {
            let name = |at: &usize| format!("c{at}");
            match step {
                Step::Create(at) => {
                    if let Some(id) = running.remove(at) {
                        node.stop(&id);
                    }
                    let id = serial.to_string();
                    let created = node.create(&a, &name(at), &id, REQUESTS[*at]);
                    if created.is_ok() {
                        running.insert(*at, id);
                        created_before.insert(*at);
                    }
                    prop_assert!(created.is_ok() || !created_before.contains(at), "{created:?}");
                }
                Step::Stop(at) => {
                    if let Some(id) = running.remove(at) {
                        node.stop(&id);
                    }
                }
                Step::Restart => {
                    // The list has no container that has ended.
                    created_before = running.keys().copied().collect();
                    let claims = node.ledger.claims().collect();
                    let set = std::mem::take(&mut node.set);
                    node = Node { set, ..Node::with(own_pools(), claims) };
                    let containers = running.iter().map(|(at, id)| Container {
                        cpus: node.set.get(id).copied(),
                        ..container(&a, &name(at), id, REQUESTS[*at])
                    });
                    let containers = containers.collect();
                    node.event(Event::Synchronize { pods: vec![a.clone()], containers }).unwrap();
                }
            }
            node.send_due();
            let all: CpuSet = node.ledger.claims().map(|claim| claim.cpus).collect();
            let sum: usize = node.ledger.claims().map(|claim| claim.cpus.len()).sum();
            prop_assert!(sum == all.len(), "{:?}", claims(&node, &a));
            if !running.is_empty() {
                prop_assert_eq!(all.to_string(), "2-5");
            }
            for one in &node.ledger.view().containers {
                let set = node.set.get(&*one.id.0).filter(|_| one.phase != Phase::Ended);
                prop_assert!(set.is_none_or(|set| *set == *one.runs_on), "{} {set:?}", one.id.0);
            }
        }
    }
}

/// Anything that changes a pod's CPUs or the node's.
#[derive(Debug, Clone)]
enum Change {
    Create { pod: usize, name: usize, milli: u64 },
    Resize { pod: usize, name: usize, milli: u64 },
    Stop { pod: usize, name: usize },
    Remove { pod: usize, name: usize },
    Budget { pod: usize, cpus: u64 },
    EndPod { pod: usize },
    Offline(usize),
    Online,
    QuietPeriod,
    Settings(PodLevelResources),
    Restart { keeps_state: bool },
}

fn change() -> impl Strategy<Value = Change> {
    let milli = || prop::sample::select(vec![0u64, 500, 1000, 2000, 3000, 4000, 6000]);
    prop_oneof![
        8 => (0..2usize, 0..4usize, milli())
            .prop_map(|(pod, name, milli)| Change::Create { pod, name, milli }),
        3 => (0..2usize, 0..4usize, milli())
            .prop_map(|(pod, name, milli)| Change::Resize { pod, name, milli }),
        3 => (0..2usize, 0..4usize).prop_map(|(pod, name)| Change::Stop { pod, name }),
        1 => (0..2usize, 0..4usize).prop_map(|(pod, name)| Change::Remove { pod, name }),
        2 => (0..2usize, 1..8u64).prop_map(|(pod, cpus)| Change::Budget { pod, cpus }),
        1 => (0..2usize).prop_map(|pod| Change::EndPod { pod }),
        1 => (2..16usize).prop_map(Change::Offline),
        1 => Just(Change::Online),
        1 => Just(Change::QuietPeriod),
        1 => prop::sample::select(PodLevelResources::ALL.to_vec()).prop_map(Change::Settings),
        1 => any::<bool>().prop_map(|keeps_state| Change::Restart { keeps_state }),
    ]
}

proptest! {
    /// Debug builds check the invariants after each event.
    #[test]
    fn updates_converge_and_no_container_runs_on_another_ones_slice(
        changes in prop::collection::vec(change(), 1..30),
        by_groups in any::<bool>(),
    ) {
        let mechanism = if by_groups { Mechanism::Groups } else { Mechanism::Runtime };
        let pods = [guaranteed("p0", 4000), guaranteed("p1", 6000)];
        let mut node = Node::by(mechanism, own_pools());
        let mut settings = own_pools();
        let mut running: BTreeMap<(usize, usize), (String, u64)> = BTreeMap::new();
        let label = |name: usize| format!("c{name}");
        for (serial, change) in changes.iter().enumerate() {
            match *change {
                Change::Create { pod, name, milli } => {
                    if let Some((id, _)) = running.remove(&(pod, name)) {
                        node.stop(&id);
                    }
                    let id = format!("id{serial}");
                    if node.create(&pods[pod], &label(name), &id, milli).is_ok() {
                        running.insert((pod, name), (id, milli));
                    }
                }
                Change::Resize { pod, name, milli } => {
                    if let Some((id, from)) = running.get_mut(&(pod, name))
                        && resize(&mut node, &pods[pod], &label(name), id, *from, milli).is_ok()
                    {
                        *from = milli;
                    }
                }
                Change::Stop { pod, name } => {
                    if let Some((id, _)) = running.remove(&(pod, name)) {
                        node.stop(&id);
                    }
                }
                Change::Remove { pod, name } => {
                    if let Some((id, _)) = running.remove(&(pod, name)) {
                        node.stop(&id);
                        node.remove(&id);
                    }
                }
                Change::Budget { pod, cpus } => {
                    node.event(Event::UpdatePod(guaranteed(&format!("p{pod}"), cpus * 1000))).unwrap();
                }
                Change::EndPod { pod } => {
                    running.retain(|(of, _), _| *of != pod);
                    node.stop_pod(&pods[pod]);
                }
                Change::Offline(cpu) => {
                    node.event(Event::Machine(machine_without(&cpu.to_string()))).unwrap();
                }
                Change::Online => drop(node.event(Event::Machine(machine(2, 8))).unwrap()),
                Change::QuietPeriod => drop(node.event(Event::QuietPeriod).unwrap()),
                Change::Settings(pod_level_resources) => {
                    settings.pod_level_resources = pod_level_resources;
                    node.event(Event::Settings(settings.clone())).unwrap();
                }
                Change::Restart { keeps_state } => {
                    let claims =
                        if keeps_state { node.ledger.claims().collect() } else { Vec::new() };
                    let set = std::mem::take(&mut node.set);
                    node = Node { set, ..Node::with(settings.clone(), claims) };
                    node.event(Event::Mechanism(mechanism)).unwrap();
                    let containers = running.iter().map(|((pod, name), (id, milli))| Container {
                        cpus: node.set.get(id).copied(),
                        ..container(&pods[*pod], &label(*name), id, *milli)
                    });
                    let containers = containers.collect();
                    node.event(Event::Synchronize { pods: pods.to_vec(), containers }).unwrap();
                }
            }
            for _ in 0..8 {
                node.send_due();
            }
            prop_assert!(!node.ledger.owes(), "updates stay due");
            let targets: Vec<Target> = node.ledger.targets().collect();
            for own_pool in node.ledger.claims().filter(|claim| claim.container.is_empty()) {
                let others = targets.iter().filter(|target| target.subject.pod != own_pool.pod);
                for other in others {
                    prop_assert!(own_pool.cpus.is_disjoint(&other.runs_on), "{}", other.subject);
                }
            }
            for target in &targets {
                let exclusive = target.setting.exclusive_cpus();
                let others = targets.iter().filter(|other| other.subject != target.subject);
                for other in others {
                    prop_assert!(
                        exclusive.is_disjoint(&other.runs_on),
                        "{} on {}: {}", other.subject, target.subject, other.runs_on
                    );
                }
            }
        }
    }
}
