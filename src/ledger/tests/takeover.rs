//! Taking over containers that wish for idle siblings: cores of two CPUs, siblings adjacent, core 0
//! is reserved.

use super::wishes::{allowing, node, node_with, wishing};
use super::*;

/// The kubelet does not keep siblings idle, and no running container is moved to make one idle.
#[test]
fn a_running_container_keeps_the_sibling_of_one_that_asks_for_idle_siblings() {
    let x = wishing(guaranteed("x", 1000), &[("smt", "isolate")]);
    let y = guaranteed("y", 1000);
    let both = [(&x, "c", "x", 1000), (&y, "c", "y", 1000)];
    let reversed = [both[1], both[0]];
    let checkpoint = vec![claim(&x, "x", "2"), claim(&y, "y", "3")];
    for containers in [both, reversed] {
        for remembered in [Vec::new(), checkpoint.clone()] {
            let mut node = node_with(allowing(&[]), remembered);
            node.set.insert("x".to_owned(), cpus("2"));
            node.set.insert("y".to_owned(), cpus("3"));
            node.event(node.running(&containers)).unwrap();
            node.check("x", "2");
            node.check("y", "3");
            assert_eq!(node.ledger.exclusive().to_string(), "2-3");
            assert!(node.ledger.view().moves.is_empty());
        }
    }
}

#[test]
fn a_sibling_that_is_free_at_takeover_stays_idle() {
    let x = wishing(guaranteed("x", 1000), &[("smt", "isolate")]);
    let mut node = node();
    node.set.insert("x".to_owned(), cpus("2"));
    node.event(node.running(&[(&x, "c", "x", 1000)])).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-3");
    // A claim that was checkpointed without an idle sibling stays without one.
    let mut node = node_with(allowing(&[]), vec![claim(&x, "x", "2")]);
    node.set.insert("x".to_owned(), cpus("2"));
    node.event(node.running(&[(&x, "c", "x", 1000)])).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2");
}
