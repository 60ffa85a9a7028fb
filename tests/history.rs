//! Random histories of a node: the invariants of ARCHITECTURE.md hold after every event, however often
//! the plugin is restarted.
//!
//! A small model of a container runtime is beside the ledger: it applies all updates, and lists what it
//! has applied when the plugin is restarted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::exclusivity::CgroupTree;
use nri_cpu_manager::ledger::model::{ContainerId, PodUid, SandboxId};
use nri_cpu_manager::ledger::{
    Adjustment, Admission, CgroupPath, Channel, Claim, Container, ContainerKind, CpuRequest,
    Decision, Event, Exposure, Ledger, Mechanism, MilliCpu, Outcome, Pod, Qos, Settings, Wanted,
};
use nri_cpu_manager::placement::{self, EngineKind, Options};
use nri_cpu_manager::topology::Topology;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[path = "random/changes.rs"]
mod changes;
#[path = "random/groups.rs"]
mod groups;
#[path = "random/invariants.rs"]
mod invariants;
#[path = "random/kubelet.rs"]
mod kubelet;
#[path = "random/machines.rs"]
mod machines;
#[path = "random/ops.rs"]
mod ops;
#[path = "random/order.rs"]
mod order;
#[path = "random/pods.rs"]
mod pods;
#[path = "random/resize.rs"]
mod resize;
#[path = "random/restart.rs"]
mod restart;
#[path = "random/wishes.rs"]
mod wishes;
use invariants::Known;
use machines::{change, machine};
use ops::{Op, coming_and_going, op};
use pods::PodSpec;

#[derive(Debug, Clone)]
struct Instance {
    pod: Pod,
    container: Container,
    /// What the runtime has set; `None` if the container was never pinned.
    adjustment: Option<Adjustment>,
    running: bool,
    stopped: bool,
}

impl Instance {
    /// The exclusive CPUs that its limit asks for.
    fn wanted(&self) -> Option<usize> {
        self.container.cpu.limit.and_then(MilliCpu::whole_cpus)
    }

    /// Whether both are instances of the same container of the same pod.
    fn precedes(&self, other: &Instance) -> bool {
        (&self.pod.uid, &self.container.name) == (&other.pod.uid, &other.container.name)
    }
}

/// A ledger on a node where this mechanism enforces exclusivity.
fn ledger(
    topology: &Topology,
    settings: &Settings,
    mechanism: Mechanism,
    remembered: Vec<Claim>,
) -> Ledger {
    let mut ledger = Ledger::new(topology.clone(), settings.clone(), remembered);
    ledger.apply(Event::Mechanism(mechanism));
    ledger
}

fn exclusive(adjustment: Option<Adjustment>) -> Option<CpuSet> {
    adjustment.filter(Adjustment::is_exclusive).map(|adjustment| adjustment.exclusive_cpus())
}

struct Node {
    topology: Topology,
    /// `topology` with all CPUs online.
    whole: Topology,
    settings: Settings,
    mechanism: Mechanism,
    ledger: Ledger,
    /// The kernel's cgroups; used where they enforce exclusivity.
    kernel: CgroupTree,
    /// Cgroups that systemd clears whenever it likes.
    distrusted: BTreeSet<CgroupPath>,
    pods: Vec<PodSpec>,
    instances: BTreeMap<String, Instance>,
    serial: usize,
    last: Option<Event>,
    /// Claims of an earlier restart, for a restart with an outdated checkpoint.
    old_checkpoint: Vec<Claim>,
}

impl Node {
    fn new((topology, settings, mechanism): (Topology, Settings, Mechanism)) -> Node {
        let ledger = ledger(&topology, &settings, mechanism, Vec::new());
        let pods = Vec::new();
        let instances = BTreeMap::new();
        Node {
            whole: topology.clone(),
            kernel: CgroupTree::new(topology.online(), topology.online()),
            distrusted: BTreeSet::new(),
            topology,
            settings,
            mechanism,
            ledger,
            pods,
            instances,
            serial: 0,
            last: None,
            old_checkpoint: Vec::new(),
        }
    }

    fn next(&mut self) -> usize {
        self.serial += 1;
        self.serial
    }

    /// Has the ledger decide about a request and carries out the answer, as the daemon does: cgroups
    /// before it, and the updates with it. `None` if the request is refused.
    fn admit(&mut self, admission: Admission) -> Option<Decision> {
        // No event before this one is repeated after it.
        self.last = None;
        let before = Known::of(&self.ledger);
        let decision = self.ledger.admit(admission).ok()?;
        before.changed_by(&decision.outcome, &self.ledger);
        self.follow_groups();
        self.apply(Event::Answered(decision.clone()));
        // The runtime applies the updates of others before the change to the container itself.
        let last = if decision.creation.is_none() { Some(&decision.container) } else { None };
        self.carry_out(&decision.due.updates, last);
        self.follow_groups();
        Some(decision)
    }

    /// Has the ledger record an event: what the outcome does not name has not changed.
    fn apply(&mut self, event: Event) -> Outcome {
        let before = Known::of(&self.ledger);
        let outcome = self.ledger.apply(event);
        before.changed_by(&outcome, &self.ledger);
        outcome
    }

    /// Has the ledger record an event, and carries out the answer.
    fn event(&mut self, event: Event) {
        self.last = Some(event.clone());
        let answer_has_updates = event.answer_has_updates();
        self.apply(event);
        self.follow_groups();
        if answer_has_updates {
            let due = self.ledger.due(&Channel::Runtime);
            let updates = due.updates.clone();
            self.apply(Event::Sent(due));
            self.carry_out(&updates, None);
            self.follow_groups();
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::RunPod { qos, cpus, kinds, wishes, resources } => {
                let serial = self.next();
                let pod = Pod {
                    sandbox: SandboxId(format!("sandbox-{serial}")),
                    uid: PodUid(format!("uid-{serial}")),
                    namespace: "ns".to_owned(),
                    name: format!("pod-{serial}"),
                    qos: if qos > 1 { Qos::Guaranteed } else { Qos::Burstable },
                    budget: if qos == 4 {
                        None
                    } else {
                        Some(MilliCpu(u64::from(cpus[0] + cpus[1]) * 500))
                    },
                    annotations: wishes::annotations(wishes),
                    cgroup: groups::of_pod(serial, qos > 1),
                };
                self.make_groups(&pod);
                self.event(Event::RunPod(pod.clone()));
                let kinds = match kinds {
                    0 => [ContainerKind::Init, ContainerKind::App],
                    1 => [ContainerKind::RestartableInit, ContainerKind::App],
                    _ => [ContainerKind::Unknown; 2],
                };
                self.pods.push(PodSpec { pod, cpus, kinds, resources });
            }
            Op::Create { pod, container } => {
                let Some(instance) = self.instance(pod, container) else { return };
                self.create(instance);
            }
            Op::Start { container } => {
                let Some(id) = self.pick(container) else { return };
                let instance = self.instances.get_mut(&id).unwrap();
                instance.running = !instance.stopped;
                let event = Event::Started {
                    pod: instance.pod.clone(),
                    container: instance.container.clone(),
                };
                if instance.running {
                    self.event(event);
                }
            }
            Op::Stop { container } => {
                let Some(id) = self.pick(container) else { return };
                let instance = self.instances.get_mut(&id).unwrap();
                instance.running = false;
                instance.stopped = true;
                self.event(Event::Stop(ContainerId(id)));
            }
            Op::LateStop { container } => {
                let id = ContainerId(format!("id-{container}"));
                if !self.instances.contains_key(&id.0) {
                    self.event(Event::Stop(id));
                }
            }
            Op::LateStart { container } => {
                let Some(id) = self.pick(container) else { return };
                let late = &self.instances[&id];
                if late.stopped {
                    let pod = late.pod.clone();
                    let container = late.container.clone();
                    self.event(Event::Started { pod, container });
                }
            }
            Op::FailedCreate { pod, container, stops } => self.failed_create(pod, container, stops),
            Op::LateAnswer { pod, container } => self.late_answer(pod, container),
            Op::StopPod { pod } => {
                if self.pods.is_empty() {
                    return;
                }
                let PodSpec { pod, .. } = self.pods.remove(pod % self.pods.len());
                self.instances.retain(|_, instance| instance.pod.uid != pod.uid);
                self.kernel.remove(pod.cgroup.as_ref().unwrap());
                self.event(Event::StopPod(pod.sandbox));
            }
            Op::Remove { container } => {
                let Some(id) = self.pick(container).filter(|id| self.instances[id].stopped) else {
                    return;
                };
                self.instances.remove(&id);
                self.event(Event::Remove(ContainerId(id)));
            }
            Op::Resize { container, halves, resizes_pod } => {
                self.resize(container, halves, resizes_pod);
            }
            Op::QuietPeriod => {
                self.event(Event::QuietPeriod);
                self.carry_out_pending();
            }
            Op::Repeat => {
                if let Some(event @ (Event::Stop(_) | Event::StopPod(_) | Event::Started { .. })) =
                    self.last.clone()
                {
                    self.event(event);
                }
            }
            Op::PartitionRefused { container } => {
                let Some(id) = self.pick(container) else { return };
                self.apply(Event::PartitionRefused(ContainerId(id)));
                self.carry_out_pending();
            }
            Op::Distrust { pod, class } => self.distrust(pod, class),
            Op::Restart { checkpoint } => self.restart(checkpoint),
            Op::CreateWhileDown { pod, container } => {
                if let Some(mut instance) = self.instance(pod, container) {
                    instance.running = true;
                    self.replace(instance);
                }
                self.restart(0);
            }
            Op::Hotplug { cpu } => self.hotplug(cpu),
            Op::Settings(ref change) => self.reconfigure(change),
            Op::Kubelet { observe, ref creates } => self.kubelet(observe, creates),
        }
    }

    /// The runtime has one instance of a container at a time.
    fn replace(&mut self, instance: Instance) {
        let id = instance.container.id.0.clone();
        self.instances.retain(|_, earlier| !earlier.precedes(&instance));
        self.instances.insert(id.clone(), instance);
        self.set_group(&id);
    }

    fn create(&mut self, instance: Instance) {
        let pod = instance.pod.clone();
        let container = instance.container.clone();
        self.make_room(&pod, &container);
        let before: Vec<Claim> = self.ledger.claims().collect();
        // The earlier instance's process has ended before the runtime creates the next one.
        let mut instances = self.instances.values_mut();
        let earlier = instances.find(|earlier| earlier.precedes(&instance)).map(|earlier| {
            earlier.running = false;
            earlier.stopped = true;
            earlier.container.id.clone()
        });
        let alive = self.exclusive_alive();
        let admitted = self.admit(Admission::Create { pod, container });
        // An answer can carry moves that were planned for the container.
        if self.settings.rebalance.is_none() || self.mechanism != Mechanism::Runtime {
            for (id, was) in alive {
                let is = exclusive(self.instances[&id].adjustment);
                assert_eq!(is, Some(was), "a later container changed the CPUs of {id}");
            }
        }
        if let Some(adjustment) = admitted.map(|decision| decision.adjustment()) {
            self.begins_in_pool(&instance, adjustment);
            self.replace(Instance { adjustment, ..instance });
            return;
        }
        assert!(self.ledger.claims().eq(before), "a refused container left something behind");
        // Moves that the answer would have carried.
        self.carry_out_pending();
        // The earlier instance was not replaced, so its own stop has to report its end.
        if let Some(id) = earlier {
            self.event(Event::Stop(id));
        }
    }

    /// Moves containers as the daemon does. Where the runtime enforces exclusivity, the answer to
    /// the creation carries all moves; elsewhere each one is carried out before the next, and in
    /// some histories the plugin gives up in between, or takes a step back.
    fn make_room(&mut self, pod: &Pod, container: &Container) {
        let creation = Admission::Create { pod: pod.clone(), container: container.clone() };
        let plan = self.ledger.plan_arrival(&creation).or_else(|_| self.ledger.plan_departure());
        let Ok(plan) = plan else { return };
        let in_answer = self.mechanism == Mechanism::Runtime;
        if in_answer && plan.is_staged() {
            return;
        }
        for (at, step) in plan.steps.into_iter().enumerate() {
            let given_up = !in_answer && (self.serial + at).is_multiple_of(5);
            let target = |ledger: &Ledger| {
                ledger.target(&step.container).map(|target| target.adjustment.exclusive_cpus())
            };
            assert!(self.apply(Event::Move(step.clone())).moved);
            assert_eq!(target(&self.ledger), Some(step.to), "{step:?}");
            if in_answer {
                continue;
            }
            self.carry_out_pending();
            self.check();
            if given_up {
                let from = step.from;
                if self.serial.is_multiple_of(2) {
                    let id = step.container.clone();
                    assert!(self.apply(Event::Move(step.undone("given up".to_owned()))).moved);
                    self.carry_out_pending();
                    self.check();
                    let now = self.ledger.target(&id).map(|t| t.adjustment.exclusive_cpus());
                    assert_eq!(now, Some(from));
                }
                return;
            }
        }
    }

    /// The runtime fails to create a container that was admitted, and undoes the creation. The
    /// exclusive CPUs that the container's name had before stay its own.
    fn failed_create(&mut self, pod: usize, container: usize, stops: bool) {
        let Some(instance) = self.instance(pod, container) else { return };
        let id = instance.container.id.clone();
        let before = self.cpus_of_name(&instance);
        self.create(instance.clone());
        let Some(failed) = self.instances.remove(&id.0) else { return };
        if stops {
            self.event(Event::Stop(id.clone()));
        }
        self.event(Event::Remove(id));
        if before.is_some() && before == exclusive(failed.adjustment) {
            assert_eq!(self.cpus_of_name(&instance), before, "{instance:?}");
        }
    }

    /// The answer to a creation comes too late: the runtime has undone the creation, and made no
    /// update.
    fn late_answer(&mut self, pod: usize, container: usize) {
        let Some(instance) = self.instance(pod, container) else { return };
        // The earlier instance's process has ended before.
        let mut instances = self.instances.values();
        let earlier = instances.find(|earlier| earlier.precedes(&instance));
        if let Some(earlier) = earlier.map(|earlier| earlier.container.id.clone()) {
            self.instances.remove(&earlier.0);
            self.event(Event::Stop(earlier));
        }
        let Instance { pod, container, .. } = instance;
        let id = container.id.clone();
        self.last = None;
        if self.ledger.admit(Admission::Create { pod, container }).is_ok() {
            self.follow_groups();
        }
        self.event(Event::Remove(id));
        self.carry_out_pending();
    }

    /// The claim of any instance of this container.
    fn cpus_of_name(&self, instance: &Instance) -> Option<CpuSet> {
        let mut claims = self.ledger.claims();
        let claim = claims.find(|claim| {
            claim.pod_uid == instance.pod.uid && claim.container == instance.container.name
        });
        claim.map(|claim| claim.cpus)
    }

    fn claims(&self) -> Vec<Claim> {
        self.ledger.claims().collect()
    }

    fn pick(&self, at: usize) -> Option<String> {
        self.instances.keys().nth(at % self.instances.len().max(1)).cloned()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_must_always_hold_does(machine in machine(), ops in prop::collection::vec(op(), 1..80)) {
        let mut node = Node::new(machine);
        for op in &ops {
            node.run(op);
            node.check();
        }
        // When all pods have ended, all CPUs are free.
        for spec in node.pods.clone() {
            node.event(Event::StopPod(spec.pod.sandbox));
        }
        prop_assert!(node.ledger.exclusive().is_empty());
        let reserved = node.settings.placement.reserved;
        let strict = node.settings.placement.options.strict_cpu_reservation;
        let all = node.topology.online() - if strict { reserved } else { CpuSet::EMPTY };
        prop_assert_eq!(node.ledger.pool(), all);
    }

    #[test]
    fn moves_keep_what_must_always_hold(
        (topology, settings, mechanism) in machine(),
        ops in coming_and_going(),
        compact in any::<bool>(),
    ) {
        let reserved = settings.placement.reserved;
        let engine = if compact { EngineKind::Compact } else { EngineKind::Kubelet };
        let options = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
        let placement = placement::Settings { engine, options, reserved, ..Default::default() };
        let rebalance = Some(machines::rebalance());
        let settings = Settings { placement, rebalance, expose_cpus: Exposure::None, ..settings };
        let mut node = Node::new((topology, settings, mechanism));
        for op in &ops {
            node.run(op);
            node.check();
        }
    }

    /// Resizes, hotplug and late starts are left out: about them the runtime's list after a restart
    /// tells less, or something else, than a running plugin knows.
    #[test]
    fn a_change_of_settings_ends_as_a_restart_with_them(
        machine in machine(),
        ops in prop::collection::vec(
            op().prop_filter("more is known than after a restart", |op| {
                !matches!(op, Op::Resize { .. } | Op::Hotplug { .. } | Op::LateStart { .. })
            }),
            1..60,
        ),
        change in change(),
    ) {
        let mut node = Node::new(machine);
        for op in &ops {
            node.run(op);
        }
        if let Some(settings) = change.settings(&node.topology, &node.settings) {
            let restarted = node.restarted_with(&settings);
            node.reconfigure(&change);
            node.check();
            prop_assert_eq!(node.claims(), restarted.claims().collect::<Vec<_>>());
            prop_assert_eq!(node.ledger.free(), restarted.free());
        }
    }
}
