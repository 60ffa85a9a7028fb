//! Pod-level resources (`spec.resources`): every container without resources, including an
//! ephemeral one, arrives with the amount of the whole pod. The first containers get exclusive CPUs
//! up to the amount of the pod; a later one takes no CPUs from them.

use super::*;

fn notes(node: &mut Node) -> Vec<String> {
    node.ledger.take_notes().iter().map(Note::to_string).collect()
}

/// Whether the CFS quota of the pod is lifted.
#[track_caller]
fn is_lifted(node: &Node) -> bool {
    let lifts: Vec<bool> = node.ledger.targets().map(|target| target.lifts_pod_quota).collect();
    assert!(lifts.windows(2).all(|two| two[0] == two[1]), "{lifts:?}");
    lifts[0]
}

/// Observed: `kubectl debug` permanently took the CPUs of a container that has resources.
#[test]
fn a_debug_container_takes_nothing_from_the_containers_of_its_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 3000);
    assert_eq!(node.create(&a, "own", "o", 2000).unwrap(), "2-3");
    assert!(is_lifted(&node));
    assert_eq!(node.create(&a, "inherits", "n", 3000).unwrap(), "0-1,4-15");
    // As under the kubelet: the pod's quota is the only limit of the container that inherits its
    // amount.
    assert!(!is_lifted(&node));
    notes(&mut node);
    assert_eq!(node.create(&a, "debug", "d", 3000).unwrap(), "0-1,4-15");
    let logged = notes(&mut node);
    assert_eq!(
        logged,
        [
            "default/a/debug: runs in the shared pool: it requests 3 of the 3 CPUs of its pod, as does a container without \
          resources in a pod that has resources of its own, and other containers of the pod hold CPUs 2-3"
        ]
    );
    node.check("o", "2-3");
    // The end and the restart of shared containers do not matter either.
    for id in ["n", "d"] {
        node.stop(id);
        assert!(!is_lifted(&node));
        assert_eq!(node.ledger.exclusive().to_string(), "2-3");
    }
    node.create(&a, "inherits", "n2", 3000).unwrap();
    assert!(!is_lifted(&node));
    node.stop("o");
    assert_eq!(node.create(&a, "own", "o2", 2000).unwrap(), "2-3");
    // A shared container without a restart for two quiet periods does not count.
    node.stop("n2");
    for _ in 0..2 {
        assert!(!is_lifted(&node));
        node.event(Event::QuietPeriod).unwrap();
    }
    assert!(is_lifted(&node));
}

/// Observed: the first container got all CPUs of the pod, and the others none.
#[test]
fn only_the_first_container_with_the_amount_of_its_pod_is_exclusive() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    assert_eq!(node.create(&a, "one", "1", 4000).unwrap(), "2-5");
    assert!(is_lifted(&node));
    assert_eq!(node.create(&a, "two", "2", 4000).unwrap(), "0-1,6-15");
    node.check("1", "2-5");
    assert!(!is_lifted(&node));
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "8-11");
    // The order of restarts does not matter, even if both have ended.
    for (one, two) in [("1b", "2b"), ("1c", "2c")] {
        let [before_one, before_two] = if one == "1b" { ["1", "2"] } else { ["1b", "2b"] };
        node.stop(before_one);
        if one == "1c" {
            node.stop(before_two);
        }
        assert_eq!(node.create(&a, "two", two, 4000).unwrap(), "0-1,6-7,12-15");
        assert_eq!(node.create(&a, "one", one, 4000).unwrap(), "2-5");
    }
    assert_eq!(node.create(&a, "debug", "d", 4000).unwrap(), "0-1,6-7,12-15");
    assert_eq!(node.create(&a, "own", "o", 1000).unwrap(), "0-1,6-7,12-15");
    assert_eq!(node.ledger.exclusive().to_string(), "2-5,8-11");
}

#[test]
fn a_resize_of_a_pod_with_resources_reaches_the_container_that_holds_its_cpus() {
    for resizes_pod in [true, false] {
        let mut node = Node::new();
        let a = guaranteed("a", 4000);
        node.create(&a, "one", "1", 4000).unwrap();
        node.create(&a, "two", "2", 4000).unwrap();
        if resizes_pod {
            node.event(Event::UpdatePod(guaranteed("a", 6000))).unwrap();
        }
        for (name, id) in [("one", "1"), ("two", "2")] {
            super::resize::resize(&mut node, &a, name, id, 4000, 6000).unwrap();
        }
        assert_eq!(node.ledger.exclusive().to_string(), "2-7");
    }
}

#[test]
fn a_single_container_with_the_amount_of_its_pod_is_exclusive() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    for (name, id) in [("init", "i"), ("second", "j"), ("app", "p1"), ("app", "p2")] {
        assert_eq!(node.create(&a, name, id, 4000).unwrap(), "2-5");
        if id != "p1" {
            node.stop(id);
        }
    }
    // An ephemeral container in an ordinary pod has no resources.
    assert_eq!(node.create(&a, "app", "p3", 4000).unwrap(), "2-5");
    node.create(&a, "debug", "d", 0).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
    assert!(is_lifted(&node));
    // A container known to be an init container does not count.
    let b = guaranteed("b", 4000);
    let init = Container { kind: ContainerKind::Init, ..container(&b, "init", "bi", 4000) };
    node.event(Admission::Create { pod: b.clone(), container: init }).unwrap();
    node.stop("bi");
    assert_eq!(node.create(&b, "app", "bp", 4000).unwrap(), "8-11");
}

/// The runtime may report the end of an init container late.
#[test]
fn a_late_stop_of_an_init_container_does_not_make_its_pod_share() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "init", "i", 4000).unwrap();
    let app = container(&a, "app", "p", 4000);
    node.event(Admission::Create { pod: a.clone(), container: app }).unwrap();
    node.stop("i");
    node.start(&a, "app", "p", 4000);
    node.stop("p");
    assert_eq!(node.create(&a, "app", "p2", 4000).unwrap(), "2-5");
}

/// The decisions after a restart are the same as without one.
#[test]
fn a_restart_changes_nothing_in_a_pod_with_resources() {
    let a = guaranteed("a", 4000);
    for (own, held) in [(4000, "2-5"), (3000, "2-4")] {
        for mechanism in [Mechanism::Runtime, Mechanism::Groups] {
            let mut node = Node::new();
            node.event(Event::Mechanism(mechanism)).unwrap();
            node.create(&a, "one", "1", own).unwrap();
            let listed = [(&a, "one", "1", own), (&a, "two", "2", 4000)];
            // The second container was created while the plugin was down, or before. The state file
            // may be lost.
            for down in [true, false] {
                if !down {
                    node.create(&a, "two", "2", 4000).unwrap();
                }
                for remembered in [Vec::new(), node.ledger.claims().collect()] {
                    let has_checkpoint = !remembered.is_empty();
                    let mut next = Node::with(settings(), remembered);
                    next.event(Event::Mechanism(mechanism)).unwrap();
                    next.set.clone_from(&node.set);
                    next.event(next.running(&listed)).unwrap();
                    next.send_due();
                    next.check("1", held);
                    assert_eq!(next.ledger.exclusive(), cpus(held));
                    assert!(!is_lifted(&next));
                    let logged = notes(&mut next);
                    assert!(logged.iter().all(|note| note.contains("found running")), "{logged:?}");
                    // A reconnect while one of them is between two instances changes nothing,
                    // either.
                    if has_checkpoint {
                        next.stop("1");
                        next.event(next.running(&listed[1..])).unwrap();
                        next.stop("2");
                        next.create(&a, "two", "2b", 4000).unwrap();
                        assert_eq!(next.create(&a, "one", "1b", own).unwrap(), held);
                        assert_eq!(next.ledger.exclusive(), cpus(held));
                    }
                }
            }
        }
    }
}

/// The budget of a listed pod can be older than a resize of its containers.
#[test]
fn a_restart_with_an_outdated_pod_budget_takes_no_exclusive_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    node.create(&a, "one", "1", 1000).unwrap();
    node.create(&a, "two", "2", 1000).unwrap();
    super::resize::resize(&mut node, &a, "one", "1", 1000, 2000).unwrap();
    super::resize::resize(&mut node, &a, "two", "2", 1000, 2000).unwrap();
    node.send_due();
    for remembered in [Vec::new(), node.ledger.claims().collect()] {
        let mut next = Node::with(settings(), remembered);
        next.set.clone_from(&node.set);
        next.event(next.running(&[(&a, "one", "1", 2000), (&a, "two", "2", 2000)])).unwrap();
        assert_eq!(next.ledger.exclusive(), node.ledger.exclusive());
        assert!(is_lifted(&next));
        next.stop("2");
        let two = next.create(&a, "two", "2b", 2000).unwrap();
        assert_eq!(two, node.set["2"].to_string());
        assert_eq!(next.ledger.exclusive(), node.ledger.exclusive());
    }
}
