//! Pods for the reserved CPUs: pods of reserved namespaces, and pods in the kubelet's system
//! partition.

use super::groups::{create, with_cgroup};
use super::hotplug::machine_without;
use super::*;
use crate::pattern::Patterns;

fn reserving(names: &[&str]) -> Settings {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Settings { reserved_namespaces: Patterns::new(names), ..settings() }
}

fn by(mechanism: Mechanism) -> Node {
    Node::by(mechanism, reserving(&["kube-*"]))
}

fn system(pod: Pod) -> Pod {
    Pod { namespace: "kube-system".to_owned(), ..pod }
}

fn partitioned(pod: Pod) -> Pod {
    Pod { pool: PoolKind::Reserved, ..with_cgroup(pod) }
}

fn runs_on(node: &Node, id: &str) -> String {
    node.ledger.target(&ContainerId(id.into())).unwrap().runs_on.to_string()
}

#[test]
fn containers_of_reserved_namespaces_run_on_the_reserved_cpus() {
    let mut node = by(Mechanism::Runtime);
    let dns = system(pod("dns", Qos::Burstable, 100));
    assert_eq!(node.create(&dns, "c", "dns", 100).unwrap(), "0-1");
    assert_eq!(node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap(), "0-15");
    assert_eq!(node.create(&guaranteed("a", 4000), "c", "a", 4000).unwrap(), "2-5");
    assert_eq!(runs_on(&node, "dns"), "0-1");
    let counts = super::counts(&node);
    assert_eq!(counts, ContainerCounts { exclusive: 1, shared: 1, reserved: 1 });
}

#[test]
fn no_container_of_a_pod_for_the_reserved_cpus_gets_exclusive_ones() {
    for mechanism in [Mechanism::Runtime, Mechanism::Groups, Mechanism::Partitions] {
        let mut node = by(mechanism);
        let exclusive = [("cpus.cpu-manager.nri.io", "exclusive")].into_iter().collect();
        for pod in [
            system(with_cgroup(guaranteed("a", 4000))),
            partitioned(guaranteed("b", 4000)),
            Pod { annotations: exclusive, ..partitioned(pod("c", Qos::Burstable, 2000)) },
        ] {
            create(&mut node, &pod, &pod.name, 2000);
            assert_eq!(runs_on(&node, &pod.name), "0-1", "{mechanism}");
        }
        assert_eq!(node.ledger.claims().count(), 0);
        // Such a pod keeps no CPUs free, either.
        assert_eq!(create(&mut node, &with_cgroup(guaranteed("d", 14_000)), "d", 14_000), "2-15");
    }
}

#[test]
fn a_pod_of_the_system_partition_needs_no_reserved_namespace() {
    let mut node = Node::new();
    let dns = partitioned(pod("dns", Qos::BestEffort, 0));
    assert_eq!(node.create(&dns, "c", "dns", 0).unwrap(), "0-1");
    // Most events do not name the cgroup.
    let silent = Pod { pool: PoolKind::General, cgroup: None, ..dns };
    assert_eq!(node.create(&silent, "d", "other", 0).unwrap(), "0-1");
}

/// The kubelet's CPU manager knows nothing of its system partition.
#[test]
fn exclusive_cpus_that_the_kubelet_gave_in_the_system_partition_are_not_taken_over() {
    let mut node = Node::new();
    let system = partitioned(guaranteed("a", 2000));
    for name in ["c", "gone"] {
        let of = Named::Container(system.uid.clone(), name.to_owned());
        let claims = vec![KubeletClaim { of, cpus: cpus("4-5") }];
        node.event(Event::Stance { stance: Stance::Observe, claims: claims.clone() }).unwrap();
        node.set.insert("a".to_owned(), cpus("4-5"));
        let running = node.running(&[(&system, "c", "a", 2000)]);
        node.event(running).unwrap();
        node.event(Event::Stance { stance: Stance::Assign, claims }).unwrap();
        assert_eq!(node.ledger.claims().count(), 0, "{name}");
    }
    node.send_due();
    node.check("a", "0-1");
}

#[test]
fn containers_for_the_reserved_cpus_run_in_the_pool_if_none_is_online() {
    let mut node = by(Mechanism::Groups);
    let dns = system(with_cgroup(pod("dns", Qos::Burstable, 100)));
    create(&mut node, &dns, "dns", 100);
    assert_eq!(runs_on(&node, "dns"), "0-1");
    node.event(Event::Machine(machine_without("0"))).unwrap();
    assert_eq!(runs_on(&node, "dns"), "1");
    node.event(Event::Machine(machine_without("0-1"))).unwrap();
    assert_eq!(runs_on(&node, "dns"), "2-15");
    assert_eq!(node.ledger.places().next().unwrap().bound.to_string(), "2-15");
}

#[test]
fn containers_follow_new_reserved_namespaces_and_keep_exclusive_cpus_until_they_restart() {
    let mut node = Node::new();
    let dns = system(pod("dns", Qos::Burstable, 100));
    let db = system(guaranteed("db", 2000));
    node.create(&dns, "c", "dns", 100).unwrap();
    assert_eq!(node.create(&db, "c", "db", 2000).unwrap(), "2-3");
    node.ledger.take_notes();
    node.event(Event::Settings(reserving(&["kube-system"]))).unwrap();
    node.send_due();
    node.check("dns", "0-1");
    node.check("db", "2-3");
    let notes: Vec<String> = node.ledger.take_notes().iter().map(ToString::to_string).collect();
    let expected = "kube-system/db/c: keeps exclusive CPUs 2-3 until it ends: its pod is for the reserved CPUs now";
    assert_eq!(notes, [expected]);
    node.stop("db");
    assert_eq!(node.create(&db, "c", "db2", 2000).unwrap(), "0-1");
    assert_eq!(node.ledger.claims().count(), 0);
    node.event(Event::Settings(settings())).unwrap();
    node.send_due();
    node.check("dns", "0-1,4-15");
}

#[test]
fn under_strict_reservation_only_their_containers_run_on_the_reserved_cpus() {
    let mut settings = reserving(&["kube-system"]);
    settings.placement.options.strict_cpu_reservation = true;
    let mut node = Node::by(Mechanism::Runtime, settings);
    assert_eq!(node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap(), "2-15");
    let dns = system(pod("dns", Qos::Burstable, 100));
    assert_eq!(node.create(&dns, "c", "dns", 100).unwrap(), "0-1");
}

#[test]
fn policy_none_keeps_no_container_on_the_reserved_cpus() {
    let settings = Settings { policy: Policy::None, ..reserving(&["*"]) };
    let mut node = Node::by(Mechanism::Groups, settings);
    assert_eq!(node.create(&partitioned(guaranteed("a", 2000)), "c", "a", 2000).unwrap(), "");
}

#[test]
fn no_pod_option_refuses_a_container_for_the_reserved_cpus() {
    let mut node = by(Mechanism::Groups);
    for value in ["exclusive", "exclusve"] {
        let annotations = [("cpus.cpu-manager.nri.io", value)].into_iter().collect();
        let pod = Pod { annotations, ..partitioned(pod(value, Qos::Burstable, 2000)) };
        create(&mut node, &pod, value, 2000);
        assert_eq!(runs_on(&node, value), "0-1");
    }
}
