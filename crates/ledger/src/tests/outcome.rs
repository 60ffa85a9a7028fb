//! The content of decisions and outcomes.

use super::*;

/// The names of what has changed.
fn changed(outcome: Outcome) -> Vec<&'static str> {
    let Outcome { claims, reach, due, freed, adopted, rules, moved } = outcome;
    let all = [
        (claims, "claims"),
        (reach, "reach"),
        (due, "due"),
        (freed, "freed"),
        (adopted, "adopted"),
        (rules, "rules"),
        (moved, "moved"),
    ];
    all.into_iter().filter_map(|(is_changed, name)| is_changed.then_some(name)).collect()
}

#[test]
fn an_outcome_names_what_has_changed() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let s = pod("s", Qos::Burstable, 100);
    let list = Event::Synchronize { pods: Vec::new(), containers: Vec::new() };
    assert_eq!(changed(node.ledger.apply(list)), ["claims", "reach", "adopted"]);
    let create = |pod: &Pod, id: &str, milli| Admission::Create {
        pod: pod.clone(),
        container: container(pod, "c", id, milli),
    };
    assert_eq!(changed(admit(&mut node.ledger, create(&s, "s", 100)).unwrap().outcome), [""; 0]);
    let decision = admit(&mut node.ledger, create(&a, "a", 4000)).unwrap();
    assert_eq!(changed(decision.outcome), ["claims", "reach", "due"]);
    assert_eq!(changed(node.ledger.apply(Event::Time(Duration::from_secs(1)))), [""; 0]);
    let step = Move {
        occasion: Occasion::Departure,
        container: ContainerId("a".into()),
        from: cpus("2-5"),
        to: cpus("8-11"),
        outcome: MoveOutcome::Done,
        why: String::new(),
    };
    let moved = node.ledger.apply(Event::Move(step.clone()));
    assert_eq!(changed(moved), ["claims", "reach", "due", "freed", "moved"]);
    assert_eq!(changed(node.ledger.apply(Event::Move(step))), ["due"]);
    // The CPUs of the stopped container are lent to the pool.
    let stop = Event::Stop(ContainerId("a".into()));
    assert_eq!(changed(node.ledger.apply(stop)), ["reach", "due"]);
    let end = Event::StopPod(a.sandbox);
    assert_eq!(changed(node.ledger.apply(end)), ["claims", "reach", "due", "freed"]);
    assert_eq!(
        changed(node.ledger.apply(Event::Settings(settings()))),
        ["claims", "reach", "due", "rules"]
    );
    let due = node.ledger.due(&Channel::Runtime);
    assert_eq!(changed(node.ledger.apply(Event::Sent(due))), [""; 0]);
}

#[test]
fn the_next_outcome_includes_the_changes_of_a_refused_request() {
    let a = guaranteed("a", 4000);
    let mut node = Node::with(settings(), vec![claim(&a, "a", "2-5")]);
    // The new instance asks for more CPUs than the node has.
    let create = Admission::Create { pod: a.clone(), container: container(&a, "c", "a2", 20_000) };
    node.ledger.admit(create).unwrap_err();
    let outcome = node.ledger.apply(Event::QuietPeriod);
    assert!(outcome.claims, "{:?}", node.ledger.claims().collect::<Vec<_>>());
}

/// Cgroups are written between a decision and its answer. Only then it is known whether they bind
/// the container.
#[test]
fn a_revised_decision_follows_later_events() {
    let mut node = Node::new();
    node.ledger.apply(Event::Mechanism(Mechanism::Groups));
    node.create(&guaranteed("a", 4000), "c", "a", 4000).unwrap();
    let s = pod("s", Qos::Burstable, 100);
    let create = Admission::Create { pod: s.clone(), container: container(&s, "c", "s", 100) };
    let decision = node.ledger.admit(create).unwrap();
    let begins = |decision: &Decision| decision.setting().unwrap().cpus().to_string();
    assert_eq!(begins(&decision), "0-15");
    assert_eq!(node.ledger.revised(decision.clone()), decision);
    node.ledger.apply(Event::Unbound([s.uid.clone()].into()));
    assert_eq!(begins(&node.ledger.revised(decision)), "0-1,6-15");
}

/// The work of a creation grows with the pods of the node, not with their containers.
#[test]
fn shared_containers_of_a_pod_have_their_target_computed_once() {
    let computed = |pods: usize, each: usize, milli: u64| {
        let mut node = Node::new();
        let others: Vec<Pod> =
            (0..pods).map(|p| pod(&format!("s{p}"), Qos::Burstable, 100)).collect();
        let of = |pod: &Pod| {
            let name = |c| format!("{}-{c}", pod.name);
            let one = |c| container(pod, &format!("c{c}"), &name(c), 100);
            (0..each).map(one).collect::<Vec<_>>()
        };
        let containers = others.iter().flat_map(of).collect();
        node.event(Event::Synchronize { pods: others, containers }).unwrap();
        node.send_due();
        due::COMPUTED.set(0);
        let new = guaranteed("new", milli);
        node.ledger.apply(Event::Time(Duration::from_secs(1)));
        node.ledger.apply(Event::RunPod(new.clone()));
        node.ledger.apply(Event::Time(Duration::from_secs(2)));
        node.create(&new, "c", "new", milli).unwrap();
        due::COMPUTED.get()
    };
    for milli in [500, 2000] {
        let (few, many) = (computed(10, 1, milli), computed(10, 60, milli));
        assert_eq!(few, many, "{milli}m, beside 10 containers and 600");
        assert!(few < 10 * 10, "{milli}m: {few} for 11 pods");
    }
}
