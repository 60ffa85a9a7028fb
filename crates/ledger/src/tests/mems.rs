//! Memory nodes that follow exclusive CPUs, on two NUMA nodes of 8 CPUs; CPUs 0-1 are reserved.

use super::*;
use cpuset::NodeSet;
use machines::synthetic::Machine;

fn node() -> Node {
    let machine = Machine { sockets: 2, cores: 8, ..Machine::default() };
    let settings = Settings { mems_follow_cpus: true, ..settings() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

fn mems(list: &[usize]) -> Option<NodeSet> {
    Some(list.iter().copied().collect())
}

fn create(node: &mut Node, pod: &Pod, container: Container) -> CpuSetting {
    let create = Admission::Create { pod: pod.clone(), container };
    node.event(create).unwrap().unwrap()
}

/// The container's update for a resize to this amount.
fn resize(node: &mut Node, pod: &Pod, id: &str, from: u64, to: u64) -> CpuSetting {
    let amount = Some(MilliCpu(to));
    let cpu = CpuRequest { request: amount, limit: amount };
    let requested =
        RequestedUpdate { cpu, sets_quota: true, cpus: None, ..RequestedUpdate::default() };
    let container = container(pod, "c", id, from);
    let update = Admission::Update { pod: pod.clone(), container, requested };
    let mut updates = admit(&mut node.ledger, update).unwrap().due.updates.into_iter();
    updates.find(|update| &*update.container.0 == id).unwrap().setting
}

#[test]
fn memory_nodes_follow_the_cpus_through_resizes() {
    let mut node = node();
    let a = guaranteed("a", 8000);
    let shared = pod("s", Qos::Burstable, 500);
    let setting = create(&mut node, &shared, container(&shared, "c", "s", 500));
    assert_eq!(setting.mems(), None, "memory nodes of shared containers are not set");
    let setting = create(&mut node, &a, container(&a, "c", "a", 8000));
    assert_eq!((setting.cpus().to_string().as_str(), setting.mems()), ("8-15", mems(&[1])));
    let setting = resize(&mut node, &a, "a", 8000, 10_000);
    assert_eq!((setting.cpus().to_string().as_str(), setting.mems()), ("2-3,8-15", mems(&[0, 1])));
    let setting = resize(&mut node, &a, "a", 10_000, 4000);
    assert_eq!((setting.cpus().to_string().as_str(), setting.mems()), ("8-11", mems(&[1])));
    let setting = resize(&mut node, &a, "a", 4000, 4500);
    assert!(!setting.is_exclusive());
    assert_eq!(setting.mems(), mems(&[0, 1]), "a container that shares again may use all memory");
}

#[test]
fn memory_nodes_set_by_others_are_left_alone() {
    let mut node = node();
    let a = guaranteed("a", 8000);
    let theirs = Container { mems: mems(&[0]), ..container(&a, "c", "a", 8000) };
    assert_eq!(create(&mut node, &a, theirs).mems(), None);
    assert_eq!(resize(&mut node, &a, "a", 8000, 10_000).mems(), None);
}

#[test]
fn adopted_memory_nodes_follow_only_if_they_match_the_cpus() {
    for (set, follows) in [(mems(&[1]), true), (None, true), (mems(&[0]), false)] {
        let mut node = node();
        let a = guaranteed("a", 8000);
        let running =
            Container { cpus: Some(cpus("8-15")), mems: set, ..container(&a, "c", "a", 8000) };
        let pods = vec![a.clone()];
        let containers = vec![running];
        node.event(Event::Synchronize { pods, containers }).unwrap();
        let setting = resize(&mut node, &a, "a", 8000, 10_000);
        let expect = if follows { mems(&[0, 1]) } else { None };
        assert_eq!(setting.mems(), expect, "{set:?}");
    }
}

/// The ledger itself has set all nodes for a container that shares CPUs again. After a restart these
/// are no other program's decision.
#[test]
fn a_container_that_was_released_to_all_nodes_follows_its_next_exclusive_cpus() {
    let mut node = node();
    let a = guaranteed("a", 8000);
    create(&mut node, &a, container(&a, "c", "a", 8000));
    let released = resize(&mut node, &a, "a", 8000, 4500);
    assert_eq!(released.mems(), mems(&[0, 1]));
    let running = Container { mems: released.mems(), ..container(&a, "c", "a", 4500) };
    node.event(Event::Synchronize { pods: vec![a.clone()], containers: vec![running] }).unwrap();
    let setting = resize(&mut node, &a, "a", 4500, 8000);
    assert_eq!((setting.cpus().to_string().as_str(), setting.mems()), ("8-15", mems(&[1])));
}

#[test]
fn memory_nodes_are_set_only_if_configured() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    assert_eq!(create(&mut node, &a, container(&a, "c", "a", 4000)).mems(), None);
}

/// Otherwise a container would stay bound to the nodes that were set before.
#[test]
fn disabling_the_option_releases_memory_nodes_with_the_next_update() {
    let mut node = node();
    let a = guaranteed("a", 4000);
    let setting = create(&mut node, &a, container(&a, "c", "a", 4000));
    assert_eq!(setting.mems(), mems(&[0]));
    node.event(Event::Settings(settings())).unwrap();
    assert_eq!(resize(&mut node, &a, "a", 4000, 5000).mems(), mems(&[0, 1]));
}

/// In both directions, with one update for each container.
#[test]
fn running_containers_follow_a_reload_of_the_option() {
    let on = Settings { mems_follow_cpus: true, ..settings() };
    let mut node = node();
    let a = guaranteed("a", 8000);
    create(&mut node, &a, container(&a, "c", "a", 8000));
    for (settings, nodes) in [(settings(), mems(&[0, 1])), (on, mems(&[1]))] {
        node.event(Event::Settings(settings)).unwrap();
        let updates = deliver(&mut node.ledger, Channel::Runtime);
        let sent: Vec<_> = updates.iter().map(|update| update.setting.mems()).collect();
        assert_eq!(sent, [nodes]);
        assert_eq!(updates[0].setting.cpus().to_string(), "8-15");
        assert_eq!(deliver(&mut node.ledger, Channel::Runtime), []);
    }
}

#[test]
fn running_containers_follow_a_reload_of_the_memory_only_nodes() {
    let machine = Machine { sockets: 2, cores: 8, memory_only: 2, ..Machine::default() };
    let off = Settings { mems_follow_cpus: true, ..settings() };
    let on = Settings { memory_only_nodes: [2, 3].into_iter().collect(), ..off.clone() };
    let ledger = Ledger::new(machine.topology().unwrap(), off.clone(), Vec::new());
    let mut node = Node { ledger, set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(create(&mut node, &a, container(&a, "c", "a", 8000)).mems(), mems(&[1]));
    for (settings, nodes) in [(on, mems(&[1, 2, 3])), (off, mems(&[1]))] {
        node.event(Event::Settings(settings)).unwrap();
        let updates = deliver(&mut node.ledger, Channel::Runtime);
        let sent: Vec<_> = updates.iter().map(|update| update.setting.mems()).collect();
        assert_eq!(sent, [nodes]);
    }
}
