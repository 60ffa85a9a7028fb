//! Taking over containers that wish for idle siblings: cores of two CPUs, siblings adjacent, core 0
//! is reserved.

use super::wishes::{allowing, node, node_with, wishing};
use super::*;

/// The kubelet does not keep siblings idle, and no running container moves for that.
#[test]
fn nobody_leaves_the_sibling_of_somebody_who_wishes_it_idle() {
    let x = wishing(guaranteed("x", 1000), &[("smt", "isolate")]);
    let y = guaranteed("y", 1000);
    let both = [(&x, "c", "x", 1000), (&y, "c", "y", 1000)];
    let turned = [both[1], both[0]];
    let noted = vec![claim(&x, "x", "2"), claim(&y, "y", "3")];
    for containers in [both, turned] {
        for remembered in [Vec::new(), noted.clone()] {
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
fn a_sibling_that_is_free_is_idle_from_then_on() {
    let x = wishing(guaranteed("x", 1000), &[("smt", "isolate")]);
    let mut node = node();
    node.set.insert("x".to_owned(), cpus("2"));
    node.event(node.running(&[(&x, "c", "x", 1000)])).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-3");
    // Once it has been decided that there is none, it stays so.
    let mut node = node_with(allowing(&[]), vec![claim(&x, "x", "2")]);
    node.set.insert("x".to_owned(), cpus("2"));
    node.event(node.running(&[(&x, "c", "x", 1000)])).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2");
}
