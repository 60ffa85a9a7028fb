//! The events of one container's life in every order, any of them missing.

use super::*;

#[test]
fn events_missing_or_in_any_order_lose_no_cpus_and_assign_none_twice() {
    let a = guaranteed("a", 4000);
    let other = guaranteed("other", 4000);
    let create = Admission::Create { pod: a.clone(), container: container(&a, "c", "1", 4000) };
    let life: Vec<Call> = vec![
        Event::RunPod(a.clone()).into(),
        create.into(),
        Event::Started { pod: a.clone(), container: container(&a, "c", "1", 4000) }.into(),
        Event::Stop(ContainerId("1".into())).into(),
        Event::Remove(ContainerId("1".into())).into(),
        Event::StopPod(a.sandbox.clone()).into(),
    ];
    let mut before = Node::new();
    assert_eq!(before.create(&other, "c", "o", 4000).unwrap(), "2-5");
    let mut histories = 0;
    each_order(&life, &mut Vec::new(), &mut |events| {
        histories += 1;
        let mut node = Node { ledger: before.ledger.clone(), set: before.set.clone() };
        for event in events {
            node.event((*event).clone()).unwrap();
            assert_eq!(node.ledger.check(), Ok(()), "{events:?}");
            node.check("o", "2-5");
        }
        // An ended pod holds no CPUs, unless a late event enters it again.
        let stopped = matches!(events.last(), Some(Call::Event(Event::StopPod(_))));
        let created = events
            .iter()
            .any(|event| matches!(event, Call::Admission(_) | Call::Event(Event::Started { .. })));
        assert!(created && !stopped || node.ledger.exclusive().len() == 4, "{events:?}");
        // The runtime's next list removes it.
        node.event(node.running(&[(&other, "c", "o", 4000)])).unwrap();
        assert_eq!(node.ledger.exclusive().to_string(), "2-5", "{events:?}");
        assert_eq!(node.ledger.pool().to_string(), "0-1,6-15", "{events:?}");
    });
    assert_eq!(histories, 1957, "every order of every choice of six");
}

/// Calls `check` with every order of every choice of events, each after those in `before`.
fn each_order(left: &[Call], before: &mut Vec<Call>, check: &mut impl FnMut(&[Call])) {
    check(before);
    for at in 0..left.len() {
        let mut rest = left.to_vec();
        before.push(rest.remove(at));
        each_order(&rest, before, check);
        before.pop();
    }
}

/// For a process that ends at once, containerd reports the stop before the start, and no second
/// stop. If the start counted, an init container would hold its CPUs for the life of its pod, and
/// the next container would get none.
#[test]
fn a_start_reported_after_the_stop_revives_no_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    let init = container(&a, "init", "init", 4000);
    node.event(Admission::Create { pod: a.clone(), container: init }).unwrap();
    node.stop("init");
    node.start(&a, "init", "init", 4000);
    let main = container(&a, "main", "main", 4000);
    let setting = node.event(Admission::Create { pod: a, container: main }).unwrap().unwrap();
    assert_eq!((setting.is_exclusive(), setting.cpus().to_string()), (true, "2-5".to_owned()));
    node.check("s", "0-1,6-15");
}

/// The runtime does not list an instance that has ended, and reports its removal later.
#[test]
fn a_start_reported_after_the_removal_revives_no_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "1", 4000).unwrap();
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    next.remove("1");
    next.start(&a, "c", "1", 4000);
    assert_eq!(next.ledger.view().containers[0].phase, Phase::Ended);
}

#[test]
fn late_events_of_a_replaced_instance_change_nothing() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.event(Admission::Create { pod: a.clone(), container: container(&a, "c", "1", 4000) })
        .unwrap();
    node.create(&a, "c", "2", 4000).unwrap();
    let before = node.ledger.claims().collect::<Vec<_>>();
    node.start(&a, "c", "1", 4000);
    let late = |id| container(&a, "c", id, 2000);
    node.event(Event::Starting { pod: a.clone(), container: late("1") }).unwrap();
    let requested = RequestedUpdate { cpu: late("1").cpu, ..RequestedUpdate::default() };
    node.event(Admission::Update { pod: a.clone(), container: late("1"), requested }).unwrap();
    node.stop("1");
    node.event(Event::Remove(ContainerId("1".into()))).unwrap();
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    node.stop("unknown");
    node.check("s", "0-1,6-15");
    node.stop("2");
    node.check("s", "0-15");
}
