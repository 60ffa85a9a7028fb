//! CPUs go offline and come online.

use super::*;

pub(super) fn machine_without(offline: &str) -> Topology {
    let offline: CpuSet = offline.parse().unwrap();
    let whole = machine(2, 8);
    let cpus = whole.cpus().iter().filter(|cpu| !offline.contains(cpu.id)).copied();
    Topology::build(Facts { cpus: cpus.collect(), ..Facts::default() }).unwrap()
}

/// Makes exactly these CPUs offline, and sends the updates with the next answer.
fn set_offline(node: &mut Node, offline: &str) {
    node.event(Event::Machine(machine_without(offline))).unwrap();
    node.event(Event::Stop(ContainerId("any".into()))).unwrap();
}

fn busy_node() -> (Node, Pod) {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "2-5");
    (node, a)
}

#[test]
fn a_shared_cpu_going_offline_moves_no_exclusive_container() {
    let (mut node, _) = busy_node();
    set_offline(&mut node, "9");
    node.check("a", "2-5");
    node.check("s", "0-1,6-8,10-15");
    assert!(node.ledger.view().figures.moves.is_empty());
    set_offline(&mut node, "");
    node.check("a", "2-5");
    node.check("s", "0-1,6-15");
}

#[test]
fn a_container_that_loses_a_cpu_gets_the_nearest_one_and_keeps_it() {
    let (mut node, _) = busy_node();
    set_offline(&mut node, "3");
    node.check("a", "2,4-6");
    node.check("s", "0-1,7-15");
    assert_eq!(node.ledger.view().figures.moves.get(&MoveReason::Offline), Some(&1));
    set_offline(&mut node, "");
    node.check("a", "2,4-6");
    node.check("s", "0-1,3,7-15");
}

#[test]
fn a_container_without_a_replacement_keeps_the_rest_until_a_cpu_is_free() {
    let (mut node, _) = busy_node();
    let rest = guaranteed("rest", 10_000);
    assert_eq!(node.create(&rest, "c", "rest", 10_000).unwrap(), "6-15");
    set_offline(&mut node, "3-4");
    node.check("a", "2,5");
    node.check("rest", "6-15");
    node.check("s", "0-1");
    // Without a change of the machine, free CPUs are for new containers.
    node.stop("rest");
    node.stop_pod(&rest);
    assert_eq!(node.create(&guaranteed("b", 1000), "c", "b", 1000).unwrap(), "6");
    set_offline(&mut node, "3");
    node.check("a", "2,4-5,7");
    assert_eq!(node.ledger.view().figures.moves.get(&MoveReason::Online), Some(&1));
}

#[test]
fn a_container_that_loses_all_its_cpus_shares_until_some_return() {
    let (mut node, _) = busy_node();
    let rest = guaranteed("rest", 10_000);
    node.create(&rest, "c", "rest", 10_000).unwrap();
    set_offline(&mut node, "2-5");
    node.check("a", "0-1");
    assert_eq!(node.ledger.claims().count(), 1);
    set_offline(&mut node, "3");
    node.check("a", "0-2,4-5");
    set_offline(&mut node, "");
    node.check("a", "2-5");
    assert!(node.ledger.take_notes().iter().any(|note| matches!(note.what, What::LeftShared(_))));
}

/// CPU 0 cannot go offline on most machines, but other CPUs can be reserved.
#[test]
fn a_reservation_that_is_offline_is_replaced_by_another_cpu() {
    let (mut node, _) = busy_node();
    set_offline(&mut node, "0-1");
    node.check("s", "6-15");
    let all = guaranteed("all", 10_000);
    assert!(node.create(&all, "c", "all", 10_000).is_err());
    node.create(&guaranteed("b", 9000), "c", "b", 9000).unwrap();
    node.check("s", "6");
}

/// Found by random histories: the update for the loss was not confirmed when the kubelet's CPU
/// manager became active and stopped.
#[test]
fn a_container_that_lost_a_cpu_keeps_the_others_after_the_kubelets_manager_stops() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let rest = guaranteed("rest", 10_000);
    let creation = container(&a, "c", "a", 4000);
    let setting = node.event(Admission::Create { pod: a.clone(), container: creation }).unwrap();
    assert_eq!(setting.unwrap().cpus(), cpus("2-5"));
    node.create(&rest, "c", "rest", 10_000).unwrap();
    set_offline(&mut node, "5");
    node.start(&a, "c", "a", 4000);
    for stance in [Stance::Observe, Stance::Assign] {
        node.event(Event::Stance { stance, claims: Vec::new() }).unwrap();
    }
    assert!(cpus("2-4").is_subset(&node.ledger.exclusive()));
    node.stop("any");
    node.check("a", "2-4");
}

/// The state file has the CPUs of the predecessor. Until it has the new ones, the daemon may have
/// to refuse the container.
#[test]
fn cpus_that_replace_lost_ones_before_the_answer_are_not_inherited() {
    let (mut node, a) = busy_node();
    node.stop("a");
    let create = Admission::Create { pod: a.clone(), container: container(&a, "c", "b", 4000) };
    let decision = node.ledger.admit(create).unwrap();
    let id = decision.container.clone();
    assert!(!node.ledger.is_newly_exclusive(&id));
    node.ledger.apply(Event::Machine(machine_without("9")));
    assert!(!node.ledger.is_newly_exclusive(&id));
    node.ledger.apply(Event::Machine(machine_without("5")));
    let decision = node.ledger.revised(decision);
    assert_eq!(decision.setting().unwrap().cpus(), "2-4,6".parse().unwrap());
    assert!(node.ledger.is_newly_exclusive(&id));
}
