//! In-place resizes of containers whose pods say whether they are to have CPUs of their own.

use super::wishes::{allowing, node, node_with, resize, wishing};
use super::*;

#[test]
fn a_resize_that_would_end_requested_exclusivity_is_refused() {
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
fn a_resize_to_requested_exclusivity_beyond_the_pods_budget_is_refused() {
    let exclusive = |budget| wishing(pod("a", Qos::Burstable, budget), &[("cpus", "exclusive")]);
    let mut node = node();
    let a = exclusive(3000);
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "2-3");
    // It was created without a request for whole CPUs.
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

#[test]
fn a_resize_during_a_restart_is_adopted_in_a_burstable_pod() {
    let a = wishing(pod("a", Qos::Burstable, 8000), &[("cpus", "exclusive")]);
    let asking = |milli| Container {
        cpu: CpuRequest { request: Some(MilliCpu(milli)), limit: Some(MilliCpu(8000)) },
        ..container(&a, "c", "a", 0)
    };
    for (milli, expect) in [(4000, "2-5"), (1000, "2"), (2000, "2-3")] {
        let mut node = node();
        node.event(Admission::Create { pod: a.clone(), container: asking(2000) }).unwrap();
        let mut next = node_with(allowing(&[]), node.ledger.claims().collect());
        let running = Container { cpus: Some(cpus("2-3")), ..asking(milli) };
        let pods = vec![a.clone()];
        let containers = vec![running];
        next.event(Event::Synchronize { pods, containers }).unwrap();
        assert_eq!(next.ledger.exclusive().to_string(), expect);
    }
}
