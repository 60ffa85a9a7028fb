//! Random histories of a node: whatever happens, and however often the plugin starts anew, what
//! must always hold does.
//!
//! A small model of a container runtime stands beside the ledger: it believes its updates, loses
//! nothing, and reports what it believes when the plugin starts anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::exclusivity::Tree;
use nri_cpu_manager::ledger::model::{ContainerId, PodUid, SandboxId};
use nri_cpu_manager::ledger::{
    Adjustment, Admission, Call, CgroupPath, Claim, Container, ContainerKind, CpuRequest, Decision,
    Event, Ledger, Mechanism, MilliCpu, Pod, Qos, Settings, Wanted,
};
use nri_cpu_manager::topology::Topology;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens next. Numbers are taken modulo what exists.
#[derive(Debug, Clone)]
enum Op {
    RunPod {
        qos: u8,
        cpus: [u8; 2],
        kinds: u8,
        wishes: [u8; 4],
    },
    Create {
        pod: usize,
        container: usize,
    },
    Start {
        container: usize,
    },
    Stop {
        container: usize,
    },
    /// A container that has ended is deleted.
    Remove {
        container: usize,
    },
    LateStop {
        container: usize,
    },
    /// A start that is reported after the end, or of an instance that has been replaced.
    LateStart {
        container: usize,
    },
    /// The runtime cannot create a container that was let in, and undoes what it has begun.
    Undone {
        pod: usize,
        container: usize,
        stops: bool,
    },
    StopPod {
        pod: usize,
    },
    /// In-place resize, in halves of a CPU. Newer runtimes tell of the pod's first.
    Resize {
        container: usize,
        halves: u8,
        tells_pod: bool,
    },
    Twice,
    /// The plugin dies and starts anew, with its checkpoint, without one, or with an old one.
    Restart {
        memory: u8,
    },
    /// The kernel does not keep others off a container's CPUs.
    Refusal {
        container: usize,
    },
    /// Containers that appear while the plugin is away, then it starts anew.
    Away {
        pod: usize,
        container: usize,
    },
    /// A CPU goes offline, or comes online.
    Hotplug {
        cpu: usize,
    },
    /// The administrator changes the settings.
    Settings(Change),
    /// The kubelet's own CPU manager becomes active, creates containers, and goes again.
    Kubelet {
        observe: bool,
        creates: Vec<(usize, usize)>,
    },
}

#[path = "random/groups.rs"]
mod groups;
#[path = "random/hotplug.rs"]
mod hotplug;
#[path = "random/invariants.rs"]
mod invariants;
#[path = "random/machines.rs"]
mod machines;
#[path = "random/neighbour.rs"]
mod neighbour;
#[path = "random/ops.rs"]
mod ops;
#[path = "random/order.rs"]
mod order;
#[path = "random/resize.rs"]
mod resize;
#[path = "random/restart.rs"]
mod restart;
#[path = "random/settings.rs"]
mod settings;
#[path = "random/undone.rs"]
mod undone;
#[path = "random/wishes.rs"]
mod wishes;
use machines::{Change, change, machine};
use ops::op;

#[derive(Debug, Clone)]
struct Instance {
    pod: Pod,
    container: Container,
    /// What the runtime has set; `None` if nothing.
    adjustment: Option<Adjustment>,
    running: bool,
    stopped: bool,
}

impl Instance {
    fn wanted(&self) -> Option<usize> {
        self.container.cpu.limit.and_then(MilliCpu::whole_cpus)
    }

    /// Whether it is of the same container of the same pod.
    fn precedes(&self, other: &Instance) -> bool {
        (&self.pod.uid, &self.container.name) == (&other.pod.uid, &other.container.name)
    }
}

/// A ledger on a node where this keeps exclusivity.
fn ledger(
    topology: &Topology,
    settings: &Settings,
    mechanism: Mechanism,
    remembered: Vec<Claim>,
) -> Ledger {
    let mut ledger = Ledger::new(topology.clone(), settings.clone(), remembered);
    ledger.handle(Event::Mechanism(mechanism)).unwrap();
    ledger
}

fn exclusive(adjustment: Option<Adjustment>) -> Option<CpuSet> {
    adjustment.filter(Adjustment::is_exclusive).map(|adjustment| adjustment.cpus())
}

/// A pod with two containers.
#[derive(Debug, Clone)]
struct PodSpec {
    pod: Pod,
    /// In halves of a CPU.
    cpus: [u8; 2],
    kinds: [ContainerKind; 2],
}

struct Node {
    topology: Topology,
    /// The same with all CPUs online.
    whole: Topology,
    settings: Settings,
    mechanism: Mechanism,
    ledger: Ledger,
    /// The kernel's cgroups, where these keep exclusivity.
    kernel: Tree,
    pods: Vec<PodSpec>,
    instances: BTreeMap<String, Instance>,
    serial: usize,
    last: Option<Call>,
    old_memory: Vec<Claim>,
}

impl Node {
    fn new((topology, settings, mechanism): (Topology, Settings, Mechanism)) -> Node {
        let ledger = ledger(&topology, &settings, mechanism, Vec::new());
        let pods = Vec::new();
        let instances = BTreeMap::new();
        Node {
            whole: topology.clone(),
            kernel: Tree::new(topology.online(), topology.online()),
            topology,
            settings,
            mechanism,
            ledger,
            pods,
            instances,
            serial: 0,
            last: None,
            old_memory: Vec::new(),
        }
    }

    fn next(&mut self) -> usize {
        self.serial += 1;
        self.serial
    }

    /// Hands an event to the ledger and does what it answers. `None`: refused.
    fn event(&mut self, call: impl Into<Call>) -> Option<Decision> {
        let call = call.into();
        self.last = Some(call.clone());
        // The runtime changes the container last that it was asked to change.
        let last = match &call {
            Call::Admission(Admission::Update { container, .. }) => Some(container.id.clone()),
            _ => None,
        };
        let decision = self.ledger.handle(call).ok()?;
        self.follow_groups();
        self.carry_out(&decision.updates, last.as_ref());
        self.follow_groups();
        Some(decision)
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::RunPod { qos, cpus, kinds, wishes } => {
                let serial = self.next();
                let pod = Pod {
                    sandbox: SandboxId(format!("sandbox-{serial}")),
                    uid: PodUid(format!("uid-{serial}")),
                    namespace: "ns".to_owned(),
                    name: format!("pod-{serial}"),
                    qos: if qos > 1 { Qos::Guaranteed } else { Qos::Burstable },
                    budget: (qos != 4).then(|| MilliCpu(u64::from(cpus[0] + cpus[1]) * 500)),
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
                self.pods.push(PodSpec { pod, cpus, kinds });
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
                (instance.running, instance.stopped) = (false, true);
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
            Op::Undone { pod, container, stops } => self.undone(pod, container, stops),
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
            Op::Resize { container, halves, tells_pod } => {
                self.resize(container, halves, tells_pod);
            }
            Op::Twice => {
                if let Some(Call::Event(
                    event @ (Event::Stop(_) | Event::StopPod(_) | Event::Started { .. }),
                )) = self.last.clone()
                {
                    self.event(event);
                }
            }
            Op::Refusal { container } => {
                let Some(id) = self.pick(container) else { return };
                self.ledger.handle(Event::PartitionRefused(ContainerId(id))).unwrap();
                self.carry_out_pending();
            }
            Op::Restart { memory } => self.restart(memory),
            Op::Away { pod, container } => {
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

    /// A new instance of a pod's container, not yet created.
    fn instance(&mut self, pod: usize, container: usize) -> Option<Instance> {
        let serial = self.next();
        let PodSpec { pod, cpus, kinds } = self.pods.get(pod % self.pods.len().max(1))?.clone();
        let amount = Some(MilliCpu(u64::from(cpus[container]) * 500));
        let group = format!("{}/c{serial}", pod.cgroup.as_ref().unwrap());
        let container = Container {
            cgroup: CgroupPath::new(&group),
            kind: kinds[container],
            created_at: Some(serial as i64),
            ..Container::new(
                ContainerId(format!("id-{serial}")),
                pod.sandbox.clone(),
                format!("c{container}"),
                CpuRequest { request: amount, limit: amount },
            )
        };
        Some(Instance { pod, container, adjustment: None, running: false, stopped: false })
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
        let before: Vec<Claim> = self.ledger.claims().collect();
        // The process of an earlier instance has ended before the runtime is asked for the next
        // one.
        let earlier = self.instances.values_mut().find(|earlier| earlier.precedes(&instance));
        let earlier = earlier.map(|earlier| {
            (earlier.running, earlier.stopped) = (false, true);
            earlier.container.id.clone()
        });
        if let Some(Decision { adjustment, .. }) = self.event(Admission::Create { pod, container })
        {
            self.replace(Instance { adjustment, ..instance });
            return;
        }
        assert!(self.ledger.claims().eq(before), "a refused container left something behind");
        // Nothing took its place: of its end there is no other sign than that of itself.
        if let Some(id) = earlier {
            self.event(Event::Stop(id));
        }
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
        // In the end every pod goes, and every CPU is back.
        for spec in node.pods.clone() {
            node.event(Event::StopPod(spec.pod.sandbox));
        }
        prop_assert!(node.ledger.exclusive().is_empty());
        let reserved = node.settings.placement.reserved;
        let strict = node.settings.placement.options.strict_cpu_reservation;
        let all = node.topology.online() - if strict { reserved } else { CpuSet::EMPTY };
        prop_assert_eq!(node.ledger.pool(), all);
    }

    /// Of a resize, of CPUs that went offline or of a start that was reported after the end the
    /// runtime tells a plugin that starts anew less, or other things, than one knows that was
    /// there.
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
