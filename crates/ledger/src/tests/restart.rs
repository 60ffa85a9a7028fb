//! Restarts of the plugin and reconnects of the runtime: what the ledger keeps that the runtime's
//! list does not have.

use super::hotplug::machine_without;
use super::resize::resize;
use super::*;

fn claims(node: &Node) -> Vec<String> {
    node.ledger.claims().map(|claim| format!("{} {}", claim.id, claim.cpus)).collect()
}

/// Decisions before the runtime's first list must not drop remembered claims from the state file.
/// Some runtimes never send a list.
#[test]
fn checkpointed_claims_stay_until_the_runtime_lists_its_containers() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let gone = guaranteed("gone", 1000);
    let remembered = vec![claim(&a, "a", "2-5"), claim(&gone, "gone", "6")];
    let mut node = Node::with(settings(), remembered);
    node.event(Event::Settings(settings())).unwrap();
    assert_eq!(claims(&node), ["a 2-5", "gone 6"]);
    // Before the list only a container of the same name gets the remembered CPUs.
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(claims(&node), ["b 8-11", "a 2-5", "gone 6"]);
    let create = Admission::Create { pod: a.clone(), container: container(&a, "c", "a2", 4000) };
    assert!(admit(&mut node.ledger, create).unwrap().outcome.claims);
    assert_eq!(claims(&node), ["a2 2-5", "b 8-11", "gone 6"]);
    // A claim ends with its container.
    node.event(Event::Remove(ContainerId("gone".into()))).unwrap();
    assert_eq!(claims(&node), ["a2 2-5", "b 8-11"]);
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-7,12-15");
}

#[test]
fn an_instance_whose_creation_was_missed_gets_the_cpus_of_its_predecessor() {
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    let mut node = Node::new();
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&guaranteed("first", 2000), "c", "first", 2000).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "4-7");
    node.event(Event::Remove(ContainerId("first".into()))).unwrap();
    node.stop("a");
    node.start(&a, "c", "missed", 4000);
    node.stop("unknown");
    node.check("missed", "4-7");
}

/// A list has the resources with which the pods were created, and no requests of ended containers.
#[test]
fn after_a_list_a_pod_reserves_only_what_it_can_still_request() {
    let a = guaranteed("a", 8000);
    let b = guaranteed("b", 8000);
    let mut node = Node::new();
    node.create(&a, "done", "done", 4000).unwrap();
    node.create(&a, "runs", "runs", 4000).unwrap();
    node.stop("done");
    let event = node.running(&[(&a, "runs", "runs", 4000)]);
    node.event(event).unwrap();
    assert_eq!(node.ledger.free().len(), 6);
    assert!(node.create(&guaranteed("c", 6000), "c", "c", 6000).is_ok());

    let mut node = Node::new();
    node.create(&b, "c", "b", 8000).unwrap();
    resize(&mut node, &b, "c", "b", 8000, 4000).unwrap();
    let event = node.running(&[(&b, "c", "b", 4000)]);
    node.event(event).unwrap();
    assert_eq!(node.ledger.free().len(), 10);
    assert!(node.create(&guaranteed("d", 10_000), "c", "d", 10_000).is_ok());
}

#[test]
fn a_container_keeps_its_other_cpus_when_one_went_offline_during_a_restart() {
    let a = guaranteed("a", 4000);
    for (rest, expect, later) in [(0, "2-4,6", "2-4,6"), (10_000, "2-4", "2-5")] {
        let mut node = Node::new();
        node.create(&a, "c", "a", 4000).unwrap();
        let others = guaranteed("rest", rest);
        let mut listed = vec![(&a, "c", "a", 4000)];
        if rest > 0 {
            node.create(&others, "c", "rest", rest).unwrap();
            listed.push((&others, "c", "rest", rest));
        }
        let event = node.running(&listed);
        let remembered = node.ledger.claims().collect();
        node.ledger = Ledger::new(machine_without("5"), settings(), remembered);
        node.event(event).unwrap();
        node.check("a", expect);
        assert_eq!(node.ledger.view().figures.moves.get(&MoveReason::Offline), Some(&1));
        // Hotplug completes a container that had too few CPUs already at the restart.
        node.event(Event::Machine(machine_without(""))).unwrap();
        node.event(Event::Stop(ContainerId("any".into()))).unwrap();
        node.check("a", later);
    }
}

/// Otherwise shared containers would run on its CPUs until the kernel refuses the partition again.
#[test]
fn a_refused_partition_stays_enforced_by_groups_after_a_reconnect() {
    let mut node = Node::by(Mechanism::Partitions, settings());
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.ledger.apply(Event::PartitionRefused(ContainerId("a".into())));
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
    let event = node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)]);
    node.event(event).unwrap();
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
}

/// CPU shares end at 256 CPUs: only the limit shows a larger request.
#[test]
fn a_resize_beyond_256_cpus_is_read_from_the_limit() {
    let amount = |cpus: u64| Some(MilliCpu(cpus * 1000));
    let before = CpuRequest { request: amount(200), limit: amount(200) };
    let grown = before.changed_by(CpuRequest { request: None, limit: amount(300) });
    assert_eq!(grown.amount(), amount(300));
    let shrunk = grown.changed_by(CpuRequest { request: amount(100), limit: amount(100) });
    assert_eq!(shrunk.amount(), amount(100));
    // Only the quota changes, so the request is unknown.
    assert_eq!(before.changed_by(CpuRequest { request: None, limit: amount(100) }).amount(), None);
}

/// The kubelet's state file keeps entries of ended init containers, though other containers of the
/// pod reuse their CPUs.
#[test]
fn cpus_that_the_kubelet_also_recorded_for_an_init_container_stay_the_app_containers() {
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let mut node = Node::new();
    let claims = [(&a, "init", "9-12"), (&a, "c", "9-12"), (&b, "c", "3-6")]
        .map(|(pod, name, list)| KubeletClaim {
            of: Named::Container(pod.uid.clone(), name.to_owned()),
            cpus: cpus(list),
        })
        .to_vec();
    node.event(Event::Stance { stance: Stance::Assign, claims }).unwrap();
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    node.check("a", "9-12");
    node.check("b", "3-6");
}

#[test]
fn a_restart_adopts_running_containers_and_moves_none() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 6000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&b, "c", "b", 6000).unwrap();
    node.create(&s, "c", "s", 100).unwrap();
    let running = [(&s, "c", "s", 100), (&b, "c", "b", 6000), (&a, "c", "a", 4000)];
    for remembered in [Vec::new(), node.ledger.claims().collect()] {
        let mut next = Node::with(settings(), remembered);
        next.set = node.set.clone();
        next.event(next.running(&running)).unwrap();
        assert_eq!(next.set, node.set);
        assert!(next.ledger.claims().eq(node.ledger.claims()));
    }
}

#[test]
fn a_restart_pins_containers_created_meanwhile_and_drops_claims_of_those_gone() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    let gone = guaranteed("gone", 2000);
    node.create(&gone, "c", "gone", 2000).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.set = node.set.clone();
    next.set.remove("gone");
    next.event(next.running(&[(&b, "c", "b", 4000), (&a, "c", "a", 4000)])).unwrap();
    next.check("a", "4-7");
    next.check("b", "8-11");
    assert_eq!(next.ledger.pool().to_string(), "0-3,12-15");
}

#[test]
fn an_instance_created_during_a_restart_gets_the_cpus_of_its_predecessor() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    node.create(&a, "c", "a1", 4000).unwrap();
    node.create(&b, "c", "b1", 4000).unwrap();
    node.check("b1", "8-11");
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.event(next.running(&[(&b, "c", "b2", 4000)])).unwrap();
    next.check("b2", "8-11");
}

/// Found by repeated SIGKILLs: a container that was created while the plugin was down got the CPUs
/// of one between two instances, which was then refused.
#[test]
fn a_container_between_two_instances_keeps_its_cpus_when_others_are_placed() {
    let mut node = Node::new();
    let a = guaranteed("a", 10_000);
    let b = guaranteed("b", 4000);
    node.create(&a, "c", "a1", 10_000).unwrap();
    node.check("a1", "2-3,8-15");
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    let mut event = next.running(&[(&b, "c", "b", 4000)]);
    let Event::Synchronize { pods, .. } = &mut event else { unreachable!() };
    pods.push(a.clone());
    next.event(event).unwrap();
    next.check("b", "4-7");
    assert_eq!(next.create(&a, "c", "a2", 10_000).unwrap(), "2-3,8-15");
}

#[test]
fn overlapping_exclusive_cpus_are_resolved_by_moving_one_container() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    node.set.insert("a".to_owned(), "4-7".parse().unwrap());
    node.set.insert("b".to_owned(), "6-9".parse().unwrap());
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    node.check("a", "4-7");
    node.check("b", "8-11");
    assert_eq!(node.ledger.take_notes().iter().filter(|note| note.warning).count(), 1);
}

#[test]
fn an_ended_container_keeps_its_cpus_across_a_restart() {
    let mut node = Node::new();
    let a = guaranteed("a", 6000);
    node.create(&a, "one", "1", 2000).unwrap();
    node.create(&a, "two", "2", 4000).unwrap();
    let two = node.set["2"];
    node.stop("2");
    let mut next = Node::with(settings(), node.ledger.claims().collect());
    next.set = node.set.clone();
    next.event(next.running(&[(&a, "one", "1", 2000)])).unwrap();
    assert_eq!(next.create(&a, "two", "2b", 4000).unwrap(), two.to_string());
}

/// While a container starts, containerd may list it as neither created nor running. Observed after
/// a restart of containerd, and while a plugin registers.
#[test]
fn a_container_that_starts_during_the_list_keeps_its_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&a, "c", "1", 4000).unwrap(), "2-5");
    node.event(Event::Synchronize { pods: vec![a.clone()], containers: Vec::new() }).unwrap();
    for _ in 0..3 {
        node.event(Event::QuietPeriod).unwrap();
    }
    assert_eq!(node.ledger.pool().to_string(), "0-15", "lent");
    let own = cpus("2-5");
    let container = Container { cpus: Some(own), ..container(&a, "c", "1", 4000) };
    node.event(Event::Started { pod: a, container }).unwrap();
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-15");
    let due = node.ledger.due(&Channel::Groups).updates;
    assert_eq!(due.iter().map(|update| update.setting.cpus()).collect::<Vec<_>>(), [own]);
}
