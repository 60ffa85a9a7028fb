//! The worked examples of the KEPs, as calls that a runtime makes: the kind of a container is
//! unknown, its pod's budget is known.

use ledger::{
    Admission, Container, ContainerId, CpuRequest, Event, Ledger, MilliCpu, Pod, PodUid, Policy,
    Qos, RequestedUpdate, SandboxId, Settings,
};
use machines::synthetic::Machine;
use placement::{self, Options, Scope, TopologyManager, TopologyPolicy, UncoreOrder};

struct Node {
    ledger: Ledger,
    pods: usize,
}

impl Node {
    fn new(machine: &str, reserved: &str, options: Options, manager: TopologyManager) -> Node {
        let topology = machine.parse::<Machine>().unwrap().topology().unwrap();
        let reserved = reserved.parse().unwrap();
        let topology_manager = manager;
        let placement = placement::PlacementSettings {
            options,
            topology_manager,
            reserved,
            ..placement::PlacementSettings::default()
        };
        let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
        Node { ledger: Ledger::new(topology, settings, Vec::new()), pods: 0 }
    }

    /// Creates a pod whose containers have these requests and limits, in thousandths of a CPU; 0
    /// stands for none.
    ///
    /// Returns each container's CPUs, exclusive ones marked by `=`, or the reason of its refusal.
    fn pod(&mut self, qos: Qos, containers: &[(u64, u64)]) -> Vec<String> {
        self.pods += 1;
        let total = containers.iter().map(|(request, _)| request).sum();
        let pod = Pod {
            sandbox: SandboxId(format!("sandbox-{}", self.pods).into()),
            uid: PodUid(format!("uid-{}", self.pods).into()),
            namespace: "default".to_owned(),
            name: format!("pod-{}", self.pods),
            qos,
            budget: positive(total),
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        };
        self.ledger.apply(Event::RunPod(pod.clone()));
        let mut answers = Vec::new();
        for (number, &(request, limit)) in containers.iter().enumerate() {
            let container = Container::new(
                ContainerId(format!("{}-{number}", self.pods).into()),
                pod.sandbox.clone(),
                format!("c{number}"),
                CpuRequest { request: positive(request), limit: positive(limit) },
            );
            let pod = pod.clone();
            let decided = self.ledger.admit(Admission::Create { pod, container });
            let begins = decided.map(|decision| {
                let setting = decision.setting().unwrap();
                self.ledger.apply(Event::Answered(decision));
                setting
            });
            answers.push(match begins {
                Ok(setting) if setting.is_exclusive() => format!("={}", setting.cpus()),
                Ok(setting) => setting.cpus().to_string(),
                Err(rejection) => rejection.to_string(),
            });
        }
        assert_eq!(self.ledger.check(), Ok(()));
        answers
    }

    /// Creates a Guaranteed pod with a container of each of these numbers of CPUs.
    fn guaranteed(&mut self, cpus: &[u64]) -> Vec<String> {
        let containers: Vec<(u64, u64)> = cpus.iter().map(|n| (n * 1000, n * 1000)).collect();
        self.pod(Qos::Guaranteed, &containers)
    }
}

fn positive(milli: u64) -> Option<MilliCpu> {
    if milli > 0 { Some(MilliCpu(milli)) } else { None }
}

fn manager(policy: TopologyPolicy, scope: Scope) -> TopologyManager {
    TopologyManager { policy, scope, ..TopologyManager::default() }
}

/// A pod's QoS class, its containers' requests and limits, and their CPUs.
type Case = (Qos, &'static [(u64, u64)], &'static [&'static str]);

/// KEP-3570, "Static Policy".
#[test]
fn kep_3570_only_whole_cpus_in_guaranteed_pods_are_exclusive() {
    let cases: [Case; 10] = [
        (Qos::Guaranteed, &[(500, 500)], &["0-7"]),
        (Qos::Guaranteed, &[(2000, 2000)], &["=1-2"]),
        (Qos::Guaranteed, &[(1000, 1000), (500, 500)], &["=1", "0,2-7"]),
        (Qos::Guaranteed, &[(500, 500), (1000, 1000)], &["0-7", "=1"]),
        (Qos::Guaranteed, &[(1500, 1500), (500, 500)], &["0-7", "0-7"]),
        (Qos::Guaranteed, &[(2000, 2000), (3000, 3000)], &["=1-2", "=3-5"]),
        (Qos::Burstable, &[(1000, 2000)], &["0-7"]),
        (Qos::Burstable, &[(2000, 2000), (0, 0)], &["0-7", "0-7"]),
        (Qos::Burstable, &[(2000, 0)], &["0-7"]),
        (Qos::BestEffort, &[(0, 0)], &["0-7"]),
    ];
    for (qos, containers, expect) in cases {
        let mut node = Node::new("core:8", "0", Options::default(), TopologyManager::default());
        assert_eq!(node.pod(qos, containers), expect, "{qos:?} {containers:?}");
    }
}

/// KEP-4800's node with CPUs 0-1 reserved: these pods, of one container each, get these CPUs.
#[track_caller]
fn kep_4800(machine: &str, uncore: Option<UncoreOrder>, pods: &[(u64, &str)]) {
    let options = Options {
        prefer_align_cpus_by_uncorecache: uncore.is_some(),
        uncore_order: uncore.unwrap_or_default(),
        ..Options::default()
    };
    let mut node = Node::new(machine, "0-1", options, TopologyManager::default());
    for &(n, expect) in pods {
        assert_eq!(node.guaranteed(&[n]), [expect], "{n} CPUs, {uncore:?}");
    }
}

#[test]
fn kep_4800_takes_caches_in_numerical_order() {
    let numerical = Some(UncoreOrder::Numerical);
    kep_4800("l3:4 core:8", numerical, &[(10, "=8-17"), (8, "=24-31"), (6, "=2-7")]);
    kep_4800("l3:2 core:8", numerical, &[(4, "=2-5"), (4, "=8-11"), (4, "=12-15")]);
}

#[test]
fn kep_4800_takes_caches_with_the_fewest_free_cpus_first() {
    let fewest = Some(UncoreOrder::FewestFree);
    kep_4800("l3:4 core:8", fewest, &[(10, "=2-3,8-15"), (8, "=16-23"), (6, "=24-29")]);
    kep_4800("l3:2 core:8", fewest, &[(4, "=2-5"), (4, "=8-11"), (4, "=12-15")]);
}

#[test]
fn kep_4800_takes_cpus_in_order_without_the_option() {
    kep_4800("l3:4 core:8", None, &[(10, "=2-11"), (8, "=12-19"), (6, "=20-25")]);
}

/// KEP-2625: five CPUs are not whole cores, and the refused container takes none.
#[test]
fn kep_2625_five_cpus_are_refused_where_cores_have_two() {
    let options = Options { full_pcpus_only: true, ..Options::default() };
    let mut node = Node::new("core:4 pu:2", "0-1", options, TopologyManager::default());
    let refused =
        "SMTAlignmentError: SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2";
    assert_eq!(node.guaranteed(&[5]), [refused]);
    assert_eq!(node.ledger.pool().to_string(), "0-7");
    assert_eq!(node.guaranteed(&[4]), ["=2-5"]);
}

const NO_AFFINITY: &str =
    "TopologyAffinityError: Resources cannot be allocated with Topology locality";

/// KEP-693: the container needs one and a half nodes.
#[test]
fn kep_693_single_numa_node_refuses_a_container_that_needs_two() {
    let machine = "pack:2 numa:2 core:8";
    let single = manager(TopologyPolicy::SingleNumaNode, Scope::Container);
    let mut node = Node::new(machine, "0", Options::default(), single);
    assert_eq!(node.guaranteed(&[12]), [NO_AFFINITY]);
    assert_eq!(node.ledger.pool().to_string(), "0-31");
    let restricted = manager(TopologyPolicy::Restricted, Scope::Container);
    let mut node = Node::new(machine, "0", Options::default(), restricted);
    assert_eq!(node.guaranteed(&[12]), ["=1-4,8-15"]);
    assert_eq!(node.guaranteed(&[12]), ["=16-27"]);
    assert_eq!(node.guaranteed(&[12]), [NO_AFFINITY]);
}

/// KEP-693, scopes: container scope aligns each container separately, pod scope all of them
/// together.
#[test]
fn kep_693_pod_scope_keeps_a_pods_containers_together() {
    let node = |scope| {
        let single = manager(TopologyPolicy::SingleNumaNode, scope);
        Node::new("numa:2 core:4", "0", Options::default(), single)
    };
    assert_eq!(node(Scope::Container).guaranteed(&[2, 2]), ["=1-2", "=4-5"]);
    assert_eq!(node(Scope::Pod).guaranteed(&[2, 2]), ["=4-5", "=6-7"]);
    assert_eq!(node(Scope::Container).guaranteed(&[2, 4]), ["=1-2", "=4-7"]);
    assert_eq!(node(Scope::Pod).guaranteed(&[2, 4]), [NO_AFFINITY, NO_AFFINITY]);
}

/// KEP-693, pod scope: the pod needs two nodes, so a container may span both though it would fit on
/// one.
#[test]
fn kep_693_pod_scope_lets_containers_span_the_nodes_that_the_pod_needs() {
    for (scope, expect) in [(Scope::Container, "=8-10"), (Scope::Pod, "=7-9")] {
        let best_effort = manager(TopologyPolicy::BestEffort, scope);
        let mut node = Node::new("numa:4 core:4", "0", Options::default(), best_effort);
        assert_eq!(node.guaranteed(&[3]), ["=1-3"]);
        assert_eq!(node.guaranteed(&[3, 3]), ["=4-6", expect]);
    }
}

/// The topology manager's policy applies when a container is created; a running one may grow beyond
/// its node.
#[test]
fn a_resize_is_not_refused_for_its_affinity() {
    let single = manager(TopologyPolicy::SingleNumaNode, Scope::Container);
    let mut node = Node::new("numa:2 core:4", "0", Options::default(), single);
    assert_eq!(node.pod(Qos::Guaranteed, &[(500, 500)]), ["0-7"]);
    assert_eq!(node.guaranteed(&[2]), ["=1-2"]);
    for (id, milli, expect) in [("2-0", 5000, "1-5"), ("1-0", 2000, "6-7")] {
        let (pod, name) = id.split_once('-').unwrap();
        let pod = Pod {
            sandbox: SandboxId(format!("sandbox-{pod}").into()),
            uid: PodUid(format!("uid-{pod}").into()),
            namespace: "default".to_owned(),
            name: format!("pod-{pod}"),
            qos: Qos::Guaranteed,
            budget: None,
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        };
        let container = Container::new(
            ContainerId(id.into()),
            pod.sandbox.clone(),
            format!("c{name}"),
            CpuRequest::default(),
        );
        let amount = Some(MilliCpu(milli));
        let cpu = CpuRequest { request: amount, limit: amount };
        let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
        let decision = node.ledger.admit(Admission::Update { pod, container, requested });
        let updates = decision.unwrap().due.updates;
        let ours = updates.iter().find(|update| &*update.container.0 == id).unwrap();
        assert_eq!(
            (ours.setting.cpus().to_string().as_str(), ours.setting.is_exclusive()),
            (expect, true)
        );
    }
}
