//! Tests of the ledger on a small machine: 16 CPUs, two uncore caches, CPUs 0-1 reserved.

mod budget;
mod combinations;
mod engine;
mod event_order;
mod groups;
mod hotplug;
mod identity;
mod init;
mod isolated;
mod kubelet;
mod left_alone;
mod life;
mod loss;
mod memory;
mod mems;
mod mixed;
mod outcome;
mod outdated_list;
mod own_pool;
mod partitions;
mod pod_options;
mod pod_resources;
mod quieting;
mod rebalance;
mod reserved;
mod resize;
mod restart;
mod running_pod_options;
mod topology_manager;
mod update_order;

use super::*;
use placement::{self, Options, TopologyManager};
use std::collections::BTreeMap;
use topology::{Cpu, Facts};

fn machine(caches: usize, per_cache: usize) -> Topology {
    let cpus = (0..caches * per_cache)
        .map(|id| Cpu {
            id,
            core: id,
            uncore: id / per_cache * per_cache,
            numa: 0,
            socket: 0,
            die: None,
            kind: None,
        })
        .collect();
    Topology::build(Facts { cpus, ..Facts::default() }).unwrap()
}

fn settings() -> Settings {
    let options = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
    let reserved = "0-1".parse().unwrap();
    Settings {
        policy: Policy::Static,
        placement: placement::PlacementSettings {
            options,
            reserved,
            ..placement::PlacementSettings::default()
        },
        ..Settings::default()
    }
}

struct Node {
    ledger: Ledger,
    /// The CPUs that the runtime has set, by container id.
    set: BTreeMap<String, CpuSet>,
}

/// Of the containers that have not ended.
fn counts(node: &Node) -> ContainerCounts {
    ContainerCounts::of(node.ledger.view().containers.iter())
}

impl Node {
    fn new() -> Node {
        Node::with(settings(), Vec::new())
    }

    fn with(settings: Settings, remembered: Vec<Claim>) -> Node {
        Node { ledger: Ledger::new(machine(2, 8), settings, remembered), set: BTreeMap::new() }
    }

    fn event(&mut self, call: impl Into<Call>) -> Result<Option<CpuSetting>, String> {
        let (setting, updates) = match call.into() {
            Call::Admission(admission) => {
                let decision = admit(&mut self.ledger, admission);
                let decision = decision.map_err(|why| why.to_string())?;
                (decision.setting(), decision.due.updates)
            }
            Call::Event(event) => (None, report(&mut self.ledger, event)),
        };
        for update in updates {
            self.set.insert(update.container.to_string(), update.setting.cpus());
        }
        Ok(setting)
    }

    /// Creates and starts a container. Returns its CPUs, or "" if it was not pinned.
    fn create(&mut self, pod: &Pod, name: &str, id: &str, milli: u64) -> Result<String, String> {
        let setting = self.event(Admission::Create {
            pod: pod.clone(),
            container: container(pod, name, id, milli),
        })?;
        if let Some(setting) = &setting {
            self.set.insert(id.to_owned(), setting.cpus());
        }
        self.start(pod, name, id, milli);
        Ok(setting.map_or_else(String::new, |setting| setting.cpus().to_string()))
    }

    fn start(&mut self, pod: &Pod, name: &str, id: &str, milli: u64) {
        self.event(Event::Started { pod: pod.clone(), container: container(pod, name, id, milli) })
            .unwrap();
    }

    fn stop(&mut self, id: &str) {
        self.event(Event::Stop(ContainerId(id.into()))).unwrap();
        self.set.remove(id);
    }

    fn remove(&mut self, id: &str) {
        self.event(Event::Remove(ContainerId(id.into()))).unwrap();
        self.set.remove(id);
    }

    /// Sends the due updates to the runtime.
    fn send_due(&mut self) {
        for update in deliver(&mut self.ledger, Channel::Runtime) {
            self.set.insert(update.container.to_string(), update.setting.cpus());
        }
    }

    fn stop_pod(&mut self, pod: &Pod) {
        self.event(Event::StopPod(pod.sandbox.clone())).unwrap();
    }

    #[track_caller]
    fn check(&self, id: &str, cpus: &str) {
        assert_eq!(
            self.set.get(id).map(CpuSet::to_string).as_deref(),
            Some(cpus),
            "container {id}"
        );
    }

    /// The runtime's list of these containers, with the CPUs that are set.
    fn running(&self, containers: &[(&Pod, &str, &str, u64)]) -> Event {
        let mut pods: Vec<Pod> = containers.iter().map(|(pod, ..)| (*pod).clone()).collect();
        pods.dedup();
        let containers = containers.iter().map(|&(pod, name, id, milli)| Container {
            cpus: self.set.get(id).copied(),
            ..container(pod, name, id, milli)
        });
        Event::Synchronize { pods, containers: containers.collect() }
    }
}

/// Decides about a request, and sends the answer.
fn admit(ledger: &mut Ledger, admission: Admission) -> Result<Decision, Rejection> {
    let decision = ledger.admit(admission)?;
    ledger.apply(Event::Answered(decision.clone()));
    Ok(decision)
}

/// Records an event. Returns the updates that its answer carries.
fn report(ledger: &mut Ledger, event: Event) -> Vec<Update> {
    let answer_has_updates = event.answer_has_updates();
    ledger.apply(event);
    if answer_has_updates { deliver(ledger, Channel::Runtime) } else { Vec::new() }
}

/// Sends what is due on this channel.
fn deliver(ledger: &mut Ledger, channel: Channel) -> Vec<Update> {
    let due = ledger.due(&channel);
    ledger.apply(Event::Sent(due.clone()));
    due.updates
}

fn pod(name: &str, qos: Qos, milli: u64) -> Pod {
    Pod {
        sandbox: SandboxId(format!("sandbox-{name}").into()),
        uid: PodUid(format!("uid-{name}").into()),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        qos,
        budget: Some(MilliCpu(milli)),
        limits: Default::default(),
        own_resources: None,
        pool: Default::default(),
        annotations: Default::default(),
        cgroup: None,
    }
}

fn container(pod: &Pod, name: &str, id: &str, milli: u64) -> Container {
    let amount = Some(MilliCpu(milli));
    Container::new(
        ContainerId(id.into()),
        pod.sandbox.clone(),
        name,
        CpuRequest { request: amount, limit: amount },
    )
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn claim(pod: &Pod, id: &str, list: &str) -> Claim {
    Claim {
        margin: Margin::NONE,
        mixed: false,
        lent: false,
        cpu: CpuRequest::default(),
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: "c".to_owned(),
        id: ContainerId(id.into()),
        cpus: cpus(list),
    }
}

fn guaranteed(name: &str, milli: u64) -> Pod {
    pod(name, Qos::Guaranteed, milli)
}

#[test]
fn whole_cpus_of_guaranteed_pods_are_exclusive_and_everything_else_is_shared() {
    let mut node = Node::new();
    let burstable = pod("b", Qos::Burstable, 2000);
    assert_eq!(node.create(&burstable, "c", "b", 2000).unwrap(), "0-15");
    assert_eq!(node.create(&guaranteed("g", 4000), "c", "g", 4000).unwrap(), "2-5");
    node.check("b", "0-1,6-15");
    assert_eq!(node.create(&guaranteed("f", 1500), "c", "f", 1500).unwrap(), "0-1,6-15");
    assert_eq!(node.create(&pod("u", Qos::Unknown, 2000), "c", "u", 2000).unwrap(), "0-1,6-15");
}

#[test]
fn a_restarted_container_gets_the_same_cpus_and_a_late_stop_of_its_predecessor_frees_nothing() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let b = guaranteed("b", 4000);
    assert_eq!(node.create(&a, "c", "a1", 4000).unwrap(), "2-5");
    assert_eq!(node.create(&b, "c", "b1", 4000).unwrap(), "8-11");
    assert_eq!(node.create(&a, "c", "a2", 4000).unwrap(), "2-5");
    node.stop("a1");
    assert_eq!(node.ledger.pool().to_string(), "0-1,6-7,12-15");
    node.stop("a2");
    assert_eq!(node.create(&a, "c", "a3", 4000).unwrap(), "2-5");
}

#[test]
fn cpus_of_a_stopped_container_are_lent_to_the_pool_and_freed_with_its_pod() {
    let mut node = Node::new();
    let a = guaranteed("a", 14_000);
    let shared = pod("s", Qos::Burstable, 100);
    node.create(&shared, "c", "s", 100).unwrap();
    node.create(&a, "c", "a", 14_000).unwrap();
    node.check("s", "0-1");
    node.stop("a");
    node.check("s", "0-15");
    let refused = node.create(&guaranteed("b", 2000), "c", "b", 2000).unwrap_err();
    assert_eq!(
        refused,
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: \
         requested=2, available=0, which is unexpected"
    );
    node.stop_pod(&a);
    assert_eq!(node.create(&guaranteed("b", 2000), "c", "b", 2000).unwrap(), "2-3");
    node.check("s", "0-1,4-15");
}

#[test]
fn a_container_that_crashes_repeatedly_stops_lending_its_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    let shared = pod("s", Qos::Burstable, 100);
    node.create(&shared, "c", "s", 100).unwrap();
    for (id, pool) in [("a1", "0-15"), ("a2", "0-1,6-15"), ("a3", "0-1,6-15")] {
        assert_eq!(node.create(&a, "c", id, 4000).unwrap(), "2-5");
        node.check("s", "0-1,6-15");
        node.stop(id);
        node.check("s", pool);
    }
}

#[test]
fn a_refused_container_leaves_nothing_behind_and_is_admitted_when_there_is_room() {
    let mut node = Node::new();
    let a = guaranteed("a", 10_000);
    let b = guaranteed("b", 10_000);
    node.create(&a, "c", "a", 10_000).unwrap();
    let before = node.ledger.claims().collect::<Vec<_>>();
    node.event(Event::RunPod(b.clone())).unwrap();
    assert!(
        node.create(&b, "c", "b", 10_000).unwrap_err().starts_with("UnexpectedAdmissionError: ")
    );
    assert_eq!(node.ledger.claims().collect::<Vec<_>>(), before);
    // The pod of the refused container keeps no CPUs free, so a smaller pod can use them.
    assert_eq!(node.create(&guaranteed("s", 4000), "c", "s", 4000).unwrap(), "4-7");
    node.stop("a");
    node.stop_pod(&a);
    assert_eq!(node.create(&b, "c", "b", 10_000).unwrap().parse::<CpuSet>().unwrap().len(), 10);
}

#[test]
fn a_pods_budget_is_reserved_for_its_later_containers() {
    let mut node = Node::new();
    let big = guaranteed("big", 12_000);
    let other = guaranteed("other", 4000);
    node.event(Event::RunPod(big.clone())).unwrap();
    assert!(node.create(&other, "c", "o", 4000).unwrap_err().contains("available=2"));
    node.create(&big, "one", "1", 6000).unwrap();
    assert!(node.create(&other, "c", "o", 4000).unwrap_err().contains("available=2"));
    node.create(&big, "two", "2", 6000).unwrap();
    assert!(node.create(&other, "c", "o", 2000).is_ok());
}

#[test]
fn a_later_container_of_a_pod_reuses_the_cpus_of_an_ended_one_within_the_budget() {
    let mut node = Node::new();
    let a = guaranteed("a", 6000);
    let init = node.create(&a, "init", "i", 4000).unwrap();
    node.stop("i");
    let app = node.create(&a, "app", "p", 6000).unwrap();
    let init = cpus(&init);
    let app = cpus(&app);
    assert!(init.is_subset(&app), "{init} {app}");
    assert_eq!(node.ledger.exclusive(), app);
}

/// Observed on real nodes: in a pod with pod-level resources, a container without resources arrives
/// with the pod's limit.
#[test]
fn a_container_that_inherited_its_pods_limit_is_shared() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    assert_eq!(node.create(&a, "explicit", "e", 2000).unwrap(), "2-3");
    assert_eq!(node.create(&a, "inherits", "i", 4000).unwrap(), "0-1,4-15");
}

#[test]
fn an_update_before_the_process_runs_is_sent_again() {
    let mut node = Node::new();
    let s = pod("s", Qos::Burstable, 100);
    let a = guaranteed("a", 4000);
    node.event(Admission::Create { pod: s.clone(), container: container(&s, "c", "s", 100) })
        .unwrap();
    node.create(&a, "c", "a", 4000).unwrap();
    node.check("s", "0-1,6-15");
    node.set.clear();
    node.start(&s, "c", "s", 100);
    node.stop("unknown");
    node.check("s", "0-1,6-15");
}

#[test]
fn an_update_of_a_container_that_is_listed_before_it_runs_is_sent_again() {
    for (not_started, repeated) in [(true, Some("2-5")), (false, None)] {
        let mut node = Node::new();
        let a = guaranteed("a", 4000);
        let container = Container { not_started, ..container(&a, "c", "a", 4000) };
        let (pods, containers) = (vec![a.clone()], vec![container]);
        node.event(Event::Synchronize { pods, containers }).unwrap();
        node.check("a", "2-5");
        node.set.clear();
        node.start(&a, "c", "a", 4000);
        node.send_due();
        assert_eq!(node.set.get("a").map(CpuSet::to_string).as_deref(), repeated);
    }
}

#[test]
fn under_strict_reservation_shared_containers_use_reserved_cpus_only_when_no_others_are_left() {
    let mut strict = settings();
    strict.placement.options.strict_cpu_reservation = true;
    let mut node = Node::with(strict, Vec::new());
    let shared = pod("s", Qos::BestEffort, 0);
    assert_eq!(node.create(&shared, "c", "s", 0).unwrap(), "2-15");
    node.create(&guaranteed("a", 14_000), "c", "a", 14_000).unwrap();
    node.check("s", "0-1");
}

#[test]
fn policy_none_pins_no_container() {
    let mut node = Node::with(Settings { policy: Policy::None, ..settings() }, Vec::new());
    assert_eq!(node.create(&guaranteed("a", 4000), "c", "a", 4000).unwrap(), "");
    assert_eq!(node.create(&pod("s", Qos::BestEffort, 0), "c", "s", 0).unwrap(), "");
    assert!(node.set.is_empty());
}

#[test]
fn an_update_by_the_kubelet_is_answered_with_the_containers_cpus() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a", 4000).unwrap();
    node.set.clear();
    let requested = RequestedUpdate { sets_quota: true, ..RequestedUpdate::default() };
    node.event(Admission::Update {
        pod: a.clone(),
        container: container(&a, "c", "a", 4000),
        requested,
    })
    .unwrap();
    node.check("a", "2-5");
}

#[test]
fn removing_the_old_instance_of_a_container_frees_nothing() {
    let mut node = Node::new();
    let a = guaranteed("a", 4000);
    node.create(&a, "c", "a1", 4000).unwrap();
    node.stop("a1");
    node.create(&a, "c", "a2", 4000).unwrap();
    node.event(Event::Remove(ContainerId("a1".into()))).unwrap();
    assert_eq!(node.ledger.exclusive().to_string(), "2-5");
}

#[test]
fn a_new_exclusive_container_learns_its_cpus() {
    let exposing = Settings { expose_cpus: Exposure::Environment, ..settings() };
    let mut node = Node::with(exposing, Vec::new());
    let mut variables = |name: &str, milli| {
        let pod = guaranteed(name, milli);
        let container = container(&pod, "c", name, milli);
        let id = container.id.clone();
        let decision = node.ledger.admit(Admission::Create { pod, container }).unwrap();
        let reach = decision.creation.unwrap().exposed?;
        let housekeeping = node.ledger.housekeeping(&id);
        let (settings, topology) = (node.ledger.settings(), node.ledger.topology());
        Some(environment::environment(settings, topology, &reach, housekeeping))
    };
    let expect = [
        ("NRI_CPU_MANAGER_CPUS", "2-3,8-15"),
        ("NRI_CPU_MANAGER_NUMA_NODES", "0"),
        ("NRI_CPU_MANAGER_UNCORE_CACHES", "2-3;8-15"),
    ];
    assert_eq!(variables("a", 10_000), Some(expect.map(|(k, v)| (k, v.to_owned())).into()));
    assert_eq!(variables("b", 1500), None);
}
