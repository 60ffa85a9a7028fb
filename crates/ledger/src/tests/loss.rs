//! Containers that lose their exclusive CPUs, or all pinning, when the settings or the machine
//! change.

use super::hotplug::machine_without;
use super::pod_options::{allowing, asking};
use super::resize::resize;
use super::*;

/// No pod may ask for exclusive CPUs.
fn forbidding(reserved: &str) -> Settings {
    Settings { namespaces: Namespaces::default(), ..reserving(reserved, Policy::Static) }
}

fn reserving(list: &str, policy: Policy) -> Settings {
    let mut settings = Settings { policy, ..settings() };
    settings.placement.reserved = cpus(list);
    settings
}

/// How many times the log since the last call has the loss of this container's exclusive CPUs.
fn logged_losses(node: &mut Node, id: &str) -> usize {
    let notes = node.ledger.take_notes();
    let losses = notes.iter().filter(|note| matches!(note.what, What::LeftShared(_)));
    losses.filter(|note| note.warning && &*note.subject.id.0 == id).count()
}

#[test]
fn a_container_that_loses_its_exclusive_cpus_is_logged_once() {
    for restart in [false, true] {
        let burstable = asking(pod("a", Qos::Burstable, 2000), &[("cpus", "exclusive")]);
        for (a, then, now) in [
            (guaranteed("a", 2000), settings(), reserving("0-3", Policy::None)),
            (burstable, forbidding("0-1"), forbidding("0-3")),
        ] {
            let mut node =
                Node::with(Settings { namespaces: allowing(&[]).namespaces, ..settings() }, vec![]);
            assert_eq!(node.create(&a, "c", "a", 2000).unwrap(), "2-3");
            node.event(Event::Settings(then)).unwrap();
            assert_eq!(logged_losses(&mut node, "a"), 0);
            let event = node.running(&[(&a, "c", "a", 2000)]);
            if restart {
                node.ledger =
                    Ledger::new(machine(2, 8), now.clone(), node.ledger.claims().collect());
                node.event(event.clone()).unwrap();
            } else {
                node.event(Event::Settings(now)).unwrap();
            }
            assert!(node.ledger.exclusive().is_empty());
            assert_eq!(logged_losses(&mut node, "a"), 1);
            // Only once.
            node.event(event).unwrap();
            assert_eq!(logged_losses(&mut node, "a"), 0);
        }
    }
}

/// A container's update in the next answer.
fn next_update(node: &mut Node, id: &str) -> Option<CpuSetting> {
    let event = Event::Stop(ContainerId("any".into()));
    let updates = report(&mut node.ledger, event);
    updates
        .into_iter()
        .find(|update| &*update.container.0 == id)
        .map(|update| update.setting.clone())
}

/// The CFS quota is lifted while a container has exclusive CPUs, as it could only throttle these.
#[test]
fn a_container_that_shares_again_gets_its_limit_back() {
    let four = Some(MilliCpu(4000));
    let a = guaranteed("a", 4000);
    let rest = guaranteed("rest", 10_000);
    let mut busy = Node::new();
    busy.create(&a, "c", "a", 4000).unwrap();
    busy.create(&rest, "c", "rest", 10_000).unwrap();
    busy.check("a", "2-5");
    let offline = Event::Machine(machine_without("2-5"));
    let reserved = Event::Settings(reserving("0-5", Policy::Static));
    for event in [offline, reserved] {
        let mut node = Node { ledger: busy.ledger.clone(), set: busy.set.clone() };
        node.event(event).unwrap();
        let setting = next_update(&mut node, "a").unwrap();
        assert!(!setting.is_exclusive());
        assert_eq!(setting.limit(), four);
        // The setting has the limit until a resize, with which the kubelet sets a new quota.
        let target = node.ledger.target(&ContainerId("a".into())).unwrap();
        assert_eq!(target.setting, setting);
        resize(&mut node, &a, "c", "a", 4000, 500).unwrap();
        let resized = node.ledger.target(&ContainerId("a".into())).unwrap().setting;
        assert_eq!((resized.is_exclusive(), resized.limit()), (false, None));
    }
    // A list has no limit, because the quota is lifted: the state file has it.
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
        let updates = report(&mut ledger, event);
        let setting = updates
            .iter()
            .find(|update| &*update.container.0 == "a")
            .map(|update| update.setting.clone());
        assert_eq!(setting.map(|setting| setting.limit()), expect);
    }
}

/// A node that changed from policy `static` to `none`, with an exclusive container and a shared
/// one.
fn formerly_static() -> (Node, Pod, Pod) {
    let mut node = Node::new();
    let a = guaranteed("a", 2000);
    let s = pod("s", Qos::Burstable, 100);
    node.create(&s, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 2000).unwrap();
    node.event(Event::Settings(Settings { policy: Policy::None, ..settings() })).unwrap();
    node.check("a", "2-3");
    node.check("s", "0-1,4-15");
    (node, a, s)
}

#[test]
fn a_container_resized_to_shared_under_policy_none_is_unpinned() {
    let (mut node, a, _) = formerly_static();
    resize(&mut node, &a, "c", "a", 2000, 500).unwrap();
    node.check("a", "0-15");
    node.check("s", "0-15");
}

#[test]
fn an_unpinning_that_was_not_sent_stays_due() {
    let (mut node, a, s) = formerly_static();
    let end = Event::StopPod(a.sandbox.clone());
    assert_eq!(report(&mut node.ledger, end), []);
    // The answer to the end of a pod cannot carry updates, so the next answer has them.
    let other = pod("other", Qos::Burstable, 100);
    let creation =
        Admission::Create { pod: other.clone(), container: container(&other, "c", "other", 100) };
    let lost = node.ledger.admit(creation).unwrap();
    assert_eq!(lost.setting(), None, "it was never pinned");
    let due = [Update {
        container: ContainerId("s".into()),
        setting: CpuSetting::shared("0-15".parse().unwrap()).unwrap(),
    }];
    assert_eq!(lost.due.updates, due);
    let stop = Event::Stop(ContainerId("other".into()));
    assert_eq!(report(&mut node.ledger, stop), due);
    node.start(&s, "c", "s", 100);
}
