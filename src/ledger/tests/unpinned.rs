//! Under policy none no container is pinned, but those pinned before stay so until they change.

use super::resize::resize;
use super::*;

/// A node that changed from policy `static` to `none`, with an exclusive container and a shared one.
fn formerly_static() -> (Node, Pod, Pod) {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 2000).unwrap();
    node.event(Event::Settings(Settings { policy: Policy::None, ..settings() })).unwrap();
    node.check("a", "2-3");
    node.check("s", "0-1,4-15");
    (node, a, s)
}

#[test]
fn a_container_resized_to_shared_under_policy_none_is_unpinned() {
    let (mut node, a, _) = formerly_static();
    resize(&mut node, &a, "c", "a", 2000, 500).unwrap();
    node.check("a", "0-15");
    node.check("s", "0-15");
}

#[test]
fn an_unpinning_that_was_not_sent_stays_due() {
    let (mut node, a, s) = formerly_static();
    let end = Event::StopPod(a.sandbox.clone());
    assert_eq!(node.ledger.handle(end).unwrap().updates, []);
    // The answer to the end of a pod cannot carry updates: the next answer does.
    let other = pod("other", Qos::Burstable, 100);
    let creation =
        Admission::Create { pod: other.clone(), container: container(&other, "c", "other", 100) };
    node.ledger.admit(creation).unwrap();
    let created = ContainerId("other".to_owned());
    assert_eq!(node.ledger.adjustment(&created), None, "it was never pinned");
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
