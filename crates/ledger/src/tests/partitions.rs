//! Exclusivity by cpuset partitions: only the siblings of a partition get updates.

use super::*;
use cpuset::CgroupPath;

fn partitions() -> Node {
    Node::by(Mechanism::Partitions, settings())
}

fn target(node: &Node, id: &str) -> Target {
    node.ledger.target(&ContainerId(id.into())).unwrap()
}

#[test]
fn shared_containers_keep_one_cpuset_for_life() {
    let mut node = partitions();
    let a = guaranteed("a", 4000);
    let shared = pod("s", Qos::Burstable, 100);
    node.create(&shared, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "2-5");
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-15");
    node.check("s", "0-15");
    assert_eq!(target(&node, "s").runs_on.to_string(), "0-1,6-15");
    assert!(target(&node, "a").is_partition() && !target(&node, "s").is_partition());
    // A later container gets the same set.
    assert_eq!(node.create(&pod("t", Qos::BestEffort, 0), "c", "t", 0).unwrap(), "0-15");
    node.stop("a");
    node.stop_pod(&a);
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
}

/// The kernel invalidates a partition if a sibling cgroup names its CPUs.
#[test]
fn shared_containers_are_updated_off_the_partitions_of_their_own_pod() {
    let mut node = partitions();
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    let a = guaranteed("a", 7000);
    assert_eq!(node.create(&a, "early", "early", 500).unwrap(), "0-15");
    assert_eq!(node.create(&a, "main", "main", 4000).unwrap(), "2-5");
    node.check("early", "0-1,6-15");
    assert_eq!(node.create(&a, "late", "late", 500).unwrap(), "0-1,6-15");
    assert_eq!(node.create(&a, "second", "second", 2000).unwrap(), "6-7");
    node.check("early", "0-1,8-15");
    node.check("late", "0-1,8-15");
    node.check("s", "0-15");
    // The kubelet may create a removed container again as long as its pod lives.
    node.remove("second");
    node.stop("late");
    node.check("early", "0-1,8-15");
}

#[test]
fn a_refused_partition_is_enforced_by_groups() {
    let mut node = partitions();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 2000);
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&b, "c", "b", 2000).unwrap();
    node.ledger.apply(Event::PartitionRefused(ContainerId("a".into())));
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
    // Groups keep others off in any case: b still has its partition.
    assert_eq!(node.ledger.bound().to_string(), "0-1,8-15");
    assert!(!target(&node, "a").is_partition() && target(&node, "b").is_partition());
    // The next instance gets a partition again.
    node.stop("a");
    node.create(&a, "c", "a2", 4000).unwrap();
    assert!(target(&node, "a2").is_partition());
    // A refusal for an unknown container changes nothing.
    node.ledger.apply(Event::PartitionRefused(ContainerId("unknown".into())));
    node.check("s", "0-15");
}

#[test]
fn shared_containers_run_on_reserved_cpus_when_the_pool_is_empty() {
    let mut settings = settings();
    settings.placement.options.strict_cpu_reservation = true;
    let mut node = Node::by(Mechanism::Partitions, settings);
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    node.create(&guaranteed("a", 14_000), "c", "a", 14_000).unwrap();
    node.check("s", "0-15");
    assert_eq!(target(&node, "s").runs_on.to_string(), "0-1");
}

#[test]
fn an_unknown_container_is_adopted_when_it_starts() {
    let mut node = partitions();
    let a = guaranteed("a", 4000);
    let unknown = Container {
        cpus: Some(cpus("8-11")),
        cgroup: CgroupPath::new("/kubepods/poda/a"),
        ..container(&a, "c", "a", 4000)
    };
    node.event(Event::Starting { pod: a, container: unknown }).unwrap();
    let target = target(&node, "a");
    assert_eq!((target.runs_on.to_string().as_str(), target.is_partition()), ("8-11", true));
    assert_eq!(target.cgroup.unwrap().as_str(), "kubepods/poda/a");
}

/// The kubelet lifts it if any container is exclusive, and with pod-level resources only if all
/// are.
#[test]
fn a_pods_quota_is_lifted_as_the_kubelet_lifts_it() {
    for (budget, containers, lifts) in [
        (4000, &[4000][..], true),
        (4500, &[4000, 500], true),
        (500, &[500], false),
        // Both inherit the pod's limit, so they share.
        (4000, &[4000, 4000], false),
        (4000, &[2000, 2000], true),
    ] {
        let mut node = partitions();
        let a = guaranteed("a", budget);
        for (index, milli) in containers.iter().enumerate() {
            node.create(&a, &format!("c{index}"), &format!("a{index}"), *milli).unwrap();
        }
        assert_eq!(target(&node, "a0").lifts_pod_quota, lifts, "{budget} {containers:?}");
        node.stop("a0");
        if let [_, 500] = containers {
            assert!(!target(&node, "a1").lifts_pod_quota, "no container is exclusive any more");
        }
    }
}

/// The mechanism can change with a restart. Shared containers are updated if exclusivity depends on
/// the runtime from then on.
#[test]
fn a_restart_with_another_mechanism_moves_no_container() {
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    let mut before = Node::new();
    before.create(&s, "c", "s", 100).unwrap();
    before.create(&a, "c", "a", 4000).unwrap();
    before.check("s", "0-1,6-15");
    let mut node = partitions();
    node.set = before.set.clone();
    node.event(before.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)])).unwrap();
    node.check("s", "0-1,6-15");
    node.check("a", "2-5");
    let mut back = Node::new();
    back.set = node.set.clone();
    back.event(node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)])).unwrap();
    back.check("s", "0-1,6-15");
    back.check("a", "2-5");
}

/// Another program wrote a quota while the plugin was down: an update with the same CPUs lifts it.
#[test]
fn a_quota_that_came_back_is_lifted_again() {
    let a = guaranteed("a", 4000);
    for (limit, updated) in [(Some(MilliCpu(4000)), 1), (None, 0)] {
        let mut node = Node::new();
        let running = Container {
            cpus: Some(cpus("8-11")),
            cpu: CpuRequest { request: Some(MilliCpu(4000)), limit },
            ..container(&a, "c", "a", 4000)
        };
        let event = Event::Synchronize { pods: vec![a.clone()], containers: vec![running] };
        let updates = report(&mut node.ledger, event);
        let setting = CpuSetting::exclusive(cpus("8-11")).unwrap();
        assert_eq!(updates.len(), updated, "{limit:?}");
        assert!(updates.iter().all(|update| update.setting == setting));
    }
}
