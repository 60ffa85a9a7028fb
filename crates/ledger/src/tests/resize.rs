//! In-place resizes.

use super::*;
use machines::synthetic::Machine;

/// The kubelet's request for an in-place resize, in thousandths of a CPU.
pub(super) fn resized(pod: &Pod, name: &str, id: &str, from: u64, to: u64) -> Admission {
    let amount = Some(MilliCpu(to));
    let cpu = CpuRequest { request: amount, limit: amount };
    Admission::Update {
        pod: pod.clone(),
        container: container(pod, name, id, from),
        requested: RequestedUpdate {
            cpu,
            sets_quota: true,
            cpus: None,
            ..RequestedUpdate::default()
        },
    }
}

pub(super) fn resize(
    node: &mut Node,
    pod: &Pod,
    name: &str,
    id: &str,
    from: u64,
    to: u64,
) -> Result<(), String> {
    node.event(resized(pod, name, id, from, to)).map(|_| ())
}

#[test]
fn a_container_grows_shrinks_and_changes_between_exclusive_and_shared() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
    for (from, to, ours, others) in [
        (2000, 4000, "2-5", "0-1,6-15"),
        (4000, 1000, "2", "0-1,3-15"),
        (1000, 500, "0-15", "0-15"),
        (500, 2000, "2-3", "0-1,4-15"),
    ] {
        resize(&mut node, &a, "c", "a", from, to).unwrap();
        node.check("a", ours);
        // The runtime updates the resized container last, so others get its CPUs with the next
        // message.
        node.send_due();
        node.check("s", others);
    }
}

#[test]
fn a_refused_growth_changes_nothing() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let b = guaranteed("b", 10_000);
    node.create(&a, "c", "a", 2000).unwrap();
    node.create(&b, "c", "b", 10_000).unwrap();
    let before = node.ledger.claims().collect::<Vec<_>>();
    let refused = resize(&mut node, &a, "c", "a", 2000, 8000).unwrap_err();
    assert!(refused.starts_with("UnexpectedAdmissionError: "), "{refused}");
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    resize(&mut node, &a, "c", "a", 2000, 4000).unwrap();
}

#[test]
fn a_container_resized_back_and_forth_keeps_room_in_its_pods_budget() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "one", "1", 2000).unwrap();
    node.create(&a, "two", "2", 2000).unwrap();
    resize(&mut node, &a, "one", "1", 2000, 4000).unwrap();
    resize(&mut node, &a, "two", "2", 2000, 500).unwrap();
    resize(&mut node, &a, "two", "2", 500, 2000).unwrap();
    assert_eq!(node.ledger.exclusive().len(), 6);
    // A new instance requests what the container was resized to.
    node.stop("1");
    assert_eq!(node.create(&a, "one", "1b", 4000).unwrap().parse::<CpuSet>().unwrap().len(), 4);
}

/// Recorded with containerd 2.4: the pod is resized first, and later events still have the old
/// budget.
#[test]
fn a_resized_pods_budget_outlives_events_that_carry_the_old_one() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    node.create(&a, "c", "a", 2000).unwrap();
    node.event(Event::UpdatePod(guaranteed("a", 4000))).unwrap();
    resize(&mut node, &a, "c", "a", 2000, 4000).unwrap();
    node.check("a", "2-5");
    node.stop("a");
    assert_eq!(node.create(&a, "c", "a2", 4000).unwrap(), "2-5");
    // Its budget is used up: it keeps no CPUs free, and gets no more.
    assert_eq!(node.create(&a, "d", "d", 2000).unwrap(), "0-1,6-15");
    assert_eq!(node.create(&guaranteed("b", 10_000), "c", "b", 10_000).unwrap(), "6-15");
}

/// Observed: a refused pod was resized beyond the budget with which its sandbox was created, and
/// its container shared CPUs without a message.
#[test]
fn a_container_that_was_resized_before_its_start_raises_its_pods_budget() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let other = guaranteed("other", 13_000);
    node.create(&other, "c", "o", 13_000).unwrap();
    node.event(Event::RunPod(a.clone())).unwrap();
    assert!(node.create(&a, "c", "a1", 2000).is_err());
    node.stop_pod(&other);
    assert_eq!(node.create(&a, "c", "a2", 3000).unwrap(), "2-4");
    // The budget is used up.
    assert_eq!(node.create(&a, "d", "d", 2000).unwrap(), "0-1,5-15");
    node.stop("a2");
    assert_eq!(node.create(&a, "c", "a3", 3000).unwrap(), "2-4");
    // A budget of less than one CPU is raised too.
    let b = guaranteed("b", 500);
    assert_eq!(node.create(&b, "c", "b", 2000).unwrap(), "5-6");
}

/// With two containers it is unknown which one was resized before its start.
#[test]
fn a_second_container_beyond_its_pods_budget_is_shared_and_logged() {
    let mut node = Node::new();
    let a = guaranteed("a", 3000);
    assert_eq!(node.create(&a, "one", "1", 1000).unwrap(), "2");
    node.ledger.take_notes();
    assert_eq!(node.create(&a, "two", "2", 4000).unwrap(), "0-1,3-15");
    let notes: Vec<String> = node.ledger.take_notes().iter().map(Note::to_string).collect();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("it requests 4 CPUs of a pod that had 3"), "{notes:?}");
}

/// The init container had the CPUs of the old budget.
#[test]
fn a_raised_budget_includes_what_an_init_container_had() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    assert_eq!(node.create(&a, "init", "i", 2000).unwrap(), "2-3");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 3000).unwrap(), "2-4");
    assert_eq!(node.ledger.exclusive().to_string(), "2-4");
}

/// `full_pcpus_only`, on cores of two CPUs; CPU 0 is reserved, its sibling CPU 1 is free.
fn with_whole_cores() -> Node {
    let mut settings = settings();
    settings.placement.options.full_pcpus_only = true;
    settings.placement.reserved = "0".parse().unwrap();
    let machine = Machine { cores: 8, threads: 2, ..Machine::default() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

#[test]
fn with_full_pcpus_only_a_container_grows_and_shrinks_by_whole_cores() {
    let mut node = with_whole_cores();
    let a = guaranteed("a", 2000);
    assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
    for (from, to, expect) in [(2000, 4000, "2-5"), (4000, 8000, "2-9"), (8000, 2000, "2-3")] {
        resize(&mut node, &a, "c", "a", from, to).unwrap();
        node.check("a", expect);
    }
    let before = node.ledger.claims().collect::<Vec<_>>();
    for odd in [3000, 1000, 16_000] {
        let refused = resize(&mut node, &a, "c", "a", 2000, odd).unwrap_err();
        assert!(refused.starts_with("SMTAlignmentError: "), "{refused}");
        assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    }
    node.check("a", "2-3");
}

#[test]
fn a_container_that_becomes_exclusive_reuses_cpus_of_its_pods_ended_containers() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    assert_eq!(node.create(&a, "init", "i", 2000).unwrap(), "2-3");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 500).unwrap(), "0-15");
    resize(&mut node, &a, "app", "p", 500, 2000).unwrap();
    node.check("p", "2-3");
}

#[test]
fn a_growth_takes_no_cpus_reserved_for_another_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let late = guaranteed("late", 10_000);
    node.create(&a, "c", "a", 2000).unwrap();
    node.event(Event::RunPod(late.clone())).unwrap();
    let refused = resize(&mut node, &a, "c", "a", 2000, 6000).unwrap_err();
    assert!(refused.contains("requested=4, available=2"), "{refused}");
    resize(&mut node, &a, "c", "a", 2000, 4000).unwrap();
    assert!(node.create(&late, "c", "l", 10_000).is_ok());
}

/// Found by random histories: a state file from before the resize restored the container's CPUs.
#[test]
fn a_checkpoint_that_is_older_than_a_resize_does_not_undo_it() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    node.create(&a, "c", "a", 2000).unwrap();
    let old = node.ledger.claims().collect();
    resize(&mut node, &a, "c", "a", 2000, 500).unwrap();
    node.check("a", "0-15");
    let mut next = Node::with(settings(), old);
    next.set = node.set.clone();
    next.event(next.running(&[(&a, "c", "a", 500)])).unwrap();
    next.check("a", "0-15");
    assert!(next.ledger.exclusive().is_empty());
}

/// The runtime carries out a resize even if the plugin does not run.
#[test]
fn a_resize_during_a_restart_is_adopted() {
    for (milli, expect) in [(4000, "2-5"), (2000, "2-3"), (6000, "2-7"), (500, "0-15")] {
        let mut node = Node::new();
        let a = guaranteed("a", 4000);
        node.create(&a, "c", "a", 4000).unwrap();
        let mut next = Node::with(settings(), node.ledger.claims().collect());
        next.set = node.set;
        let a = guaranteed("a", milli);
        next.event(next.running(&[(&a, "c", "a", milli)])).unwrap();
        next.check("a", expect);
        let exclusive = next.ledger.exclusive().to_string();
        assert_eq!(exclusive, if milli < 1000 { "" } else { expect });
        assert_eq!(next.ledger.view().figures.moves.len(), 0);
    }
    // Without free CPUs it keeps its present ones.
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let b = guaranteed("b", 12_000);
    node.create(&a, "c", "a", 2000).unwrap();
    node.create(&b, "c", "b", 12_000).unwrap();
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.set = node.set;
    let a = guaranteed("a", 4000);
    next.event(next.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 12_000)])).unwrap();
    next.check("a", "2-3");
    next.check("b", "4-15");
}

/// A node on which a resize to fewer CPUs has five seconds of notice. The time is 10 s.
fn node_with_notice() -> Node {
    let mut settings = settings();
    settings.expose_cpus = Exposure::File;
    settings.notice_seconds = 5;
    let mut node = Node::with(settings, Vec::new());
    node.ledger.apply(Event::Time(Duration::from_secs(10)));
    node
}

/// Ends the notices that are due at this time.
fn at(node: &mut Node, seconds: u64) {
    node.ledger.apply(Event::Time(Duration::from_secs(seconds)));
    node.ledger.apply(Event::NoticeOver);
    node.send_due();
}

#[test]
fn a_shrink_is_announced_and_no_other_container_gets_the_cpus_meanwhile() {
    let mut node = node_with_notice();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "2-5");
    resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
    node.send_due();
    node.check("a", "2-5");
    node.check("s", "0-1,6-15");
    let id = ContainerId("a".into());
    assert_eq!(node.ledger.announced(&id), Some("2-3".parse().unwrap()));
    assert_eq!(node.ledger.next_notice(), Some(Duration::from_secs(15)));
    let b = guaranteed("b", 2000);
    assert_eq!(node.create(&b, "c", "b", 2000).unwrap(), "6-7");
    at(&mut node, 14);
    node.check("a", "2-5");
    at(&mut node, 15);
    node.check("a", "2-3");
    node.check("s", "0-1,4-5,8-15");
    assert_eq!((node.ledger.announced(&id), node.ledger.next_notice()), (None, None));
}

#[test]
fn a_later_resize_replaces_an_announced_one() {
    for (second, seconds, expect) in
        [(6000, 11, "2-7"), (4000, 11, "2-5"), (1000, 16, "2"), (500, 16, "0-15")]
    {
        let mut node = node_with_notice();
        let a = guaranteed("a", 4000);
        node.create(&a, "c", "a", 4000).unwrap();
        resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
        node.ledger.apply(Event::Time(Duration::from_secs(11)));
        resize(&mut node, &a, "c", "a", 2000, second).unwrap();
        node.send_due();
        at(&mut node, seconds);
        node.check("a", expect);
        assert_eq!(node.ledger.next_notice(), None, "{second}");
        at(&mut node, 100);
        node.check("a", expect);
    }
}

#[test]
fn a_notice_ends_with_its_program_or_its_pod() {
    let mut node = node_with_notice();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a", 4000).unwrap();
    resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
    node.stop("a");
    assert_eq!(node.ledger.next_notice(), None);
    assert_eq!(node.ledger.exclusive(), "2-3".parse().unwrap());
    assert_eq!(node.create(&a, "c", "a2", 2000).unwrap(), "2-3");
    resize(&mut node, &a, "c", "a2", 2000, 1000).unwrap();
    node.ledger.apply(Event::StopPod(a.sandbox.clone()));
    assert_eq!((node.ledger.next_notice(), node.ledger.exclusive()), (None, CpuSet::EMPTY));
}

#[test]
fn a_cpu_that_goes_offline_ends_the_notice() {
    let mut node = node_with_notice();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a", 4000).unwrap();
    resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
    node.ledger.apply(Event::Machine(super::hotplug::machine_without("5")));
    node.send_due();
    node.check("a", "2-3");
    assert_eq!(node.ledger.next_notice(), None);
}

#[test]
fn a_restarted_plugin_gives_the_notice_again() {
    let mut node = node_with_notice();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a", 4000).unwrap();
    resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
    node.send_due();
    let claims: Vec<Claim> = node.ledger.claims().collect();
    assert_eq!(claims[0].cpus, "2-5".parse().unwrap(), "on disk it has all of them");
    let settings = node.ledger.settings().clone();
    let mut ledger = Ledger::new(node.ledger.topology().clone(), settings, claims);
    let found = Container { cpus: Some("2-5".parse().unwrap()), ..container(&a, "c", "a", 2000) };
    ledger.apply(Event::Synchronize { pods: vec![a], containers: vec![found] });
    let id = ContainerId("a".into());
    assert_eq!(ledger.announced(&id), Some("2-3".parse().unwrap()));
    assert_eq!(ledger.exclusive(), "2-5".parse().unwrap());
    ledger.apply(Event::Time(Duration::from_secs(5)));
    ledger.apply(Event::NoticeOver);
    assert_eq!(ledger.exclusive(), "2-3".parse().unwrap());
}
