//! Pod options of running containers: resizes, restarts, and pod options that are no longer allowed.

use super::pod_options::{allowing, asking, node, node_with, resize};
use super::*;

#[test]
fn a_resize_that_would_end_requested_exclusivity_is_refused() {
    for qos in [Qos::Burstable, Qos::Guaranteed] {
        let mut node = node();
        let a = asking(pod("a", qos, 2000), &[("cpus", "exclusive")]);
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
        let refused = resize(&mut node, &a, 2000, 2500).unwrap_err();
        assert_eq!(
            refused,
            "PodOptionUnmetError: cpus: exclusive needs a request for whole CPUs, but 2500m CPUs are requested"
        );
        assert_eq!(node.ledger.exclusive().to_string(), "2-3");
        resize(&mut node, &a, 2000, 3000).unwrap();
        node.check("a", "2-4");
    }
    // Exclusivity by a namespace default ends with the resize: a new container would share too.
    let mut node = node_with(allowing(&[("cpus", "exclusive")]), Vec::new());
    let b = pod("a", Qos::Burstable, 2000);
    node.create(&b, "c", "a", 2000).unwrap();
    resize(&mut node, &b, 2000, 2500).unwrap();
    assert!(node.ledger.exclusive().is_empty());
}

#[test]
fn a_resize_to_requested_exclusivity_beyond_the_pods_budget_is_refused() {
    let mut node = node();
    let a = asking(pod("a", Qos::Burstable, 3000), &[("cpus", "exclusive")]);
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "2-3");
    // The second container was created without a request for whole CPUs.
    let second = Container { cpus: Some(cpus("0-15")), ..container(&a, "c", "a", 500) };
    node.event(Event::Started { pod: a.clone(), container: second }).unwrap();
    // The runtime reports the pod's budget, which has not grown.
    node.event(Event::UpdatePod(a.clone())).unwrap();
    let refused = resize(&mut node, &a, 500, 2000).unwrap_err();
    assert_eq!(
        refused,
        "PodOptionUnmetError: cpus: exclusive is more than the CPU limit of the pod leaves for this container"
    );
    assert_eq!(node.ledger.exclusive().to_string(), "2-3");
}

#[test]
fn a_resize_during_a_restart_is_adopted_in_a_burstable_pod() {
    let a = asking(pod("a", Qos::Burstable, 8000), &[("cpus", "exclusive")]);
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

/// No pod option is allowed.
fn forbidding() -> Settings {
    Settings { namespaces: Namespaces::default(), ..allowing(&[]) }
}

#[test]
fn a_pod_that_opted_out_stays_shared_when_permission_is_withdrawn() {
    for pod_options in [&[("cpus", "shared")][..], &[("cpus", "shared"), ("smt", "isolate")]] {
        let mut node = node();
        let a = asking(guaranteed("a", 2000), pod_options);
        let s = pod("s", Qos::Burstable, 100);
        node.create(&s, "c", "s", 100).unwrap();
        assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "0-15");
        let running = node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 2000)]);
        node.event(Event::Settings(forbidding())).unwrap();
        let mut again = node_with(forbidding(), Vec::new());
        again.event(running).unwrap();
        for node in [&mut node, &mut again] {
            assert!(node.ledger.exclusive().is_empty(), "{pod_options:?}");
            assert!(node.ledger.view().figures.moves.is_empty(), "{pod_options:?}");
            // It keeps no CPUs free, and its next instance is refused.
            node.create(&guaranteed("b", 14_000), "c", "b", 14_000).unwrap();
            let refused = node.create(&a, "c", "a2", 2000).unwrap_err();
            assert!(refused.starts_with("PodOptionNotAllowedError"), "{refused}");
        }
    }
}

#[test]
fn requested_exclusive_cpus_still_follow_resizes_when_permission_is_withdrawn() {
    let burstable = asking(pod("a", Qos::Burstable, 4000), &[("cpus", "exclusive")]);
    let mut node = node();
    assert_eq!(node.create(&burstable, "c", "a", 2000).unwrap(), "2-3");
    node.event(Event::Settings(forbidding())).unwrap();
    for (from, to, expect) in [(2000, 4000, "2-5"), (4000, 1000, "2"), (1000, 500, "0-15")] {
        resize(&mut node, &burstable, from, to).unwrap();
        node.check("a", expect);
    }
    // It shares CPUs now, and may not ask for exclusive ones again.
    resize(&mut node, &burstable, 500, 2000).unwrap();
    assert!(node.ledger.exclusive().is_empty());
}

/// The kubelet does not keep siblings idle, and the ledger moves no running container to make one
/// idle.
#[test]
fn a_running_container_keeps_the_sibling_of_one_that_asks_for_idle_siblings() {
    let x = asking(guaranteed("x", 1000), &[("smt", "isolate")]);
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
            assert!(node.ledger.view().figures.moves.is_empty());
        }
    }
}

#[test]
fn a_sibling_that_is_free_at_takeover_stays_idle() {
    let x = asking(guaranteed("x", 1000), &[("smt", "isolate")]);
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
