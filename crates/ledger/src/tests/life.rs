//! Exclusive CPUs belong to a container's name for the life of its pod, through all its instances.

use super::*;
use cpuset::CgroupPath;

/// Creates an instance that does not start. Returns its CPUs.
fn create_only(node: &mut Node, pod: &Pod, id: &str) -> String {
    let event = Admission::Create { pod: pod.clone(), container: container(pod, "c", id, 4000) };
    node.event(event).unwrap().unwrap().cpus().to_string()
}

/// A creation fails in the runtime, or another plugin refuses it. containerd reports a stop and a
/// removal, CRI-O nothing, and the kubelet removes failed and older instances in any order.
#[test]
fn repeated_failed_creations_free_none_of_a_containers_cpus() {
    let orders: [&[&str]; 5] =
        [&["2", "3"], &["1", "2", "3"], &["2", "1", "3"], &["2", "3", "1", "2", "3"], &["1"]];
    for removed in orders {
        for stops in [true, false] {
            let mut node = Node::new();
            let a = guaranteed("a", 4000);
            let b = guaranteed("b", 10_000);
            node.create(&a, "c", "1", 4000).unwrap();
            node.stop("1");
            let mut removed = removed.iter();
            for id in ["2", "3"] {
                assert_eq!(create_only(&mut node, &a, id), "2-5");
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

/// A container that never ran holds its CPUs, too, as under the kubelet.
#[test]
fn a_failed_first_creation_is_retried_with_the_same_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(create_only(&mut node, &a, "1"), "2-5");
    node.remove("1");
    node.send_due();
    node.check("s", "0-15");
    assert_eq!(node.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(create_only(&mut node, &a, "2"), "2-5");
    node.check("s", "0-1,6-7,12-15");
}

/// The state file has the claim, and the runtime's list has the pod.
#[test]
fn a_restart_between_two_creations_keeps_the_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "1", 4000).unwrap();
    node.stop("1");
    create_only(&mut node, &a, "2");
    node.remove("2");
    node.remove("1");
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    assert_eq!(next.create(&guaranteed("b", 4000), "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(next.create(&a, "c", "3", 4000).unwrap(), "2-5");
}

/// Observed with containerd: it reports no end of a pod that is older than its own last start, only
/// the ends of the containers.
#[test]
fn a_pod_without_containers_is_reported_as_deserted() {
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
    let name = "default/a".to_owned();
    let expect = Deserted { name, sandbox: a.sandbox.clone(), group, removed: true };
    assert_eq!(deserted(&node), std::slice::from_ref(&expect));
    // After a restart the runtime lists only the sandbox: the pod may be between two instances.
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    assert_eq!(deserted(&next), [Deserted { removed: false, ..expect }]);
    node.stop_pod(&a);
    assert_eq!((deserted(&node), node.ledger.view().figures.pods), (vec![], 0));
    // A Guaranteed pod that shared CPUs stays for its pause container, and keeps no CPUs free.
    let b = Pod { cgroup: CgroupPath::new("kubepods/podb"), ..guaranteed("b", 14_500) };
    node.create(&b, "c", "b", 14_500).unwrap();
    node.remove("b");
    assert_eq!((deserted(&node).len(), node.ledger.view().figures.pods), (1, 1));
    node.create(&a, "one", "1", 14_000).unwrap();
    node.stop_pod(&a);
    node.stop_pod(&b);
    // The pause container of a Burstable pod is bound by the cgroup of its class.
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.remove("s");
    assert_eq!((deserted(&node), node.ledger.view().figures.pods), (vec![], 0));
}

#[test]
fn unused_cpus_of_an_init_container_are_lent_until_its_pod_needs_them() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "init", "i", 4000).unwrap();
    node.check("s", "0-1,6-15");
    node.stop("i");
    node.check("s", "0-15");
    // The other CPUs stay lent, and still belong to the pod.
    assert_eq!(node.create(&a, "main", "m", 1000).unwrap(), "2");
    node.check("s", "0-1,3-15");
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
    assert_eq!(node.create(&a, "second", "n", 3000).unwrap(), "3-5");
    node.check("s", "0-1,6-15");
}

/// While other containers of the pod run, and after a restart, CPUs are lent only after some time,
/// so that shared containers do not move back and forth.
#[test]
fn a_stopped_container_lends_its_cpus_after_two_quiet_periods() {
    let mut node = Node::new();
    let a = guaranteed("a", 6000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "side", "side", 2000).unwrap();
    node.create(&a, "c", "1", 4000).unwrap();
    node.check("s", "0-1,8-15");
    let quiet_period = |node: &mut Node| {
        node.event(Event::QuietPeriod).unwrap();
        node.send_due();
    };
    node.stop("1");
    node.check("s", "0-1,8-15");
    quiet_period(&mut node);
    node.check("s", "0-1,8-15");
    quiet_period(&mut node);
    node.check("s", "0-1,4-15");
    quiet_period(&mut node);
    for id in ["2", "3"] {
        assert_eq!(create_only(&mut node, &a, id), "4-7");
        node.check("s", "0-1,8-15");
        node.remove(id);
        quiet_period(&mut node);
        node.check("s", "0-1,8-15");
        quiet_period(&mut node);
        node.check("s", "0-1,4-15");
    }
}
