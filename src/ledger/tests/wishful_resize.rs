//! In-place resizes of containers whose pods say whether they are to have CPUs of their own.

use super::wishes::{allowing, node, node_with, resize, wishing};
use super::*;

#[test]
fn who_insists_on_exclusive_cpus_keeps_them_or_is_not_resized() {
    for qos in [Qos::Burstable, Qos::Guaranteed] {
        let mut node = node();
        let a = wishing(pod("a", qos, 2000), &[("cpus", "exclusive")]);
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
        let refused = resize(&mut node, &a, 2000, 2500).unwrap_err();
        assert_eq!(
            refused,
            "WishUnmetError: cpus: exclusive needs a request for whole CPUs, but 2500m CPUs are requested"
        );
        assert_eq!(node.ledger.exclusive().to_string(), "2-3");
        resize(&mut node, &a, 2000, 3000).unwrap();
        node.check("a", "2-4");
    }
    // Where only the administrator says so it goes on sharing, as a new one would.
    let mut node = node_with(allowing(&[("cpus", "exclusive")]), Vec::new());
    let b = pod("a", Qos::Burstable, 2000);
    node.create(&b, "c", "a", 2000).unwrap();
    resize(&mut node, &b, 2000, 2500).unwrap();
    assert!(node.ledger.exclusive().is_empty());
}

#[test]
fn who_insists_is_not_resized_without_room_in_its_pods_budget() {
    let exclusive = |budget| wishing(pod("a", Qos::Burstable, budget), &[("cpus", "exclusive")]);
    let mut node = node();
    let a = exclusive(3000);
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "2-3");
    // It was created while nobody asked for whole CPUs.
    let second = Container { cpus: Some(cpus("0-15")), ..container(&a, "c", "a", 500) };
    node.event(Event::Started { pod: a.clone(), container: second }).unwrap();
    // The runtime tells of the pod's budget, and that it has not become larger.
    node.event(Event::UpdatePod(a.clone())).unwrap();
    let refused = resize(&mut node, &a, 500, 2000).unwrap_err();
    assert_eq!(
        refused,
        "WishUnmetError: cpus: exclusive is more than the CPU limit of the pod leaves for this container"
    );
    assert_eq!(node.ledger.exclusive().to_string(), "2-3");
}
