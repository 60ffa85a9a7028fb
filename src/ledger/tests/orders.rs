//! Events of one container's life in every order, each of them there or missing.

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
        Event::Stop(ContainerId("1".to_owned())).into(),
        Event::Remove(ContainerId("1".to_owned())).into(),
        Event::StopPod(a.sandbox.clone()).into(),
    ];
    let mut before = Node::new();
    assert_eq!(before.create(&other, "c", "o", 4000).unwrap(), "2-5");
    let mut told = 0;
    each_order(&life, &mut Vec::new(), &mut |events| {
        told += 1;
        let mut node = Node { ledger: before.ledger.clone(), set: before.set.clone() };
        for event in events {
            node.event((*event).clone()).unwrap();
            assert_eq!(node.ledger.check(), Ok(()), "{events:?}");
            node.check("o", "2-5");
        }
        // An end that comes last ends it; for the ledger any later event is a new beginning.
        let ends = |call: &Call| matches!(call, Call::Event(Event::StopPod(_)));
        let begins =
            |call: &Call| matches!(call, Call::Admission(_) | Call::Event(Event::Started { .. }));
        let over = events.last().is_some_and(ends) || !events.iter().any(begins);
        assert!(!over || node.ledger.exclusive().len() == 4, "{events:?}");
        // The runtime's list has the last word.
        node.event(node.running(&[(&other, "c", "o", 4000)])).unwrap();
        assert_eq!(node.ledger.exclusive().to_string(), "2-5", "{events:?}");
        assert_eq!(node.ledger.pool().to_string(), "0-1,6-15", "{events:?}");
    });
    assert_eq!(told, 1957, "every order of every choice of six");
}

fn each_order(left: &[Call], told: &mut Vec<Call>, check: &mut impl FnMut(&[Call])) {
    check(told);
    for at in 0..left.len() {
        let mut rest = left.to_vec();
        told.push(rest.remove(at));
        each_order(&rest, told, check);
        told.pop();
    }
}

/// containerd tells of the end of a process that ends at once before it tells of its start, and of
/// no second end: were that believed, an init container's CPUs would be in use for as long as its
/// pod lives, and the next container had none.
#[test]
fn a_start_reported_after_the_stop_revives_no_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    let create =
        |id: &str| Admission::Create { pod: a.clone(), container: container(&a, id, id, 4000) };
    node.event(create("init")).unwrap();
    node.stop("init");
    node.start(&a, "init", "init", 4000);
    let adjustment = node.event(create("main")).unwrap().unwrap();
    assert_eq!(
        (adjustment.is_exclusive(), adjustment.cpus().to_string()),
        (true, "2-5".to_owned())
    );
    node.check("s", "0-1,6-15");
}

/// Late events of a replaced instance change its successor as little as its stop does.
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
    let wanted = Wanted { cpu: late("1").cpu, ..Wanted::default() };
    node.event(Admission::Update { pod: a.clone(), container: late("1"), wanted }).unwrap();
    node.stop("1");
    node.event(Event::Remove(ContainerId("1".to_owned()))).unwrap();
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    node.stop("unknown");
    node.check("s", "0-1,6-15");
    node.stop("2");
    node.check("s", "0-15");
}
