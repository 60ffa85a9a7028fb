//! Under policy none containers are left alone, but those that were pinned before.

use super::resize::resize;
use super::*;

/// A node that was under `static` until now, with an exclusive container and a shared one.
fn node() -> (Node, Pod, Pod) {
    let mut node = Node::new();
    let (a, s) = (guaranteed("a", 2000), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 2000).unwrap();
    node.event(Event::Settings(Settings { policy: Policy::None, ..settings() })).unwrap();
    node.check("a", "2-3");
    node.check("s", "0-1,4-15");
    (node, a, s)
}

#[test]
fn who_gives_its_cpus_up_is_unpinned_as_well() {
    let (mut node, a, _) = node();
    resize(&mut node, &a, "c", "a", 2000, 500).unwrap();
    node.check("a", "0-15");
    node.check("s", "0-15");
}

#[test]
fn an_unpinning_that_was_not_sent_stays_due() {
    let (mut node, a, s) = node();
    let end = Event::StopPod(a.sandbox.clone());
    let unheard = node.ledger.handle(end).unwrap().updates;
    assert_eq!(unheard, []);
    // The end of a pod has no answer that could carry changes: the next one does.
    let other = pod("other", Qos::Burstable, 100);
    let creation =
        Admission::Create { pod: other.clone(), container: container(&other, "c", "other", 100) };
    node.ledger.admit(creation).unwrap();
    let created = ContainerId("other".to_owned());
    assert_eq!(node.ledger.adjustment(&created), None, "it was never pinned, and need not be");
    let lost = node.ledger.due(&Channel::Creation(created));
    let due = [Update {
        container: ContainerId("s".to_owned()),
        adjustment: Adjustment::shared("0-15".parse().unwrap()).unwrap(),
    }];
    assert_eq!(lost.updates, due);
    let decision = node.ledger.handle(Event::Stop(ContainerId("other".to_owned()))).unwrap();
    assert_eq!(decision.updates, due);
    node.start(&s, "c", "s", 100);
}
