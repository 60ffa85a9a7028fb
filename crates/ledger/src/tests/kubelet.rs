//! A kubelet whose own CPU manager is or was active: what the ledger trusts, how it stands by, and
//! how it takes over.

use super::*;

impl Node {
    /// The kubelet's state file has these CPUs for container `c` of these pods.
    fn kubelet(&mut self, stance: Stance, claims: &[(&Pod, &str)]) {
        let claims = claims.iter().map(|(pod, list)| KubeletClaim {
            of: Named::Container(pod.uid.clone(), "c".to_owned()),
            cpus: cpus(list),
        });
        self.event(Event::Stance { stance, claims: claims.collect() }).unwrap();
    }

    /// The kubelet's static policy creates a container with these CPUs, which the plugin must not
    /// change.
    fn kubelet_creates(
        &mut self,
        pod: &Pod,
        id: &str,
        milli: u64,
        list: &str,
    ) -> Result<(), String> {
        let container = Container { cpus: Some(cpus(list)), ..container(pod, "c", id, milli) };
        let setting = self.event(Admission::Create { pod: pod.clone(), container })?;
        assert_eq!(setting, None, "{id} was not left alone");
        self.set.insert(id.to_owned(), cpus(list));
        self.start(pod, "c", id, milli);
        Ok(())
    }

    /// An event whose answer carries all due updates.
    fn any_answer(&mut self) {
        self.stop("unknown");
    }

    fn moved(&self) -> Vec<(&'static str, u64)> {
        self.ledger.view().figures.moves.iter().map(|(why, count)| (why.name(), *count)).collect()
    }
}

/// CPUs that are set have precedence over the state file, this over the kubelet's, and this over a
/// new placement: each pair in conflict.
#[test]
fn adoption_trusts_the_set_cpus_then_the_checkpoint_then_the_kubelet() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    for (set, ours, kubelet, expect) in [
        // One source alone.
        (Some("4-7"), None, None, "4-7"),
        (None, Some("9-12"), None, "9-12"),
        (None, None, Some("10-13"), "10-13"),
        (None, None, None, "2-5"),
        // Two that disagree.
        (Some("4-7"), Some("9-12"), None, "4-7"),
        (Some("4-7"), None, Some("10-13"), "4-7"),
        (None, Some("9-12"), Some("10-13"), "9-12"),
        // The first source is illegal: reserved CPUs, offline CPUs, a different number.
        (Some("0-3"), Some("9-12"), Some("10-13"), "9-12"),
        (Some("14-17"), None, Some("10-13"), "10-13"),
        (Some("4-8"), Some("1-4"), Some("10-13"), "10-13"),
        (Some("0-15"), Some("9-13"), Some("0-3"), "2-5"),
    ] {
        let remembered = ours.map(|list| claim(&a, "a", list)).into_iter().collect();
        let mut node = Node::with(settings(), remembered);
        let kubelet: Vec<(&Pod, &str)> = kubelet.map(|list| (&a, list)).into_iter().collect();
        node.kubelet(Stance::Assign, &kubelet);
        node.set.extend(set.map(|list| ("a".to_owned(), cpus(list))));
        node.event(node.running(&[(&a, "c", "a", 4000)])).unwrap();
        node.check("a", expect);
        assert_eq!(node.ledger.exclusive(), cpus(expect), "{set:?} {ours:?} {kubelet:?}");
        // It counts as a move unless these CPUs were already set.
        let moves = usize::from(set != Some(expect));
        assert_eq!(node.ledger.view().figures.moves.len(), moves, "{set:?} {ours:?} {kubelet:?}");
    }
    // Two containers, each with one source: the more reliable source wins, though its container is
    // younger.
    let mut node = Node::with(settings(), vec![claim(&a, "a", "4-7")]);
    node.set.insert("b".to_owned(), cpus("6-9"));
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    node.check("b", "6-9");
    assert_ne!(node.set["a"], cpus("4-7"));

    let mut node = Node::with(settings(), vec![claim(&b, "b", "6-9")]);
    node.kubelet(Stance::Assign, &[(&a, "4-7")]);
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    node.check("b", "6-9");
    assert_ne!(node.set["a"], cpus("4-7"));
}

/// Found by random histories: a shared container requests as many CPUs as its cpuset has, and under
/// partitions the cpuset includes exclusive CPUs.
#[test]
fn a_shared_pool_of_matching_size_takes_no_exclusive_cpus() {
    let old = guaranteed("old", 14_000);
    let young = guaranteed("young", 4000);
    let listed = [(&old, "c", "old", 14_000), (&young, "c", "young", 4000)];
    let set = [("old".to_owned(), cpus("2-15")), ("young".to_owned(), cpus("4-7"))];
    // Either the state file or the partition shows to which container they belong.
    for (remembered, partitioned) in [(vec![claim(&young, "young", "4-7")], false), (vec![], true)]
    {
        let mut node = Node::with(settings(), remembered);
        node.set.extend(set.clone());
        let Event::Synchronize { pods, mut containers } = node.running(&listed) else {
            unreachable!()
        };
        containers[1].partitioned = partitioned;
        node.event(Event::Synchronize { pods, containers }).unwrap();
        node.check("young", "4-7");
        assert_eq!(node.ledger.exclusive(), cpus("4-7"));
    }
}

#[test]
fn a_kubelets_node_is_taken_over_without_a_move() {
    let pods: Vec<Pod> = ["a", "b", "gone", "ended"].map(|name| guaranteed(name, 4000)).into();
    let [a, b, gone, ended] = pods.as_slice() else { unreachable!() };
    let shared = pod("s", Qos::Burstable, 100);
    let mut node = Node::new();
    // These are not the CPUs that this plugin would choose. The kubelet's shared pool is the rest.
    for (id, list) in [("a", "3,5,7,9"), ("b", "10-13"), ("s", "0-2,4,6,8")] {
        node.set.insert(id.to_owned(), cpus(list));
    }
    node.set.insert("side".to_owned(), cpus("0-2,4,6,8"));
    let before = node.set.clone();
    node.kubelet(Stance::Assign, &[(a, "3,5,7,9"), (b, "10-13"), (gone, "4,6"), (ended, "14-15")]);
    node.event(node.running(&[
        (a, "c", "a", 4000),
        (b, "c", "b", 4000),
        (&shared, "c", "s", 100),
        (ended, "side", "side", 500),
    ]))
    .unwrap();
    assert_eq!((&node.set, node.moved()), (&before, vec![]));
    assert_eq!(node.ledger.exclusive(), cpus("3,5,7,9,10-15"), "pods that are gone hold no CPUs");
    // The ended container gets its CPUs back.
    assert_eq!(node.create(ended, "c", "ended", 2000).unwrap(), "14-15");
}

#[test]
fn cpus_that_a_kubelet_before_1_18_recorded_by_id_are_adopted() {
    let a = guaranteed("a", 4000);
    let mut node = Node::new();
    let of = Named::Id(ContainerId("a".into()));
    let claims = vec![KubeletClaim { of, cpus: cpus("9-12") }];
    node.event(Event::Stance { stance: Stance::Assign, claims }).unwrap();
    node.event(node.running(&[(&a, "c", "a", 4000)])).unwrap();
    node.check("a", "9-12");
}

/// The static policy lifts an exclusive container's quota, and CPU shares end at 256 CPUs, so its
/// request can be unknown.
#[test]
fn cpus_that_are_set_and_recorded_are_adopted_without_a_request() {
    let a = guaranteed("a", 4000);
    let mut node = Node::new();
    node.set.insert("a".to_owned(), cpus("4-7"));
    node.kubelet(Stance::Assign, &[(&a, "4-7")]);
    let Event::Synchronize { pods, mut containers } = node.running(&[(&a, "c", "a", 4000)]) else {
        unreachable!()
    };
    containers[0].cpu = CpuRequest::default();
    node.event(Event::Synchronize { pods, containers }).unwrap();
    assert_eq!(node.ledger.exclusive(), cpus("4-7"));
}

/// The kubelet records shared CPUs of a pod with pod-level resources for each of its containers.
#[test]
fn cpus_recorded_for_two_containers_are_exclusive_to_neither() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let mut node = Node::new();
    node.kubelet(Stance::Assign, &[(&a, "4-7"), (&b, "4-7")]);
    node.set.insert("a".to_owned(), cpus("4-7"));
    node.set.insert("b".to_owned(), cpus("4-7"));
    node.event(node.running(&[(&a, "c", "a", 500), (&b, "c", "b", 500)])).unwrap();
    assert!(node.ledger.exclusive().is_empty());
}

#[test]
fn only_containers_on_reserved_cpus_move_at_takeover() {
    let a = guaranteed("a", 2000);
    let b = guaranteed("b", 2000);
    let mut node = Node::new();
    node.set.insert("a".to_owned(), cpus("1-2"));
    node.set.insert("b".to_owned(), cpus("3-4"));
    node.kubelet(Stance::Assign, &[(&a, "1-2"), (&b, "3-4")]);
    node.event(node.running(&[(&a, "c", "a", 2000), (&b, "c", "b", 2000)])).unwrap();
    node.check("a", "2,5");
    node.check("b", "3-4");
    assert_eq!(node.moved(), [("reserved", 1)]);
}

#[test]
fn the_fewest_of_overlapping_containers_move() {
    let pods: Vec<Pod> = ["a", "b", "c"].map(|name| guaranteed(name, 4000)).into();
    let mut node = Node::new();
    // The oldest one overlaps with both others.
    for (id, list) in [("a", "4-7"), ("b", "2-5"), ("c", "6-9")] {
        node.set.insert(id.to_owned(), cpus(list));
    }
    let running: Vec<_> = pods.iter().map(|pod| (pod, "c", pod.name.as_str(), 4000)).collect();
    node.event(node.running(&running)).unwrap();
    node.check("b", "2-5");
    node.check("c", "6-9");
    node.check("a", "10-13");
    assert_eq!(node.moved(), [("conflict", 1)]);
}

#[test]
fn while_the_kubelet_is_active_nothing_is_changed_and_new_exclusive_containers_are_refused() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let shared = pod("s", Qos::Burstable, 100);
    let mut node = Node::new();
    node.kubelet(Stance::Refuse, &[(&a, "2-5")]);
    node.set.insert("a".to_owned(), cpus("2-5"));
    // Reserved CPUs are illegal here, but the plugin must not change them now.
    node.set.insert("r".to_owned(), cpus("0-1"));
    let r = guaranteed("r", 2000);
    let before = node.set.clone();
    node.event(node.running(&[(&a, "c", "a", 4000), (&r, "c", "r", 2000)])).unwrap();
    assert_eq!(node.set, before);
    node.kubelet_creates(&shared, "s", 100, "6-15").unwrap();
    let refused = node.kubelet_creates(&b, "b", 4000, "6-9").unwrap_err();
    assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
    assert!(refused.contains("cpuManagerPolicy: none") && refused.contains("cpu_manager_state"));
    // A restarted container is not refused.
    node.stop("a");
    node.kubelet_creates(&a, "a2", 4000, "2-5").unwrap();
    node.any_answer();
    assert_eq!(node.set["a2"], cpus("2-5"));
    assert_eq!(node.ledger.exclusive(), cpus("2-5"));
}

/// The whole migration from the kubelet's static policy to this plugin.
#[test]
fn a_node_migrates_from_the_kubelet_to_the_plugin_without_moves() {
    let a = guaranteed("a", 4500);
    let b = guaranteed("b", 4000);
    let late = guaranteed("late", 2000);
    let shared = pod("s", Qos::Burstable, 100);
    for stance in [Stance::Refuse, Stance::Observe] {
        let mut node = Node::new();
        // 1. The plugin is installed while the kubelet's static policy is active.
        node.kubelet(stance, &[(&a, "9-12")]);
        node.set.insert("a".to_owned(), cpus("9-12"));
        node.set.insert("s".to_owned(), cpus("0-8,13-15"));
        node.set.insert("side".to_owned(), cpus("0-8,13-15"));
        node.event(node.running(&[
            (&a, "c", "a", 4000),
            (&a, "side", "side", 500),
            (&shared, "c", "s", 100),
        ]))
        .unwrap();
        // The kubelet continues to assign CPUs.
        let created = node.kubelet_creates(&b, "b", 4000, "5-8");
        assert_eq!(created.is_ok(), stance == Stance::Observe);
        let rest = if created.is_ok() { "0-4,13-15" } else { "0-8,13-15" };
        for (pod, name, id, milli) in [(&shared, "c", "s", 100), (&a, "side", "side", 500)] {
            let requested =
                RequestedUpdate { cpus: Some(cpus(rest)), ..RequestedUpdate::default() };
            let container = container(pod, name, id, milli);
            node.event(Admission::Update { pod: pod.clone(), container, requested }).unwrap();
            node.set.insert(id.to_owned(), cpus(rest));
        }
        // A container has ended, and its next instance is still to come.
        node.stop("a");
        // 2. The kubelet is reconfigured: its state file is gone, containers keep running.
        let before = node.set.clone();
        node.kubelet(Stance::Assign, &[(&a, "9-12"), (&b, "5-8")]);
        node.any_answer();
        assert_eq!((&node.set, node.moved()), (&before, vec![]), "{stance:?}");
        // Its assignments stay, and new containers are pinned.
        assert_eq!(node.create(&a, "c", "a2", 4000).unwrap(), "9-12");
        let pinned = node.create(&late, "c", "late", 2000).unwrap();
        assert_eq!(pinned, "2-3", "{stance:?}");
        node.check("s", if stance == Stance::Observe { "0-1,4,13-15" } else { "0-1,4-8,13-15" });
    }
}

#[test]
fn a_container_created_while_observing_is_pinned_when_the_kubelets_manager_stops() {
    let a = guaranteed("a", 4000);
    let mut node = Node::new();
    node.kubelet(Stance::Observe, &[]);
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "");
    node.kubelet(Stance::Assign, &[]);
    node.any_answer();
    node.check("a", "2-5");
    assert_eq!(node.moved(), [("unpinned", 1)]);
}

/// A kubelet that becomes static sets CPUs of its choice, which the plugin adopts later.
#[test]
fn cpus_set_by_a_kubelet_that_becomes_active_later_are_adopted() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let mut node = Node::new();
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&b, "c", "b", 4000).unwrap();
    node.kubelet(Stance::Refuse, &[]);
    let requested = RequestedUpdate { cpus: Some(cpus("12-15")), ..RequestedUpdate::default() };
    let container = container(&a, "c", "a", 4000);
    node.event(Admission::Update { pod: a.clone(), container, requested }).unwrap();
    node.set.insert("a".to_owned(), cpus("12-15"));
    node.kubelet(Stance::Assign, &[]);
    node.any_answer();
    node.check("a", "12-15");
    node.check("b", "8-11");
    assert_eq!(node.moved(), []);
}

fn logged(node: &mut Node) -> Vec<String> {
    node.ledger.take_notes().iter().map(ToString::to_string).collect()
}

#[test]
fn observing_logs_what_would_be_done() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let big = guaranteed("big", 20_000);
    let mut node = Node::new();
    node.kubelet(Stance::Observe, &[]);
    node.event(node.running(&[(&a, "c", "a", 4000)])).unwrap();
    assert_eq!(
        logged(&mut node),
        [
            "default/a/c: observing, not done: moved to exclusive CPUs 2-5: created while no plugin pinned containers"
        ]
    );
    node.kubelet_creates(&b, "b", 4000, "2-5").unwrap();
    assert_eq!(
        logged(&mut node),
        [
            "default/b/c: observing, not done: exclusive CPUs 8-11",
            "default/b/c: found running, keeps exclusive CPUs 2-5",
        ]
    );
    assert_eq!(node.create(&big, "c", "big", 20_000).unwrap(), "");
    let log = logged(&mut node).join("\n");
    let refusal = "default/big/c: observing, not done: refused: UnexpectedAdmission";
    assert!(log.starts_with(refusal), "{log}");
    // The view shows what would be: a refused container runs, and shares CPUs.
    let view = node.ledger.view();
    let exclusive = |view: &View| {
        view.containers.iter().map(|one| one.exclusive.map(|c| c.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(view.figures.stance, Stance::Observe);
    assert_eq!(exclusive(&view), [Some("2-5".to_owned()), Some("8-11".to_owned()), None]);
    assert_eq!(view.figures.cpus.shared.to_string(), "0-1,6-7,12-15");
    assert_eq!(node.ledger.claims().count(), 1);
    // The runtime lists the same containers again, with other CPUs or none: the decisions stay.
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    assert_eq!(exclusive(&node.ledger.view())[..2], exclusive(&view)[..2]);
    node.event(Event::StopPod(a.sandbox.clone())).unwrap();
    let log = logged(&mut node).join("\n");
    assert!(
        log.contains("default/a/c: observing, not done: exclusive CPUs 2-5 are free again"),
        "{log}"
    );
    assert!(!log.contains("moved"), "{log}");
    // Enforcing, it takes over what runs.
    node.kubelet(Stance::Assign, &[]);
    assert_eq!(exclusive(&node.ledger.view()), [Some("2-5".to_owned())]);
}

#[test]
fn a_restart_while_the_kubelet_is_active_changes_nothing() {
    let a = guaranteed("a", 4000);
    let ended = guaranteed("ended", 4000);
    let mut node = Node::new();
    node.kubelet(Stance::Refuse, &[(&ended, "12-13")]);
    node.set.insert("a".to_owned(), cpus("9-12"));
    node.set.insert("side".to_owned(), cpus("0-15"));
    let running = [(&a, "c", "a", 4000), (&ended, "side", "side", 500)];
    node.event(node.running(&running)).unwrap();
    let claims: Vec<Claim> = node.ledger.claims().collect();
    // The kubelet's state file is outdated: another container has CPU 12 by now. The set CPUs
    // count.
    assert_eq!(claims.iter().map(|claim| claim.cpus).collect::<CpuSet>(), cpus("9-12"));
    let mut next = Node::with(settings(), claims);
    next.set = node.set.clone();
    next.event(next.running(&running)).unwrap();
    assert_eq!(next.set["a"], cpus("9-12"));
    assert_eq!(next.moved(), []);
}

/// Options, the topology manager and the policy apply to new containers, not to running ones.
#[test]
fn changed_settings_move_no_running_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 3000);
    let b = guaranteed("b", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&a, "c", "a", 3000).unwrap();
    // It has CPUs of both caches, as if the node had been full.
    node.set.insert("b".to_owned(), cpus("6-9"));
    node.create(&s, "c", "s", 100).unwrap();
    let running = [(&a, "c", "a", 3000), (&b, "c", "b", 4000), (&s, "c", "s", 100)];
    node.event(node.running(&running)).unwrap();
    let claims: Vec<Claim> = node.ledger.claims().collect();
    assert_eq!(claims.len(), 2);

    let changed = |change: fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        settings
    };
    use placement::{Scope, TopologyPolicy};
    for settings in [
        changed(|settings| settings.policy = Policy::None),
        changed(|settings| settings.placement.options.full_pcpus_only = true),
        changed(|settings| settings.placement.options.strict_cpu_reservation = true),
        changed(|settings| settings.placement.reserved = cpus("0-1,12-13")),
        changed(|settings| settings.placement.reserved = cpus("0")),
        changed(|settings| {
            let manager = &mut settings.placement.topology_manager;
            manager.policy = TopologyPolicy::SingleNumaNode;
            manager.scope = Scope::Pod;
        }),
    ] {
        let mut next = Node::with(settings, claims.clone());
        next.set = node.set.clone();
        next.event(next.running(&running)).unwrap();
        for id in ["a", "b"] {
            assert_eq!(next.set[id], node.set[id], "{id} under {:?}", next.ledger.settings());
        }
        assert_eq!(next.moved(), [], "under {:?}", next.ledger.settings());
        assert!(next.ledger.claims().eq(claims.iter().cloned()));
    }
}
