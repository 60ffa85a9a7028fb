//! Adoption of running containers within the budget of their pod.

use super::*;

/// A pod of four containers with 2 CPUs each. Its budget of 5 is enough for two exclusive ones, and
/// the shared pool has two CPUs.
fn pool_of_two() -> (Node, Vec<Pod>) {
    let mut strict = settings();
    strict.placement.options.strict_cpu_reservation = true;
    let mut node = Node::with(strict, Vec::new());
    let a = guaranteed("a", 5000);
    let rest = guaranteed("rest", 8000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    for (name, cpus) in [("one", "2-3"), ("two", "4-5"), ("three", "6-15"), ("four", "6-15")] {
        assert_eq!(node.create(&a, name, name, 2000).unwrap(), cpus);
    }
    node.create(&rest, "c", "rest", 8000).unwrap();
    for id in ["three", "four", "s"] {
        node.check(id, "6-7");
    }
    (node, vec![a, rest, s])
}

fn restarted(node: &Node, remembered: bool, listed: &[(&Pod, &str, &str, u64)]) -> Node {
    let claims = if remembered { node.ledger.claims().collect() } else { Vec::new() };
    let mut next = Node::with(node.ledger.settings().clone(), claims);
    next.set.clone_from(&node.set);
    next.event(node.running(listed)).unwrap();
    next
}

/// Observed: after a restart one of the two shared containers had both CPUs of the pool
/// exclusively, and all others had only the reserved ones.
#[test]
fn a_shared_pool_of_matching_size_is_not_adopted_as_exclusive() {
    let (node, pods) = pool_of_two();
    let [a, rest, s] = pods.as_slice() else { unreachable!() };
    let all = [
        (a, "one", "one", 2000),
        (a, "two", "two", 2000),
        (a, "three", "three", 2000),
        (a, "four", "four", 2000),
        (rest, "c", "rest", 8000),
        (s, "c", "s", 100),
    ];
    // With a state file even if no other shared container shows that these CPUs are the pool.
    for (remembered, listed) in [(true, &all[..]), (true, &all[..5]), (false, &all[..])] {
        let next = restarted(&node, remembered, listed);
        assert_eq!(next.set, node.set);
        assert_eq!(next.ledger.exclusive(), node.ledger.exclusive());
    }
    // After a change of the configuration it is not adopted either.
    let mut node = node;
    let settings = Settings { mems_follow_cpus: true, ..node.ledger.settings().clone() };
    node.event(Event::Settings(settings)).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-5,8-15");
}

/// The kubelet may restart an ended container, so its share of the budget is not free for a third
/// one.
#[test]
fn an_ended_container_keeps_its_share_of_its_pods_budget() {
    let (mut node, pods) = pool_of_two();
    let [a, rest, s] = pods.as_slice() else { unreachable!() };
    node.stop("two");
    let listed = [
        (a, "one", "one", 2000),
        (a, "three", "three", 2000),
        (rest, "c", "rest", 8000),
        (s, "c", "s", 100),
    ];
    let mut next = restarted(&node, true, &listed);
    assert_eq!(next.ledger.exclusive().to_string(), "2-5,8-15");
    next.check("three", "6-7");
    assert_eq!(next.create(a, "two", "again", 2000).unwrap(), "4-5");
}

/// Without a state file, containers that request no whole CPUs show which CPUs are the shared pool.
#[test]
fn cpus_of_a_container_without_a_whole_request_are_a_shared_pool() {
    let a = guaranteed("a", 2000);
    let s = pod("s", Qos::Burstable, 100);
    for (others, expect) in [("8-9", "2-3"), ("10-11", "8-9")] {
        let mut node = Node::new();
        node.set.insert("a".to_owned(), cpus("8-9"));
        node.set.insert("s".to_owned(), cpus(others));
        node.event(node.running(&[(&a, "c", "a", 2000), (&s, "c", "s", 100)])).unwrap();
        node.send_due();
        node.check("a", expect);
    }
}
