//! Exclusive CPUs belong to a container's name for the life of its pod, whatever becomes of its
//! instances.

use super::*;

fn creates(node: &mut Node, pod: &Pod, id: &str) -> String {
    let event = Admission::Create { pod: pod.clone(), container: container(pod, "c", id, 4000) };
    node.event(event).unwrap().unwrap().cpus().to_string()
}

/// A creation fails in the runtime, or another plugin refuses it: containerd undoes it, CRI-O says
/// nothing, and a kubelet removes what is left of it and of older instances in any order.
#[test]
fn creations_that_fail_in_a_row_take_nothing_from_a_container() {
    let orders: [&[&str]; 5] =
        [&["2", "3"], &["1", "2", "3"], &["2", "1", "3"], &["2", "3", "1", "2", "3"], &["1"]];
    for removed in orders {
        for stops in [true, false] {
            let mut node = Node::new();
            let (a, b) = (guaranteed("a", 4000), guaranteed("b", 10_000));
            node.create(&a, "c", "1", 4000).unwrap();
            node.stop("1");
            let mut removed = removed.iter();
            for id in ["2", "3"] {
                assert_eq!(creates(&mut node, &a, id), "2-5");
                if stops {
                    node.stop(id);
                }
                removed.next().into_iter().for_each(|id| node.remove(id));
                assert_eq!(node.ledger.exclusive().to_string(), "2-5", "after {id}");
            }
            removed.for_each(|id| node.remove(id));
            assert_eq!(node.ledger.exclusive().to_string(), "2-5");
            assert_eq!(node.create(&b, "c", "b", 10_000).unwrap(), "6-15");
            assert_eq!(node.create(&a, "c", "4", 4000).unwrap(), "2-5");
            node.stop_pod(&a);
            assert_eq!(node.ledger.exclusive().to_string(), "6-15");
        }
    }
}

/// Also of one that never ran: its pod has a right to them, as with the kubelet.
#[test]
fn a_first_creation_that_fails_is_tried_again_with_the_same_cpus() {
    let mut node = Node::new();
    let (a, s) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(creates(&mut node, &a, "1"), "2-5");
    node.remove("1");
    node.tell();
    node.check("s", "0-15");
    assert_eq!(node.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(creates(&mut node, &a, "2"), "2-5");
    node.check("s", "0-1,6-7,12-15");
}

/// A new life knows of them by its checkpoint and the runtime's list of pods.
#[test]
fn a_restart_between_two_tries_keeps_them() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "1", 4000).unwrap();
    node.stop("1");
    creates(&mut node, &a, "2");
    node.remove("2");
    node.remove("1");
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    assert_eq!(next.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(next.create(&a, "c", "3", 4000).unwrap(), "2-5");
}

/// Seen with containerd: it tells no end of pods that are older than its own last start, only of
/// their containers.
#[test]
fn a_pod_without_containers_is_looked_for() {
    let mut node = Node::new();
    let group = CgroupPath::new("kubepods/poda");
    let a = Pod { cgroup: group.clone(), ..guaranteed("a", 14_000) };
    node.create(&a, "one", "1", 7000).unwrap();
    node.create(&a, "two", "2", 7000).unwrap();
    let deserted = |node: &Node| node.ledger.deserted().collect::<Vec<_>>();
    for id in ["1", "2"] {
        assert_eq!(deserted(&node), []);
        node.stop(id);
        node.remove(id);
        assert_eq!(node.ledger.exclusive().len(), 14);
    }
    let found = Deserted { sandbox: a.sandbox.clone(), group, removed: true };
    assert_eq!(deserted(&node), std::slice::from_ref(&found));
    // After a restart the list has its sandbox alone. That may be a pod between two instances.
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    assert_eq!(deserted(&next), [Deserted { removed: false, ..found }]);
    node.stop_pod(&a);
    assert_eq!((deserted(&node), node.ledger.view().pods), (vec![], 0));
    // One without exclusive CPUs is just gone.
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.remove("s");
    assert_eq!((deserted(&node), node.ledger.view().pods), (vec![], 0));
}

#[test]
fn what_an_init_container_leaves_over_is_lent_until_the_pod_needs_it() {
    let mut node = Node::new();
    let (a, s) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "init", "i", 4000).unwrap();
    node.check("s", "0-1,6-15");
    node.stop("i");
    node.check("s", "0-15");
    // The rest goes on being lent, and stays the pod's.
    assert_eq!(node.create(&a, "main", "m", 1000).unwrap(), "2");
    node.check("s", "0-1,3-15");
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
    assert_eq!(node.create(&a, "second", "n", 3000).unwrap(), "3-5");
    node.check("s", "0-1,6-15");
}

/// Of a pod in which others run, and of a container that comes back again and again, only after
/// some time: shared containers would be moved to and fro.
#[test]
fn who_stays_away_lends_its_cpus() {
    let mut node = Node::new();
    let (a, s) = (guaranteed("a", 6000), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "side", "side", 2000).unwrap();
    node.create(&a, "c", "1", 4000).unwrap();
    node.check("s", "0-1,8-15");
    let lull = |node: &mut Node| {
        node.event(Event::QuietPeriod).unwrap();
        node.tell();
    };
    node.stop("1");
    node.check("s", "0-1,8-15");
    lull(&mut node);
    node.check("s", "0-1,8-15");
    lull(&mut node);
    node.check("s", "0-1,4-15");
    lull(&mut node);
    for id in ["2", "3"] {
        assert_eq!(creates(&mut node, &a, id), "4-7");
        node.check("s", "0-1,8-15");
        node.remove(id);
        lull(&mut node);
        node.check("s", "0-1,8-15");
        lull(&mut node);
        node.check("s", "0-1,4-15");
    }
}
