//! Containers that stay on CPUs which another program has set for them.

use super::*;

/// Creates and starts a container that another program has put on these CPUs.
fn created_on(node: &mut Node, pod: &Pod, id: &str, milli: u64, list: &str, why: LeftAlone) {
    let cpus = Some(cpus(list));
    let container = Container { cpus, left_alone: Some(why), ..container(pod, "c", id, milli) };
    let setting = node.event(Admission::Create { pod: pod.clone(), container }).unwrap();
    assert_eq!(setting, None, "{id} was not left alone");
    node.set.insert(id.to_owned(), cpus_of(list));
    node.start(pod, "c", id, milli);
}

fn cpus_of(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// The node's containers change as without it.
#[test]
fn a_container_that_is_left_alone_holds_back_only_itself() {
    for why in [LeftAlone::Workload, LeftAlone::Unexplained] {
        let mut node = Node::new();
        let shared = pod("s", Qos::Burstable, 100);
        node.create(&shared, "c", "s", 100).unwrap();
        created_on(&mut node, &pod("m", Qos::Burstable, 20), "m", 20, "0-1", why);
        // Another program has pinned it: nobody else gets its CPUs, though it has no claim.
        created_on(&mut node, &guaranteed("g", 2000), "g", 2000, "2-3", why);
        assert!(node.ledger.exclusive().is_empty());
        let a = guaranteed("a", 4000);
        assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "4-7");
        node.check("s", "0-3,8-15");
        node.stop("a");
        node.stop_pod(&a);
        node.send_due();
        node.check("s", "0-15");
        node.check("m", "0-1");
        node.check("g", "2-3");
        assert!(!node.ledger.owes());
        let warnings: Vec<bool> = node
            .ledger
            .take_notes()
            .iter()
            .filter(|note| matches!(note.what, What::LeftAlone { .. }))
            .map(|note| note.warning)
            .collect();
        assert_eq!(warnings, [why == LeftAlone::Unexplained; 2]);
    }
}

#[test]
fn it_stays_alone_through_resizes_lists_and_settings() {
    let mut node = Node::new();
    let m = guaranteed("m", 2000);
    created_on(&mut node, &m, "m", 2000, "0-1", LeftAlone::Reserved);
    let cpu = container(&m, "c", "m", 3000).cpu;
    let requested = RequestedUpdate { cpu, ..RequestedUpdate::default() };
    let resized = container(&m, "c", "m", 2000);
    node.event(Admission::Update { pod: m.clone(), container: resized, requested }).unwrap();
    node.check("m", "0-1");
    // The same process gets another list, which does not say who has set the CPUs.
    node.event(node.running(&[(&m, "c", "m", 3000)])).unwrap();
    node.check("m", "0-1");
    let mut settings = settings();
    settings.placement.reserved = cpus("0-2");
    node.event(Event::Settings(settings)).unwrap();
    node.send_due();
    node.check("m", "0-1");
    // Another program moves it.
    let requested = RequestedUpdate { cpus: Some(cpus("0")), ..RequestedUpdate::default() };
    let left_alone = Some(LeftAlone::Reserved);
    let moved = Container { left_alone, ..container(&m, "c", "m", 3000) };
    node.event(Admission::Update { pod: m.clone(), container: moved, requested }).unwrap();
    assert_eq!(*node.ledger.view().containers[0].runs_on, cpus("0"));
    assert!(node.ledger.exclusive().is_empty());
    // Its next instance is not on CPUs of another program.
    node.stop("m");
    assert_eq!(node.create(&m, "c", "m2", 3000).unwrap(), "3-5");
}

#[test]
fn an_update_that_names_cpus_ends_the_claim_of_a_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a", 4000).unwrap();
    let requested = RequestedUpdate { cpus: Some(cpus("8-11")), ..RequestedUpdate::default() };
    let left_alone = Some(LeftAlone::Unexplained);
    let container = Container { left_alone, ..container(&a, "c", "a", 4000) };
    node.event(Admission::Update { pod: a.clone(), container, requested }).unwrap();
    node.check("a", "2-5");
    assert!(node.ledger.exclusive().is_empty() && !node.ledger.owes());
}

/// The kubelet's manager sets the CPUs of all other containers, so all are taken over when it has stopped.
#[test]
fn after_an_active_kubelet_only_workloads_are_left_alone() {
    let mut node = Node::new();
    let (m, g) = (pod("m", Qos::Burstable, 20), pod("g", Qos::Burstable, 100));
    created_on(&mut node, &m, "m", 20, "0-1", LeftAlone::Workload);
    created_on(&mut node, &g, "g", 100, "4-7", LeftAlone::Unexplained);
    created_on(&mut node, &pod("r", Qos::Burstable, 20), "r", 20, "1", LeftAlone::Reserved);
    node.event(Event::Stance { stance: Stance::Refuse, claims: Vec::new() }).unwrap();
    assert_eq!(node.ledger.left_alone().count(), 1);
    created_on(&mut node, &pod("n", Qos::Burstable, 20), "n", 20, "0", LeftAlone::Workload);
    node.event(Event::Stance { stance: Stance::Assign, claims: Vec::new() }).unwrap();
    node.send_due();
    node.check("m", "0-1");
    node.check("n", "0");
    node.check("g", "0-15");
    node.check("r", "0-15");
}

/// Cgroups above it would take its CPUs away: under strict reservation the pool has none of them.
#[test]
fn cgroups_keep_a_pod_on_its_reserved_cpus() {
    let mut settings = settings();
    settings.placement.options.strict_cpu_reservation = true;
    let mut node = Node::with(settings, Vec::new());
    node.event(Event::Mechanism(Mechanism::Groups)).unwrap();
    let m = pod("m", Qos::Burstable, 20);
    created_on(&mut node, &m, "m", 20, "0", LeftAlone::Workload);
    let bound = |node: &Node| node.ledger.places().map(|place| place.bound).collect::<Vec<_>>();
    assert_eq!(bound(&node), [cpus("0,2-15")]);
    node.stop("m");
    assert_eq!(bound(&node), [cpus("2-15")]);
}

/// A runtime that keeps others off by updates alone narrows it; CPUs without a reserved one are pinned, so they
/// are nobody else's.
#[test]
fn exclusive_cpus_are_exclusive_also_next_to_a_container_that_is_left_alone() {
    let mut node = Node::by(Mechanism::Runtime, settings());
    let (wide, pinned) = (pod("wide", Qos::Burstable, 20), pod("pinned", Qos::Burstable, 20));
    created_on(&mut node, &wide, "wide", 20, "0-15", LeftAlone::Unexplained);
    created_on(&mut node, &pinned, "pinned", 20, "2-3", LeftAlone::Unexplained);
    assert_eq!(node.create(&guaranteed("g", 2000), "c", "g", 2000).unwrap(), "4-5");
    node.send_due();
    node.check("wide", "0-3,6-15");
    node.check("pinned", "2-3");
    assert!(!node.ledger.owes());
}
