//! What a client gets from a view.

use super::*;
use ledger::model::{ContainerId, CpuRequest, PodUid, SandboxId};
use ledger::{Ledger, Mechanism, Qos};
use machines::synthetic::Machine;
use placement::IsolatedCpus;
use placement::memory_manager::{MemoryKind, NodeMemory, NodeMemoryClaim};
use std::sync::Arc;

/// A view of a machine of 16 CPUs, of which 0-1 are reserved, with a container in each of these pods.
fn view(pods: &[(&str, Option<&str>)]) -> View {
    let topology = Machine { cores: 16, ..Machine::default() }.topology().unwrap();
    let reserved = topology.online().lowest(2);
    let settings = Settings {
        policy: Policy::Static,
        placement: placement::PlacementSettings {
            reserved,
            ..placement::PlacementSettings::default()
        },
        ..Settings::default()
    };
    let mut view = View::clone(&Ledger::new(topology, settings, Vec::new()).view());
    for (serial, (name, cpus)) in pods.iter().enumerate() {
        let pod = ledger::Pod {
            sandbox: SandboxId((*name).into()),
            uid: PodUid((*name).into()),
            namespace: "n".to_owned(),
            name: (*name).to_owned(),
            qos: Qos::Guaranteed,
            budget: None,
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        };
        let exclusive = cpus.map(|cpus| cpus.parse().unwrap());
        view.containers.push(ContainerView {
            pool: Default::default(),
            margin: Default::default(),
            pod: Arc::new(pod),
            name: format!("c{serial}"),
            id: ContainerId(serial.to_string().into()),
            cgroup: None,
            cpu: CpuRequest::default(),
            has_memory_limit: false,
            memory: None,
            asks: None,
            exclusive,
            leaving: Arc::default(),
            shared: Arc::default(),
            own_pool: Arc::default(),
            idle: Arc::default(),
            cpus_pod_option: None,
            runs_on: Arc::new(exclusive.unwrap_or_default()),
            left_alone: None,
            phase: Phase::Running,
            enforced_by: Mechanism::Runtime,
            stays: None,
            devices: Vec::new(),
            created_at: Some(serial as i64),
            interrupts: Default::default(),
            knobs: Default::default(),
        });
    }
    view
}

#[test]
fn pods_have_their_containers_and_the_age_of_the_newest() {
    let mut view = view(&[("a", Some("4-5")), ("a", None), ("b", Some("8"))]);
    view.containers[0].phase = Phase::Ended;
    view.containers[2].phase = Phase::Ended;
    // Shared CPUs are not listed, also those of the pod's own pool.
    view.containers[1].own_pool = Arc::new("6-7".parse().unwrap());
    let pod = |name: &str, runs, created_at, containers: &[(&str, Option<&str>)]| Pod {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        runs,
        created_at: Some(created_at),
        containers: containers
            .iter()
            .map(|(name, cpus)| Container {
                name: (*name).to_owned(),
                exclusive: cpus.map(|cpus| cpus.parse().unwrap()),
                memory: Vec::new(),
            })
            .collect(),
    };
    let expect = [
        pod("a", true, 1, &[("c0", Some("4-5")), ("c1", None)]),
        pod("b", false, 2, &[("c2", Some("8"))]),
    ];
    assert_eq!(known(&view).pods, expect);
}

#[test]
fn cpus_can_be_exclusive_if_they_are_not_reserved_and_there_is_a_policy() {
    let mut view = view(&[]);
    assert_eq!(known(&view).allocatable.to_string(), "2-15");
    view.settings = Arc::new(Settings::default());
    assert_eq!(known(&view).allocatable, CpuSet::EMPTY);
}

#[test]
fn counted_memory_is_listed_by_type_and_node() {
    let mut view = view(&[("a", Some("4-5")), ("b", None)]);
    let amounts = Amounts::from([(MemoryKind::Memory, 7), (MemoryKind::HugePages(2 << 20), 0)]);
    let nodes: NodeSet = [0, 1].into_iter().collect();
    view.containers[0].memory = Some(NodeMemoryClaim { nodes, amounts });
    assert_eq!(known(&view).allocatable_memory, None);
    assert!(known(&view).pods[0].containers[0].memory.is_empty(), "memory is not counted");
    let node = NodeMemory { id: 1, total: 9, huge_pages: Amounts::new(), reserved: Amounts::new() };
    let memory = Some(Capacity::new([node]).unwrap());
    view.settings = Arc::new(Settings { memory, ..Settings::clone(&view.settings) });
    let block = |bytes, nodes| ContainerMemory { kind: "memory".to_owned(), bytes, nodes };
    let known = known(&view);
    assert_eq!(known.allocatable_memory, Some(vec![block(9, NodeSet::of(1))]));
    assert_eq!(known.pods[0].containers[0].memory, [block(7, nodes)]);
    assert!(known.pods[1].containers[0].memory.is_empty());
}

#[test]
fn the_kubelet_assigns_while_its_cpu_manager_is_active() {
    let mut view = view(&[]);
    for (stance, assigns) in
        [(Stance::Assign, true), (Stance::Observe, false), (Stance::Refuse, false)]
    {
        view.figures.stance = stance;
        assert_eq!(known(&view).assigns, assigns, "{stance:?}");
    }
}

#[test]
fn isolated_cpus_are_allocatable_as_configured() {
    let isolated: CpuSet = "8-15".parse().unwrap();
    for (option, expect) in [
        (IsolatedCpus::Exclude, "2-9"),
        (IsolatedCpus::Prefer, "2-15"),
        (IsolatedCpus::Require, "8-15"),
    ] {
        let machine = Machine { cores: 16, isolated, ..Machine::default() }.topology().unwrap();
        let reserved = machine.online().lowest(2);
        let placement =
            placement::PlacementSettings { reserved, isolated: option, ..Default::default() };
        let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
        let mut view = View::clone(&Ledger::new(machine, settings, Vec::new()).view());
        // A container has these by its pod option.
        view.figures.cpus.exclusive = "8-9".parse().unwrap();
        assert_eq!(known(&view).allocatable.to_string(), expect);
    }
}
