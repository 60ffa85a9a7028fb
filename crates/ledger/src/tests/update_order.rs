//! The order of the updates of a decision.

use super::super::books::{AppliedSetting, ContainerEntry};
use super::super::order::{CpuChange, in_order};
use super::super::terms::Terms;
use super::hotplug::machine_without;
use super::resize::resize;
use super::*;
use cpuset::CgroupPath;

fn lines(updates: &[Update]) -> Vec<String> {
    let lines = updates.iter().map(|one| format!("{} {}", one.container, one.setting.cpus()));
    lines.collect()
}

/// Sends what is due on this channel, and returns it as "CONTAINER CPUS".
fn sent(node: &mut Node, channel: Channel) -> Vec<String> {
    lines(&deliver(&mut node.ledger, channel))
}

fn reserving(list: &str) -> Event {
    let mut settings = settings();
    settings.placement.reserved = cpus(list);
    Event::Settings(settings)
}

/// Two exclusive containers on 2-3 and 4-5, and a shared one.
fn busy() -> Node {
    let mut node = Node::new();
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    assert_eq!(node.create(&guaranteed("a", 2000), "c", "a", 2000).unwrap(), "2-3");
    assert_eq!(node.create(&guaranteed("b", 2000), "c", "b", 2000).unwrap(), "4-5");
    node
}

/// Observed on a real cluster: shared containers moved to CPUs 2-3 before the exclusive container
/// had left these.
#[test]
fn a_container_leaves_cpus_before_others_are_moved_onto_them() {
    let mut node = busy();
    node.event(reserving("0-3")).unwrap();
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-1,8-15", "a 6-7"]);
    assert!(node.ledger.waits() && node.ledger.owes());
    let shared = ContainerId("s".into());
    assert_eq!(node.ledger.target(&shared).unwrap().setting.cpus().to_string(), "0-1,8-15");
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-3,8-15"]);
    assert!(!node.ledger.waits() && !node.ledger.owes());
    assert_eq!(node.ledger.target(&shared).unwrap().setting.cpus().to_string(), "0-3,8-15");
}

#[test]
fn cgroup_writes_follow_the_order_of_updates() {
    let mut node = busy();
    node.event(reserving("0-3")).unwrap();
    assert_eq!(sent(&mut node, Channel::Groups), ["s 0-1,8-15", "a 6-7"]);
    assert_eq!(sent(&mut node, Channel::Groups), ["s 0-3,8-15"]);
    assert_eq!(sent(&mut node, Channel::Groups), [""; 0]);
    // The next answer repeats these updates to the runtime.
    assert!(node.ledger.owes());
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-3,8-15", "a 6-7"]);
    assert!(!node.ledger.owes());
}

#[test]
fn a_failed_cgroup_write_is_repeated() {
    let mut node = busy();
    node.event(reserving("0-3")).unwrap();
    let mut writes = node.ledger.due(&Channel::Groups);
    writes.hold_back(|id| &*id.0 == "a");
    node.ledger.apply(Event::Sent(writes));
    assert_eq!(sent(&mut node, Channel::Groups), ["a 6-7", "s 0-3,8-15"]);
}

/// The answer to the resize takes CPU 3 from the container, and the runtime applies this update
/// last.
#[test]
fn cpus_freed_by_a_resize_are_shared_with_the_next_message() {
    let mut node = busy();
    resize(&mut node, &guaranteed("a", 2000), "c", "a", 2000, 1000).unwrap();
    node.check("a", "2");
    node.check("s", "0-1,6-15");
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-1,3,6-15"]);
    resize(&mut node, &guaranteed("a", 2000), "c", "a", 1000, 2000).unwrap();
    node.check("s", "0-1,6-15");
}

/// It is in the same message as the containers that leave these CPUs.
#[test]
fn a_container_that_only_gains_cpus_is_updated_last() {
    let mut strict = settings();
    strict.placement.options.strict_cpu_reservation = true;
    let mut node = Node::with(strict, Vec::new());
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    node.create(&guaranteed("a", 2000), "c", "a", 2000).unwrap();
    node.create(&guaranteed("b", 10_000), "c", "b", 10_000).unwrap();
    node.check("s", "6-7");
    let mut settings = settings();
    settings.placement.reserved = cpus("2-3");
    node.event(Event::Settings(settings)).unwrap();
    assert_eq!(sent(&mut node, Channel::Runtime), ["a 0-1", "s 2-3,6-7"]);
    assert!(!node.ledger.waits());
}

fn setting(list: &str, exclusive: bool) -> CpuSetting {
    let set = cpus(list);
    if exclusive { CpuSetting::exclusive(set).unwrap() } else { CpuSetting::shared(set).unwrap() }
}

/// A container with these CPUs set.
fn entry(id: &str, has: &str, exclusive: bool) -> ContainerEntry {
    let owner = guaranteed(id, 2000);
    let mut applied = AppliedSetting::nothing();
    applied.record(&setting(has, exclusive));
    let container = container(&owner, "c", id, 2000);
    ContainerEntry::new(&container, Mechanism::Runtime, Terms::default(), applied)
}

/// The messages, one per line, that move each container from its first CPUs to its second ones.
fn steps(containers: &[(&str, &str, &str, bool)]) -> Vec<String> {
    let mut entries: Vec<(ContainerEntry, CpuSetting)> = Vec::new();
    for (id, has, to, exclusive) in containers {
        entries.push((entry(id, has, *exclusive), setting(to, *exclusive)));
    }
    let mut messages = Vec::new();
    for _ in 0..4 {
        let moving = entries.iter().filter(|(entry, to)| entry.applied.differs(to));
        let changes = moving.map(|(entry, to)| CpuChange { entry, to: to.clone() }).collect();
        let updates = in_order(changes, None, false).updates;
        for update in &updates {
            let mut all = entries.iter_mut().map(|(entry, _)| entry);
            all.find(|entry| *entry.id() == update.container)
                .unwrap()
                .applied
                .record(&update.setting);
        }
        if !updates.is_empty() {
            messages.push(lines(&updates).join(", "));
        }
    }
    messages
}

#[test]
fn cyclic_moves_are_split_into_steps() {
    // Shared containers and an exclusive one swap their CPUs.
    let ring = [("s", "6-7", "2-3", false), ("t", "6-7", "2-3", false), ("a", "2-3", "6-7", true)];
    assert_eq!(steps(&ring), ["s 6, t 6, a 7", "s 2-3, t 2-3, a 6-7"]);
    let ring = [("a", "2-3", "3-4", true), ("b", "4-5", "5,2", true)];
    assert_eq!(steps(&ring), ["a 3, b 2,5", "a 3-4"]);
    let chain = [("a", "2-3", "4-5", true), ("b", "4-5", "6-7", true), ("s", "6-8", "8", false)];
    assert_eq!(steps(&chain), ["s 8, b 6-7, a 4-5"]);
    // Neither gets a free CPU, but one has a CPU that the other does not get.
    let ring = [("a", "0-2", "4-6", true), ("b", "4-6", "0-1,3", true)];
    assert_eq!(steps(&ring), ["b 3, a 4-6", "b 0-1,3"]);
    let ring = [("a", "0-2", "4-6", true), ("b", "4-6", "0-1", true)];
    assert_eq!(steps(&ring), ["a 2, b 0-1", "a 4-6"]);
    // The shared container has to keep a CPU that `a` gets, until `b` has left some.
    let ring = [("s", "0-3", "4-7", false), ("a", "7", "0", true), ("b", "4-6", "1-3", true)];
    assert_eq!(steps(&ring), ["s 0, b 1-3", "s 4-6, a 0", "s 4-7"]);
    // With one CPU each there is no legal step in between.
    assert_eq!(steps(&[("a", "2", "3", true), ("b", "3", "2", true)]), ["a 3, b 2"]);
}

/// Two containers that swap single CPUs overlap for a moment, but only if no other container leaves
/// CPUs.
#[test]
fn a_swap_without_a_step_in_between_waits_until_no_other_container_leaves_cpus() {
    let swap = [("b", "3", "4", true), ("c", "4", "3", true)];
    let [b, c] = swap;
    assert_eq!(steps(&[("a", "2", "8", true), b, c]), ["a 8", "b 4, c 3"]);
    assert_eq!(steps(&[("s", "0-1", "0", false), b, c]), ["s 0", "b 4, c 3"]);
}

/// As after the kubelet's own CPU manager: `b` and `c` share CPUs that the other one gets, and `a`
/// waits for a CPU of `c`, which does not move `a`.
#[test]
fn a_container_that_shared_cpus_first_leaves_those_that_others_get() {
    let mut a = entry("a", "8", true);
    let b = entry("b", "4-5", false);
    let mut c = entry("c", "0-3,9", false);
    let [to_a, to_b, to_c] = ["8-9", "0-1", "4-5"].map(|list| setting(list, true));
    let changes = vec![
        CpuChange { entry: &a, to: to_a.clone() },
        CpuChange { entry: &b, to: to_b },
        CpuChange { entry: &c, to: to_c.clone() },
    ];
    let first = in_order(changes, None, true);
    assert_eq!(lines(&first.updates), ["a 8", "c 2-3,9", "b 0-1"]);
    assert_eq!(first.waiting, [a.id().clone(), c.id().clone()]);
    a.applied.record(&first.updates[0].setting);
    c.applied.record(&first.updates[1].setting);
    assert!(!c.applied.is_exclusive());
    let changes = vec![CpuChange { entry: &a, to: to_a }, CpuChange { entry: &c, to: to_c }];
    assert_eq!(lines(&in_order(changes, None, true).updates), ["c 4-5", "a 8-9"]);
}

/// Under `groups` a shared container's cpuset includes CPUs of exclusive containers.
#[test]
fn a_container_that_cgroups_bind_delays_no_other_one() {
    let shared = entry("s", "0-9", false);
    let exclusive = entry("a", "10", true);
    let order = |bound, last: Option<&ContainerId>| {
        let to_shared = CpuChange { entry: &shared, to: setting("1-9", false) };
        let to_exclusive = CpuChange { entry: &exclusive, to: setting("0", true) };
        lines(&in_order(vec![to_shared, to_exclusive], last, bound).updates)
    };
    assert_eq!(order(true, None), ["s 1-9", "a 0"]);
    // The runtime makes this one's update last.
    assert_eq!(order(true, Some(shared.id())), ["s 1-9", "a 0"]);
    assert_eq!(order(false, Some(shared.id())), ["s 1-9"]);
    let within = |bound| {
        let to_shared = CpuChange { entry: &shared, to: setting("1-9", false) };
        let to_exclusive = CpuChange { entry: &exclusive, to: setting("5", true) };
        lines(&in_order(vec![to_shared, to_exclusive], None, bound).updates)
    };
    assert_eq!(within(true), ["s 1-9", "a 5"]);
}

#[test]
fn an_exclusive_cpu_that_becomes_shared_is_left_first() {
    let before = CpuSetting::of(Reach { exclusive: cpus("2-3"), shared: cpus("4-5") }).unwrap();
    let after = CpuSetting::of(Reach { exclusive: cpus("2"), shared: cpus("3-5") }).unwrap();
    let mut mixed = entry("m", "2-3", true);
    mixed.applied.record(&before);
    let shared = entry("s", "4-6", false);
    let order = |mixed: &ContainerEntry, bound| {
        let to_shared = CpuChange { entry: &shared, to: setting("3-5", false) };
        let to_mixed = CpuChange { entry: mixed, to: after.clone() };
        lines(&in_order(vec![to_shared, to_mixed], None, bound).updates)
    };
    assert_eq!(order(&mixed, false), ["s 4-5", "m 2-5"]);
    // The kernel takes CPUs from a partition without an update.
    mixed.enforced_by = Mechanism::Partitions;
    assert_eq!(order(&mixed, true), ["s 3-5", "m 2-5"]);
}

/// Found by random histories: a container that waited in an answer to the runtime and then became
/// distrusted waited for ever under `groups`.
#[test]
fn a_container_without_a_change_does_not_wait_under_groups() {
    let mut node = Node::by(Mechanism::Groups, settings());
    let a = Pod { cgroup: CgroupPath::new("kubepods/poda"), ..guaranteed("a", 4500) };
    node.event(Event::RunPod(a.clone())).unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.create(&a, "s", "s", 500).unwrap();
    node.check("s", "0-1,6-15");
    resize(&mut node, &a, "c", "a", 4000, 2000).unwrap();
    assert!(node.ledger.waits(), "for CPUs that the other one leaves last");
    node.event(Event::Distrusted([a.cgroup.clone().unwrap()].into())).unwrap();
    assert_eq!(sent(&mut node, Channel::Groups), [""; 0]);
    assert!(!node.ledger.waits());
}

#[test]
fn the_replacement_of_a_lost_cpu_is_vacated_first() {
    let mut node = busy();
    node.event(Event::Machine(machine_without("3"))).unwrap();
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-1,7-15", "a 2,6"]);
    node.event(Event::Machine(machine_without(""))).unwrap();
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0-1,3,7-15"]);
}

/// Found by random histories: a cpuset cannot be empty, so one of the two has to move first. Both
/// are on CPU 0 until the second message.
#[test]
fn the_last_shared_cpu_and_an_exclusive_one_are_swapped() {
    let mut one = settings();
    one.placement.reserved = cpus("0");
    let mut node =
        Node { ledger: Ledger::new(machine(1, 2), one, Vec::new()), set: BTreeMap::new() };
    node.create(&pod("s", Qos::Burstable, 100), "c", "s", 100).unwrap();
    assert_eq!(node.create(&guaranteed("a", 1000), "c", "a", 1000).unwrap(), "1");
    node.check("s", "0");
    node.event(reserving("1")).unwrap();
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 0", "a 0"]);
    assert!(node.ledger.waits());
    assert_eq!(sent(&mut node, Channel::Runtime), ["s 1"]);
    assert!(!node.ledger.waits() && !node.ledger.owes());
}
