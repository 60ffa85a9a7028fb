//! Containers that lose the exclusive CPUs they have, and run on shared ones.

use super::hotplug::machine_without;
use super::resize::resize;
use super::wishes::{allowing, wishing};
use super::*;

fn reserving(list: &str, policy: Policy) -> Settings {
    let mut settings = Settings { policy, ..settings() };
    settings.placement.reserved = cpus(list);
    settings
}

fn told_of(node: &mut Node, id: &str) -> usize {
    let notes = node.ledger.take_notes().into_iter();
    let left = |note: &Note| note.warning && matches!(note.what, What::LeftShared(_));
    notes.filter(|note| note.subject.id.0 == id && left(note)).count()
}

#[test]
fn everybody_who_loses_its_cpus_is_told_of() {
    for again in [false, true] {
        let burstable = wishing(pod("a", Qos::Burstable, 2000), &[("cpus", "exclusive")]);
        let forbidden = |reserved| Settings {
            namespaces: Namespaces::default(),
            ..reserving(reserved, Policy::Static)
        };
        for (a, then, now) in [
            (guaranteed("a", 2000), settings(), reserving("0-3", Policy::None)),
            (burstable, forbidden("0-1"), forbidden("0-3")),
        ] {
            let mut node =
                Node::with(Settings { namespaces: allowing(&[]).namespaces, ..settings() }, vec![]);
            assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
            node.event(Event::Settings(then)).unwrap();
            assert_eq!(told_of(&mut node, "a"), 0);
            let event = node.running(&[(&a, "c", "a", 2000)]);
            if again {
                node.ledger =
                    Ledger::new(machine(2, 8), now.clone(), node.ledger.claims().collect());
                node.event(event.clone()).unwrap();
            } else {
                node.event(Event::Settings(now)).unwrap();
            }
            assert!(node.ledger.exclusive().is_empty());
            assert_eq!(told_of(&mut node, "a"), 1);
            // Only once.
            node.event(event).unwrap();
            assert_eq!(told_of(&mut node, "a"), 0);
        }
    }
}

/// What the next answer tells a container.
fn told(node: &mut Node, id: &str) -> Option<Adjustment> {
    let event = Event::Stop(ContainerId("any".to_owned()));
    let updates = node.ledger.handle(event).unwrap().updates;
    updates.into_iter().find(|update| update.container.0 == id).map(|update| update.adjustment)
}

/// The CFS quota was lifted because it could only harm.
#[test]
fn who_shares_again_has_its_limit_again() {
    let four = Some(MilliCpu(4000));
    let (a, rest) = (guaranteed("a", 4000), guaranteed("rest", 10_000));
    let mut busy = Node::new();
    busy.create(&a, "c", "a", 4000).unwrap();
    busy.create(&rest, "c", "rest", 10_000).unwrap();
    busy.check("a", "2-5");
    let offline = Event::Machine(machine_without("2-5"));
    let reserved = Event::Settings(reserving("0-5", Policy::Static));
    for event in [offline, reserved] {
        let mut node = Node { ledger: busy.ledger.clone(), set: busy.set.clone() };
        node.event(event).unwrap();
        let adjustment = told(&mut node, "a").unwrap();
        assert!(!adjustment.is_exclusive());
        assert_eq!(adjustment.limit(), four);
        // As long as it shares. The kubelet sets a new one itself.
        let placed = |node: &Node| {
            let adjustment = node.ledger.target(&ContainerId("a".to_owned())).unwrap().adjustment;
            (adjustment.is_exclusive(), adjustment.limit())
        };
        assert_eq!(placed(&node), (false, four));
        resize(&mut node, &a, "c", "a", 4000, 500).unwrap();
        assert_eq!(placed(&node), (false, None));
    }
    // A plugin that starts anew is listed no quota, as it is lifted, and knows the limit by its
    // checkpoint.
    let Event::Synchronize { pods, mut containers } =
        busy.running(&[(&a, "c", "a", 4000), (&rest, "c", "rest", 10_000)])
    else {
        unreachable!()
    };
    containers.iter_mut().for_each(|container| container.cpu.limit = None);
    for (reserved, expect) in [("0-5", Some(four)), ("0-1", None)] {
        let settings = reserving(reserved, Policy::Static);
        let mut ledger = Ledger::new(machine(2, 8), settings, busy.ledger.claims().collect());
        let event = Event::Synchronize { pods: pods.clone(), containers: containers.clone() };
        let updates = ledger.handle(event).unwrap().updates;
        let adjustment =
            updates.iter().find(|update| update.container.0 == "a").map(|update| update.adjustment);
        assert_eq!(adjustment.map(|adjustment| adjustment.limit()), expect);
    }
}
