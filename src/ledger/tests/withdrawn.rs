//! The administrator takes a permission back while containers run that were created with it.

use super::wishes::{allowing, node, node_with, resize, wishing};
use super::*;

/// The same settings, and no pod may wish for anything.
fn forbidding() -> Settings {
    Settings { namespaces: Namespaces::default(), ..allowing(&[]) }
}

#[test]
fn a_pod_that_opted_out_stays_shared_when_permission_is_withdrawn() {
    for wishes in [&[("cpus", "shared")][..], &[("cpus", "shared"), ("smt", "isolate")]] {
        let mut node = node();
        let a = wishing(guaranteed("a", 2000), wishes);
        let s = pod("s", Qos::Burstable, 100);
        node.create(&s, "c", "s", 100).unwrap();
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "0-15");
        let running = node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 2000)]);
        node.event(Event::Settings(forbidding())).unwrap();
        let mut again = node_with(forbidding(), Vec::new());
        again.event(running).unwrap();
        for node in [&mut node, &mut again] {
            assert!(node.ledger.exclusive().is_empty(), "{wishes:?}");
            assert!(node.ledger.view().moves.is_empty(), "{wishes:?}");
            // It keeps no CPUs free for itself either, and counts as any other when it is created
            // anew.
            node.create(&guaranteed("b", 14_000), "c", "b", 14_000).unwrap();
            let refused = node.create(&a, "c", "a2", 2000).unwrap_err();
            assert!(refused.starts_with("WishNotAllowedError"), "{refused}");
        }
    }
}

#[test]
fn requested_exclusive_cpus_still_follow_resizes_when_permission_is_withdrawn() {
    let burstable = wishing(pod("a", Qos::Burstable, 4000), &[("cpus", "exclusive")]);
    let mut node = node();
    assert_eq!(node.create(&burstable, "c", "a", 2000).unwrap(), "2-3");
    node.event(Event::Settings(forbidding())).unwrap();
    for (from, to, expect) in [(2000, 4000, "2-5"), (4000, 1000, "2"), (1000, 500, "0-15")] {
        resize(&mut node, &burstable, from, to).unwrap();
        node.check("a", expect);
    }
    // It has none any more, and may not wish for some.
    resize(&mut node, &burstable, 500, 2000).unwrap();
    assert!(node.ledger.exclusive().is_empty());
}
