//! Outdated lists: a restarted CRI-O lists containers as it created them.

use super::hotplug::machine_without;
use super::resize::resize;
use super::*;

/// A list with this container and the amount with which it was created.
fn outdated_list(node: &Node, pod: &Pod, id: &str, milli: u64) -> Event {
    let Event::Synchronize { pods, mut containers } = node.running(&[(pod, "c", id, milli)]) else {
        unreachable!()
    };
    containers.iter_mut().for_each(|container| container.outdated = true);
    Event::Synchronize { pods, containers }
}

/// Neither in the ledger that made the resize nor in one that is restarted from its claims.
#[test]
fn an_outdated_list_does_not_undo_a_resize() {
    for restart in [false, true] {
        for (created, resized, expect) in [(2000, 4000, "2-5"), (4000, 2000, "2-3")] {
            let mut node = Node::new();
            let a = guaranteed("a", created);
            node.create(&a, "c", "a", created).unwrap();
            resize(&mut node, &a, "c", "a", created, resized).unwrap();
            node.check("a", expect);
            let event = outdated_list(&node, &a, "a", created);
            if restart {
                let remembered = node.ledger.claims().collect();
                node.ledger = Ledger::new(machine(2, 8), settings(), remembered);
            }
            node.event(event).unwrap();
            node.check("a", expect);
            assert_eq!(node.ledger.exclusive(), cpus(expect));
            assert!(node.ledger.view().figures.moves.is_empty());
            // The next resize starts from its present CPUs.
            resize(&mut node, &a, "c", "a", resized, created).unwrap();
            assert_eq!(node.ledger.exclusive().len() as u64, created / 1000);
        }
    }
}

#[test]
fn an_outdated_list_does_not_undo_a_resize_to_shared() {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    node.create(&a, "c", "a", 2000).unwrap();
    resize(&mut node, &a, "c", "a", 2000, 2500).unwrap();
    node.event(outdated_list(&node, &a, "a", 2000)).unwrap();
    assert!(node.ledger.exclusive().is_empty());
    assert!(node.ledger.view().figures.moves.is_empty());
}

/// The ledger does not take the missing CPUs for a resize.
#[test]
fn a_container_that_lacks_cpus_gets_more_after_an_outdated_list() {
    let a = guaranteed("a", 4000);
    let rest = guaranteed("rest", 10_000);
    let mut node = Node::new();
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&rest, "c", "rest", 10_000).unwrap();
    node.event(Event::Machine(machine_without("5"))).unwrap();
    node.stop("any");
    node.check("a", "2-4");
    node.stop_pod(&rest);
    let event = outdated_list(&node, &a, "a", 4000);
    let remembered = node.ledger.claims().collect();
    node.ledger = Ledger::new(machine_without("5"), settings(), remembered);
    node.event(event).unwrap();
    node.check("a", "2-4,6");
}
