//! The kernel keeps exclusivity: shared containers get no updates unless it refuses.

use super::*;

fn kernel() -> Node {
    Node::by(Mechanism::Partitions, settings())
}

fn placed(node: &Node, id: &str) -> Target {
    node.ledger.target(&ContainerId(id.to_owned())).unwrap()
}

#[test]
fn shared_containers_keep_one_cpuset_for_life() {
    let mut node = kernel();
    let (a, shared) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    node.create(&shared, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "2-5");
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-15");
    node.check("s", "0-15");
    assert_eq!(placed(&node, "s").runs_on.to_string(), "0-1,6-15");
    assert!(placed(&node, "a").is_partition() && !placed(&node, "s").is_partition());
    // One that comes later has the same.
    assert_eq!(node.create(&pod("t", Qos::BestEffort, 0), "c", "t", 0).unwrap(), "0-15");
    node.stop("a");
    node.stop_pod(&a);
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
}

/// A partition goes with its group: all containers may use its CPUs until the container is back.
#[test]
fn the_kernel_keeps_cpus_only_for_what_runs() {
    let mut node = kernel();
    let (a, shared) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    node.create(&shared, "c", "s", 100).unwrap();
    let runs_on = |node: &Node| {
        let seen = node.ledger.view();
        let seen = seen.containers.iter().find(|seen| seen.name == "c" && seen.exclusive.is_none());
        let cpus = placed(node, "s").runs_on;
        assert_eq!(seen.unwrap().runs_on, cpus);
        cpus.to_string()
    };
    let init = Admission::Create { pod: a.clone(), container: container(&a, "init", "init", 4000) };
    node.event(init).unwrap();
    assert_eq!(runs_on(&node), "0-15", "its process does not run yet");
    node.start(&a, "init", "init", 4000);
    assert_eq!(runs_on(&node), "0-1,6-15");
    node.stop("init");
    // It needs less than what its pod holds on to.
    assert_eq!(node.create(&a, "main", "main", 2000).unwrap(), "2-3");
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
    assert_eq!(runs_on(&node), "0-1,4-15");
    node.stop("main");
    node.create(&a, "main", "again", 2000).unwrap();
    node.stop("again");
    // In a pod that fails again and again nothing is lent, and nothing is kept.
    assert_eq!(
        (node.ledger.pool().to_string().as_str(), runs_on(&node).as_str()),
        ("0-1,4-15", "0-15")
    );
    // The pod's other containers get fewer CPUs than the kernel would let them use.
    node.create(&a, "late", "late", 500).unwrap();
    assert_eq!(placed(&node, "late").runs_on.to_string(), "0-1,6-15");
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
}

/// The kernel unmakes a partition when its CPUs are written into a group beside it.
#[test]
fn the_containers_of_a_pod_are_not_in_each_others_way() {
    let mut node = kernel();
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
    // One that is gone may come back as long as the pod lives.
    node.remove("second");
    node.stop("late");
    node.check("early", "0-1,8-15");
}

#[test]
fn what_the_kernel_refuses_groups_keep() {
    let mut node = kernel();
    let (a, b) = (guaranteed("a", 4000), guaranteed("b", 2000));
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&b, "c", "b", 2000).unwrap();
    node.ledger.apply(Event::PartitionRefused(ContainerId("a".to_owned())));
    assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
    // Off the CPUs of a only: b's are the kernel's business.
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
    assert!(!placed(&node, "a").is_partition() && placed(&node, "b").is_partition());
    // The next instance is tried with the kernel again.
    node.stop("a");
    node.create(&a, "c", "a2", 4000).unwrap();
    assert!(placed(&node, "a2").is_partition());
    // Unknown ones change nothing.
    node.ledger.apply(Event::PartitionRefused(ContainerId("nobody".to_owned())));
    node.check("s", "0-15");
}

#[test]
fn without_any_shared_cpus_the_kernel_lets_them_run_on_the_reserved_ones() {
    let mut settings = settings();
    settings.placement.options.strict_cpu_reservation = true;
    let mut node = Node::by(Mechanism::Partitions, settings);
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    node.create(&guaranteed("a", 14_000), "c", "a", 14_000).unwrap();
    node.check("s", "0-15");
    assert_eq!(placed(&node, "s").runs_on.to_string(), "0-1");
}

#[test]
fn a_container_nobody_told_of_is_found_when_it_starts() {
    let mut node = kernel();
    let a = guaranteed("a", 4000);
    let found = Container {
        cpus: Some("8-11".parse().unwrap()),
        cgroup: CgroupPath::new("/kubepods/poda/a"),
        ..container(&a, "c", "a", 4000)
    };
    node.event(Event::Starting { pod: a, container: found }).unwrap();
    let placed = placed(&node, "a");
    assert_eq!((placed.runs_on.to_string().as_str(), placed.is_partition()), ("8-11", true));
    assert_eq!(placed.cgroup.unwrap().as_str(), "kubepods/poda/a");
}

/// As the kubelet lifts it: with any exclusive container, in pods with resources of their own only
/// if all are.
#[test]
fn quotas_of_pods() {
    for (budget, containers, lifts) in [
        (4000, &[4000][..], true),
        (4500, &[4000, 500], true),
        (500, &[500], false),
        // The second one inherits the pod's limit.
        (4000, &[4000, 4000], false),
        (4000, &[2000, 2000], true),
    ] {
        let mut node = kernel();
        let a = guaranteed("a", budget);
        for (index, milli) in containers.iter().enumerate() {
            node.create(&a, &format!("c{index}"), &format!("a{index}"), *milli).unwrap();
        }
        assert_eq!(placed(&node, "a0").lifts_pod_quota, lifts, "{budget} {containers:?}");
        node.stop("a0");
        if let [_, 500] = containers {
            assert!(!placed(&node, "a1").lifts_pod_quota, "nobody is exclusive any more");
        }
    }
}

/// What keeps exclusivity can change with a restart, which moves no container. Shared ones are
/// updated where the runtime keeps them from now on.
#[test]
fn the_way_can_change_with_a_restart() {
    let (a, s) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    let mut before = Node::new();
    before.create(&s, "c", "s", 100).unwrap();
    before.create(&a, "c", "a", 4000).unwrap();
    before.check("s", "0-1,6-15");
    let mut node = kernel();
    node.set = before.set.clone();
    let found = before.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)]);
    node.event(found).unwrap();
    node.check("s", "0-1,6-15");
    node.check("a", "2-5");
    let mut back = Node::new();
    back.set = node.set.clone();
    back.event(node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)])).unwrap();
    back.check("s", "0-1,6-15");
    back.check("a", "2-5");
}

/// Something wrote a quota while the plugin did not run: an update with the same CPUs lifts it.
#[test]
fn a_quota_that_came_back_is_lifted_again() {
    let a = guaranteed("a", 4000);
    for (limit, told) in [(Some(MilliCpu(4000)), 1), (None, 0)] {
        let mut node = Node::new();
        let found = Container {
            cpus: Some("8-11".parse().unwrap()),
            cpu: CpuRequest { request: Some(MilliCpu(4000)), limit },
            ..container(&a, "c", "a", 4000)
        };
        let event = Event::Synchronize { pods: vec![a.clone()], containers: vec![found] };
        let updates = node.ledger.handle(event).unwrap().updates;
        let adjustment = Adjustment::exclusive("8-11".parse().unwrap()).unwrap();
        assert_eq!(updates.len(), told, "{limit:?}");
        assert!(updates.iter().all(|update| update.adjustment == adjustment));
    }
}
