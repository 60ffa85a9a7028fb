//! Pod-level resources (`spec.resources`): every container without its own, an ephemeral one too,
//! arrives with the amount of the whole pod. The kubelet gives them no exclusive CPUs.

use super::*;

fn notes(node: &mut Node) -> Vec<String> {
    node.ledger.take_notes().iter().map(Note::to_string).collect()
}

/// Observed: the first container got all CPUs of the pod, and the others none.
#[test]
fn containers_with_the_amount_of_their_pod_share_once_there_are_two() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    assert_eq!(node.create(&a, "one", "1", 4000).unwrap(), "2-5");
    notes(&mut node);
    assert_eq!(node.create(&a, "two", "2", 4000).unwrap(), "0-15");
    let logged = notes(&mut node);
    assert_eq!(logged[0], "default/a/one: exclusive CPUs 2-5 are free again");
    assert!(logged[1].starts_with("default/a/one: runs in the shared pool: "), "{logged:?}");
    assert!(logged[2].starts_with("default/a/two: runs in the shared pool: "), "{logged:?}");
    node.check("1", "0-15");
    assert!(node.ledger.exclusive().is_empty());
    // The CPUs are free for other pods, and the containers share for the life of their pod.
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "2-5");
    for (name, old, new) in [("one", "1", "1b"), ("two", "2", "2b")] {
        node.stop(old);
        assert_eq!(node.create(&a, name, new, 4000).unwrap(), "0-1,6-15");
    }
    node.stop("1b");
    node.stop("2b");
    assert_eq!(node.create(&a, "debug", "d", 4000).unwrap(), "0-1,6-15");
    assert_eq!(node.create(&a, "own", "o", 1000).unwrap(), "0-1,6-15");
}

#[test]
fn a_resize_of_a_pod_that_shares_its_amount_makes_none_exclusive() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "one", "1", 4000).unwrap();
    node.create(&a, "two", "2", 4000).unwrap();
    node.event(Event::UpdatePod(guaranteed("a", 6000))).unwrap();
    for (name, id) in [("one", "1"), ("two", "2")] {
        super::resize::resize(&mut node, &a, name, id, 4000, 6000).unwrap();
    }
    assert!(node.ledger.exclusive().is_empty());
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
    // A container known to be an init container does not count.
    let b = guaranteed("b", 4000);
    let init = Container { kind: ContainerKind::Init, ..container(&b, "init", "bi", 4000) };
    node.event(Admission::Create { pod: b.clone(), container: init }).unwrap();
    node.stop("bi");
    assert_eq!(node.create(&b, "app", "bp", 4000).unwrap(), "8-11");
}

/// The runtime reports the end of an init container late.
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

#[test]
fn a_restart_detects_containers_that_share_the_amount_of_their_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "one", "1", 4000).unwrap();
    let listed = [(&a, "one", "1", 4000), (&a, "two", "2", 4000)];
    // The second one was created while the plugin was down, or the update of the first was lost.
    for two in [None, Some("0-1,6-15")] {
        let mut next = Node::with(settings(), node.ledger.claims().collect());
        next.set.clone_from(&node.set);
        next.set.extend(two.map(|two| ("2".to_owned(), cpus(two))));
        next.event(next.running(&listed)).unwrap();
        assert!(next.ledger.exclusive().is_empty());
        next.check("1", "0-15");
        assert!(notes(&mut next).iter().any(|note| note.contains("runs in the shared pool")));
        // They share after a reconnect too, while one of them is between two instances.
        next.stop("2");
        next.event(next.running(&listed[..1])).unwrap();
        assert!(next.ledger.exclusive().is_empty());
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
        next.stop("2");
        let two = next.create(&a, "two", "2b", 2000).unwrap();
        assert_eq!(two, node.set["2"].to_string());
        assert_eq!(next.ledger.exclusive(), node.ledger.exclusive());
    }
}
