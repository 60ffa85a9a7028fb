//! A new life, or a new connection: what is taken along besides what the runtime lists.

use super::hotplug::machine_without;
use super::resize::resize;
use super::*;

fn claims(node: &Node) -> Vec<(String, String)> {
    node.ledger.claims().map(|claim| (claim.id.0, claim.cpus.to_string())).collect()
}

fn pairs(expect: &[(&str, &str)]) -> Vec<(String, String)> {
    expect.iter().map(|(id, cpus)| ((*id).to_owned(), (*cpus).to_owned())).collect()
}

/// Whatever is decided before the runtime's first list, if ever there is one: what was remembered
/// has to be written again.
#[test]
fn what_is_remembered_stays_so_until_the_runtime_tells() {
    let (a, b, gone) = (guaranteed("a", 4000), guaranteed("b", 4000), guaranteed("gone", 1000));
    let remembered = vec![claim(&a, "a", "2-5"), claim(&gone, "gone", "6")];
    let mut node = Node::with(settings(), remembered);
    node.event(Event::Settings(settings())).unwrap();
    assert_eq!(claims(&node), pairs(&[("a", "2-5"), ("gone", "6")]));
    // A runtime that never lists what it runs: only their own name gets them,
    assert_eq!(node.create(&b, "c", "b", 4000).unwrap(), "8-11");
    assert_eq!(claims(&node), pairs(&[("b", "8-11"), ("a", "2-5"), ("gone", "6")]));
    let revision = node.ledger.revision();
    assert_eq!(node.create(&a, "c", "a2", 4000).unwrap(), "2-5");
    assert_eq!(claims(&node), pairs(&[("a2", "2-5"), ("b", "8-11"), ("gone", "6")]));
    assert_ne!(node.ledger.revision(), revision);
    // and with their container they are gone.
    node.event(Event::Remove(ContainerId("gone".to_owned()))).unwrap();
    assert_eq!(claims(&node), pairs(&[("a2", "2-5"), ("b", "8-11")]));
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-7,12-15");
}

#[test]
fn an_instance_whose_creation_was_missed_has_its_names_cpus() {
    let (a, s) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    let mut node = Node::new();
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&guaranteed("first", 2000), "c", "first", 2000).unwrap();
    assert_eq!(node.create(&a, "c", "a", 4000).unwrap(), "4-7");
    node.event(Event::Remove(ContainerId("first".to_owned()))).unwrap();
    node.stop("a");
    node.start(&a, "c", "missed", 4000);
    node.stop("unknown");
    node.check("missed", "4-7");
}

/// A list tells what pods were created with, and nothing of what ended containers of them asked
/// for.
#[test]
fn a_pod_promises_itself_no_more_than_it_may_still_ask_for() {
    let (a, b) = (guaranteed("a", 8000), guaranteed("b", 8000));
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
fn cpus_that_went_offline_while_nobody_looked_cost_the_others_nothing() {
    let a = guaranteed("a", 4000);
    for (rest, expect, later) in [(0, "2-4,6", "2-4,6"), (10_000, "2-4", "2-5")] {
        let mut node = Node::new();
        node.create(&a, "c", "a", 4000).unwrap();
        let others = guaranteed("rest", rest);
        if rest > 0 {
            node.create(&others, "c", "rest", rest).unwrap();
        }
        let mut listed = vec![(&a, "c", "a", 4000)];
        listed.extend((rest > 0).then_some((&others, "c", "rest", rest)));
        let event = node.running(&listed);
        let remembered = node.ledger.claims().collect();
        node.ledger = Ledger::new(machine_without("5"), settings(), remembered);
        node.event(event).unwrap();
        node.check("a", expect);
        assert_eq!(node.ledger.view().moves.get(&MoveReason::Offline), Some(&1));
        // One that has fewer than it asks for is completed, also if that was noticed only at a
        // start.
        node.event(Event::Machine(machine_without(""))).unwrap();
        node.event(Event::Stop(ContainerId("any".to_owned()))).unwrap();
        node.check("a", later);
    }
}

/// Shared containers would be let onto its CPUs until the kernel has refused it once more.
#[test]
fn whom_the_kernel_refused_is_kept_by_groups_after_a_new_connection() {
    let mut node = Node::by(Mechanism::Partitions, settings());
    let (a, s) = (guaranteed("a", 4000), pod("s", Qos::Burstable, 100));
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.ledger.apply(Event::PartitionRefused(ContainerId("a".to_owned())));
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
    let event = node.running(&[(&s, "c", "s", 100), (&a, "c", "a", 4000)]);
    node.event(event).unwrap();
    assert_eq!(node.ledger.bound().to_string(), "0-1,6-15");
}

/// Shares end at 256 CPUs: only the limit shows a larger request.
#[test]
fn a_growth_beyond_what_shares_can_tell() {
    let amount = |cpus: u64| Some(MilliCpu(cpus * 1000));
    let before = CpuRequest { request: amount(200), limit: amount(200) };
    let grown = before.changed_by(CpuRequest { request: None, limit: amount(300) });
    assert_eq!(grown.amount(), amount(300));
    let shrunk = grown.changed_by(CpuRequest { request: amount(100), limit: amount(100) });
    assert_eq!(shrunk.amount(), amount(100));
    // Only the quota changes, so the request is unknown.
    assert_eq!(before.changed_by(CpuRequest { request: None, limit: amount(100) }).amount(), None);
}

/// The kubelet keeps its notes of init containers that have ended, whose CPUs the pod's other
/// containers use again.
#[test]
fn what_the_kubelet_noted_for_an_init_container_too_is_still_the_containers() {
    let (a, b) = (guaranteed("a", 4000), guaranteed("b", 4000));
    let of = |pod: &Pod, name: &str| Named::Container(pod.uid.clone(), name.to_owned());
    let note = |of, list| KubeletClaim { of, cpus: cpus(list) };
    let mut node = Node::new();
    let claims =
        vec![note(of(&a, "init"), "9-12"), note(of(&a, "c"), "9-12"), note(of(&b, "c"), "3-6")];
    node.event(Event::Kubelet { stance: Stance::Assign, claims }).unwrap();
    node.event(node.running(&[(&a, "c", "a", 4000), (&b, "c", "b", 4000)])).unwrap();
    node.check("a", "9-12");
    node.check("b", "3-6");
}
