//! Topology manager: scopes, devices, and CPUs that a pod reuses.

use super::pod_options::{allowing, asking};
use super::*;
use cpuset::NodeSet;
use machines::synthetic::Machine;
use placement::{Scope, TopologyPolicy};
use topology::model::NodeFacts;
use topology::{Cpu, Facts};

/// `single-numa-node` on two NUMA nodes of eight CPUs, CPUs 0-1 reserved.
fn single_numa_node(scope: Scope, remembered: Vec<Claim>) -> Ledger {
    let mut settings = settings();
    let policy = TopologyPolicy::SingleNumaNode;
    settings.placement.topology_manager =
        TopologyManager { policy, scope, ..TopologyManager::default() };
    let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
    Ledger::new(machine.topology().unwrap(), settings, remembered)
}

#[test]
fn a_restart_keeps_a_pods_numa_node() {
    let mut node = Node { ledger: single_numa_node(Scope::Pod, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 4000);
    let gone = guaranteed("gone", 4000);
    assert_eq!(node.create(&gone, "c", "g", 4000).unwrap(), "2-5");
    assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "8-9");
    node.ledger = single_numa_node(Scope::Pod, node.ledger.claims().collect());
    node.event(node.running(&[(&a, "one", "1", 2000)])).unwrap();
    // Node 0 has enough free CPUs for the whole pod again.
    assert_eq!(node.create(&a, "two", "2", 2000).unwrap(), "10-11");
}

#[test]
fn misaligned_cpus_of_ended_containers_do_not_block_their_pod() {
    let mut node =
        Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 12_000);
    for (name, expect) in [("one", "2-7"), ("two", "8-13")] {
        assert_eq!(node.create(&a, name, name, 6000).unwrap(), expect);
        node.stop(name);
    }
    // The pod holds six CPUs of each node, and its budget is used up.
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");

    let mut node =
        Node { ledger: single_numa_node(Scope::Container, Vec::new()), set: BTreeMap::new() };
    let a = guaranteed("a", 8000);
    assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
    node.stop("i");
    assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");
}

/// Two NUMA nodes of 8 CPUs, CPUs 0-1 reserved.
fn node_with_devices(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 8, ..Machine::default() };
    let mut settings = settings();
    settings.placement.topology_manager.policy = policy;
    Node {
        ledger: Ledger::new(machine.topology().unwrap(), settings, Vec::new()),
        set: BTreeMap::new(),
    }
}

fn device(at: usize, source: DeviceSource) -> Device {
    Device { name: format!("device at {at}").into(), nodes: NodeSet::of(at), source }
}

fn create_with_devices(
    node: &mut Node,
    name: &str,
    milli: u64,
    on: &[usize],
) -> Result<String, String> {
    let pod = guaranteed(name, milli);
    let devices = on.iter().map(|&at| device(at, DeviceSource::Sysfs)).collect();
    let container = Container { devices, ..container(&pod, "c", name, milli) };
    let setting = node.event(Admission::Create { pod, container })?;
    Ok(setting.unwrap().cpus().to_string())
}

#[test]
fn cpus_are_on_the_numa_nodes_of_devices() {
    let mut restricted = node_with_devices(TopologyPolicy::Restricted);
    assert_eq!(create_with_devices(&mut restricted, "a", 6000, &[0]).unwrap(), "2-7");
    assert_eq!(create_with_devices(&mut restricted, "b", 2000, &[1]).unwrap(), "8-9");
    let refused = create_with_devices(&mut restricted, "d", 2000, &[0]).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(create_with_devices(&mut restricted, "d", 2000, &[]).unwrap(), "10-11");
    let mut best_effort = node_with_devices(TopologyPolicy::BestEffort);
    assert_eq!(create_with_devices(&mut best_effort, "a", 2000, &[0]).unwrap(), "2-3");
    assert_eq!(create_with_devices(&mut best_effort, "b", 4000, &[0]).unwrap(), "4-7");
    assert_eq!(create_with_devices(&mut best_effort, "d", 2000, &[0]).unwrap(), "8-9");
    let mut none = node_with_devices(TopologyPolicy::None);
    assert_eq!(create_with_devices(&mut none, "a", 2000, &[1]).unwrap(), "2-3");
}

/// Creates a container with device files on these nodes, after the kubelet has reported the devices
/// that it has given to that container.
fn create_with_given(
    node: &mut Node,
    name: &str,
    files: &[usize],
    given: &[usize],
    has_claims: bool,
) -> Result<String, String> {
    let pod = guaranteed(name, 2000);
    node.ledger.apply(Event::RunPod(pod.clone()));
    let device = |&at: &usize| Device {
        // 9 stands for a device whose plugin names no node.
        nodes: if at == 9 { NodeSet::EMPTY } else { NodeSet::of(at) },
        ..device(at, DeviceSource::Kubelet)
    };
    let devices = given.iter().map(device).collect();
    let given = GivenDevices { devices, has_claims, ..GivenDevices::default() };
    node.ledger.apply(Event::Devices(vec![PodDevices {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        containers: BTreeMap::from([("c".to_owned(), given)]),
    }]));
    create_with_devices(node, name, 2000, files)
}

#[test]
fn the_kubelets_report_of_devices_has_precedence_over_device_files() {
    let on = |files: &[usize], given: &[usize], has_claims| {
        let mut node = node_with_devices(TopologyPolicy::BestEffort);
        create_with_given(&mut node, "a", files, given, has_claims).unwrap()
    };
    assert_eq!(on(&[], &[1], false), "8-9");
    assert_eq!(on(&[0], &[1], false), "8-9");
    // The kubelet has no nodes of claimed devices, or not of all other ones: files count as well.
    assert_eq!(on(&[0, 0], &[1], true), "2-3");
    assert_eq!(on(&[1], &[], true), "8-9");
    assert_eq!(on(&[1], &[9], false), "8-9");
    assert_eq!(on(&[1], &[], false), "8-9");
}

#[test]
fn a_late_report_of_devices_is_recorded_and_moves_no_container() {
    let mut node = node_with_devices(TopologyPolicy::Restricted);
    assert_eq!(create_with_devices(&mut node, "a", 2000, &[]).unwrap(), "2-3");
    let claims = node.ledger.claims().collect::<Vec<_>>();
    let containers = BTreeMap::from([(
        "c".to_owned(),
        GivenDevices { devices: vec![device(1, DeviceSource::Kubelet)], ..GivenDevices::default() },
    )]);
    let pod = guaranteed("a", 2000);
    let devices = PodDevices { namespace: pod.namespace, name: pod.name, containers };
    node.ledger.apply(Event::Devices(vec![devices]));
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), claims, "no container moves for it");
    let view = node.ledger.view();
    let names: Vec<&str> = view.containers[0].devices.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["device at 1"]);
}

#[test]
fn devices_on_gpu_memory_count_for_the_nearest_cpus_and_memory_follows_these() {
    // Two nodes with CPUs, and a third one with the memory of a GPU, which is nearer to the second.
    let distances = [[10, 40, 120], [40, 10, 80], [120, 80, 10]];
    let nodes = distances.iter().enumerate().map(|(id, row)| NodeFacts {
        id,
        distances: row.to_vec(),
        memoryless: false,
    });
    let cpu = |id| Cpu {
        id,
        core: id,
        uncore: id / 4,
        numa: id / 4,
        socket: id / 4,
        die: None,
        kind: None,
    };
    let facts =
        Facts { cpus: (0..8).map(cpu).collect(), nodes: nodes.collect(), ..Facts::default() };
    let mut settings = settings();
    settings.placement.topology_manager.policy = TopologyPolicy::SingleNumaNode;
    settings.mems_follow_cpus = true;
    let ledger = Ledger::new(Topology::build(facts).unwrap(), settings, Vec::new());
    let mut node = Node { ledger, set: BTreeMap::new() };
    assert_eq!(create_with_devices(&mut node, "a", 2000, &[2]).unwrap(), "4-5");
    let pod = guaranteed("b", 2000);
    let devices = vec![device(2, DeviceSource::Driver)];
    let container = Container { devices, ..container(&pod, "c2", "b", 2000) };
    let setting = node.event(Admission::Create { pod, container }).unwrap().unwrap();
    assert_eq!(setting.cpus().to_string(), "6-7");
    assert_eq!(setting.mems().map(|mems| mems.to_string()).as_deref(), Some("1"));
    let refused = create_with_devices(&mut node, "d", 2000, &[2]).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
}

/// Pod scope on two NUMA nodes of 8 CPUs in cores of two, siblings adjacent; core 0 is reserved.
fn node_with_pod_scope(policy: TopologyPolicy) -> Node {
    let machine = Machine { sockets: 2, cores: 4, threads: 2, ..Machine::default() };
    let mut settings = allowing(&[]);
    settings.placement.topology_manager =
        TopologyManager { policy, scope: Scope::Pod, ..TopologyManager::default() };
    let ledger = Ledger::new(machine.topology().unwrap(), settings, Vec::new());
    Node { ledger, set: BTreeMap::new() }
}

/// Creates a container of a Burstable pod, with the limit of the pod.
fn create_burstable(
    node: &mut Node,
    pod: &Pod,
    name: &str,
    request: u64,
) -> Result<String, String> {
    let cpu = CpuRequest { request: Some(MilliCpu(request)), limit: pod.budget };
    let container = Container { cpu, ..container(pod, name, name, 0) };
    let setting = node.event(Admission::Create { pod: pod.clone(), container })?;
    Ok(setting.unwrap().cpus().to_string())
}

#[test]
fn a_burstable_pods_limit_is_not_counted_as_demand() {
    let mut node = node_with_pod_scope(TopologyPolicy::SingleNumaNode);
    let a = asking(pod("a", Qos::Burstable, 16_000), &[("cpus", "exclusive")]);
    assert_eq!(create_burstable(&mut node, &a, "one", 4000).unwrap(), "2-5");
    // The pod's other containers must fit on the same node.
    let refused = create_burstable(&mut node, &a, "two", 4000).unwrap_err();
    assert!(refused.starts_with("TopologyAffinityError"), "{refused}");
    assert_eq!(create_burstable(&mut node, &a, "three", 2000).unwrap(), "6-7");
}

#[test]
fn a_container_with_its_own_alignment_is_excluded_from_its_pods_affinity() {
    for pod_option in ["smt", "numa"] {
        for order in [["a", "b"], ["b", "a"]] {
            let mut node = node_with_pod_scope(TopologyPolicy::Restricted);
            let value = if pod_option == "smt" { "isolate" } else { "single" };
            let name = format!("{pod_option}.cpu-manager.nri.io/container.a");
            let annotations = [(name, value)].into_iter().collect();
            let pod = Pod { annotations, ..guaranteed("p", 7000) };
            for name in order {
                let milli = if name == "a" { 3000 } else { 4000 };
                let created = node.create(&pod, name, name, milli);
                assert!(created.is_ok(), "{pod_option}, {order:?}: {name} is refused: {created:?}");
            }
        }
    }
}

#[test]
fn too_many_devices_refuse_only_who_gets_cpus_near_them() {
    let too_many = |pod: &Pod, id: &str, milli| Container {
        too_many_devices: true,
        ..container(pod, id, id, milli)
    };
    let noted = |node: &mut Node| {
        let notes = node.ledger.take_notes().into_iter();
        let noted = notes.filter(|note| note.warning && matches!(note.what, What::TooMany(_)));
        noted.map(|note| note.to_string()).collect::<Vec<_>>()
    };
    let mut node = node_with_devices(TopologyPolicy::BestEffort);
    let (a, b) = (guaranteed("a", 2000), guaranteed("b", 500));
    let create = |node: &mut Node, pod: &Pod, container| {
        node.event(Admission::Create { pod: pod.clone(), container })
    };
    let why = create(&mut node, &a, too_many(&a, "a1", 2000)).unwrap_err();
    assert_eq!(
        why,
        "TopologyAffinityError: the container has too many devices: more than 64 device files, or GPUs in \
         NVIDIA_VISIBLE_DEVICES; its NUMA affinity depends on them. Name fewer, or set NVIDIA_VISIBLE_DEVICES to \
         all or void"
    );
    assert_eq!(noted(&mut node), [""; 0], "the refusal is in the log");
    for id in ["b1", "b2"] {
        assert!(create(&mut node, &b, too_many(&b, id, 500)).is_ok(), "it shares CPUs");
    }
    let note = "default/b/b1: too many devices: none counts for its NUMA affinity, as the container has more than 64";
    assert_eq!(noted(&mut node), [note], "once a pod");
    for _ in 0..2 {
        let list = Event::Synchronize {
            pods: vec![b.clone()],
            containers: vec![too_many(&b, "b1", 500), too_many(&b, "b2", 500)],
        };
        node.event(list).unwrap();
        assert_eq!(noted(&mut node), [""; 0]);
    }
    // Without a topology manager no device counts.
    let mut node = node_with_devices(TopologyPolicy::None);
    assert!(create(&mut node, &a, too_many(&a, "a1", 2000)).is_ok());
}

#[test]
fn too_many_devices_of_the_kubelet_refuse_only_who_gets_cpus_near_them() {
    let mut node = node_with_devices(TopologyPolicy::BestEffort);
    let (a, b) = (guaranteed("a", 2000), guaranteed("b", 500));
    for pod in [&a, &b] {
        node.ledger.apply(Event::RunPod(pod.clone()));
        let too_many = GivenDevices { too_many: true, ..GivenDevices::default() };
        let containers = BTreeMap::from([("many".to_owned(), too_many)]);
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        node.ledger.apply(Event::Devices(vec![PodDevices { namespace, name, containers }]));
    }
    let why = node.create(&a, "many", "a1", 2000).unwrap_err();
    assert_eq!(
        why,
        "TopologyAffinityError: the container has too many devices: more than 64 devices in the kubelet's list; its \
         NUMA affinity depends on them. Request fewer"
    );
    assert_eq!(node.create(&a, "few", "a2", 2000).unwrap(), "2-3");
    node.create(&b, "many", "b1", 500).unwrap();
    let notes = node.ledger.take_notes().into_iter();
    let noted: Vec<_> = notes.filter(|note| matches!(note.what, What::TooMany(_))).collect();
    assert_eq!(noted.len(), 1, "{noted:?}");
}

#[test]
fn a_running_pod_with_too_many_annotations_is_named_once() {
    let mut node = Node::new();
    let name = |at| (format!("cpus.cpu-manager.nri.io/container.c{at}"), "shared");
    let a = Pod { annotations: (0..65).map(name).collect(), ..guaranteed("a", 500) };
    for expect in [1, 0] {
        let list = Event::Synchronize {
            pods: vec![a.clone()],
            containers: vec![container(&a, "c", "c", 500)],
        };
        node.event(list).unwrap();
        let notes = node.ledger.take_notes();
        let noted: Vec<_> =
            notes.iter().filter(|note| matches!(note.what, What::TooMany(_))).collect();
        assert_eq!(noted.len(), expect, "{notes:?}");
        for note in noted {
            assert_eq!(
                note.to_string(),
                "default/a: too many annotations: none counts, as the pod has more than 64 of the form \
                 KEY.cpu-manager.nri.io or KEY.crio.io"
            );
        }
    }
}
