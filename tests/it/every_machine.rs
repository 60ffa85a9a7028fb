//! Random histories of a node on every machine of the conformance vectors, including hybrid
//! machines and machines with offline CPUs. In one in ten of such histories the kubelet itself
//! assigns a CPU twice, or a reserved one.
//!
//! `STEPS=1000000 cargo test --release --test it every_machine -- --nocapture` runs a million
//! steps.

use crate::runner;
use crate::support::random::Random;
use cpuset::CpuSet;
use ledger::pod_option::PodOption;
use ledger::{
    Admission, Annotations, Bounds, Channel, Container, ContainerId, ContainerKind, CpuRequest,
    CpuSetting, Event, Ledger, MilliCpu, Namespaces, Pod, PodUid, Policy, Qos, RequestedUpdate,
    SandboxId, Settings, Update,
};
use placement::{self, EngineKind, Rejection, Reservation, Scope, TopologyManager, TopologyPolicy};
use std::collections::BTreeMap;
use std::path::Path;
use topology::Topology;

/// Steps if `STEPS` is not set.
const DEFAULT_STEPS: usize = 100_000;

/// Histories of each machine, each with its own configuration.
const HISTORIES: usize = 4;

#[derive(Debug, Default)]
struct Counts {
    steps: usize,
    exclusive: usize,
    shared: usize,
    refused: usize,
    released: usize,
    resized: usize,
    resizes_refused: usize,
}

struct Live {
    pod: Pod,
    containers: Vec<Container>,
}

struct Node<'a> {
    ledger: Ledger,
    live: Vec<Live>,
    /// The settings that the runtime has applied to running containers.
    pins: BTreeMap<ContainerId, CpuSetting>,
    random: &'a mut Random,
    counts: &'a mut Counts,
}

fn settings(topology: &Topology, random: &mut Random, history: usize) -> Option<Settings> {
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];
    let policy = policies[history % policies.len()];
    let scope = if random.coin() { Scope::Pod } else { Scope::Container };
    let topology_manager = TopologyManager { policy, scope, ..TopologyManager::default() };
    let mut options = random.options();
    options.align_by_socket &= options.check_machine(topology, policy).is_ok();
    let reserved = if random.coin() {
        Reservation::amount(1000 * (1 + random.below(3) as u64))
    } else {
        let cpus = topology.cpus();
        let picked = (0..3).map(|_| CpuSet::of(cpus[random.below(cpus.len())].id).unwrap());
        Reservation::list(picked.collect())
    };
    let reserved = reserved.resolve(topology, &options).ok()?;
    let placement = placement::PlacementSettings {
        options,
        topology_manager,
        reserved,
        engine: EngineKind::ALL[random.below(2)],
        ..placement::PlacementSettings::default()
    };
    let bounds = Bounds { allow: pod_options().collect(), ..Bounds::default() };
    let namespaces = Namespaces::new(vec![(vec!["default".to_owned()], bounds)]).unwrap();
    Some(Settings { policy: Policy::Static, placement, namespaces, ..Settings::default() })
}

/// Pod options that keep CPUs idle.
const IDLE: [(&str, &str); 2] = [("uncore", "exclusive"), ("smt", "isolate")];

fn pod_options() -> impl Iterator<Item = PodOption> {
    IDLE.iter().map(|(key, value)| PodOption::parse(key, value).unwrap())
}

impl Node<'_> {
    fn step(&mut self) {
        match self.random.below(12) {
            0..=3 => self.release(),
            4..=5 => self.resize(),
            6 => self.pod(Qos::Burstable),
            _ => self.pod(Qos::Guaranteed),
        }
        self.check();
    }

    /// Starts a pod with all its containers; a refused container ends the pod.
    fn pod(&mut self, qos: Qos) {
        // Unique, because a step starts at most one pod.
        let serial = self.counts.steps;
        let kinds: &[ContainerKind] = match self.random.below(6) {
            0 => &[ContainerKind::Init, ContainerKind::RestartableInit, ContainerKind::App],
            1 => &[ContainerKind::Init, ContainerKind::Init, ContainerKind::App],
            2 => &[ContainerKind::Unknown, ContainerKind::Unknown],
            3 => &[ContainerKind::Unknown],
            _ => &[ContainerKind::App],
        };
        let sizes: Vec<u64> = kinds.iter().map(|_| self.milli()).collect();
        let whole: u64 = sizes.iter().sum();
        let budget = match self.random.below(4) {
            0 => None,
            1 => sizes.iter().max().copied(),
            _ => Some(whole),
        };
        let pod = Pod {
            sandbox: SandboxId(format!("sandbox-{serial}").into()),
            uid: PodUid(format!("uid-{serial}").into()),
            namespace: "default".to_owned(),
            name: format!("pod-{serial}"),
            qos,
            budget: budget.map(MilliCpu),
            limits: Default::default(),
            own_resources: None,
            pool: Default::default(),
            annotations: self.annotations(),
            cgroup: None,
        };
        self.event(Event::RunPod(pod.clone()));
        self.live.push(Live { pod: pod.clone(), containers: Vec::new() });
        for (number, (&kind, milli)) in kinds.iter().zip(sizes).enumerate() {
            let amount = Some(MilliCpu(milli));
            let container = Container {
                kind,
                ..Container::new(
                    ContainerId(format!("id-{serial}-{number}").into()),
                    pod.sandbox.clone(),
                    format!("c{number}"),
                    CpuRequest { request: amount, limit: amount },
                )
            };
            if !self.container(&pod, container) {
                let last = self.live.len() - 1;
                return self.end(last);
            }
        }
    }

    /// Creates and starts a container; returns whether it was admitted.
    fn container(&mut self, pod: &Pod, container: Container) -> bool {
        let before = self.ledger.exclusive();
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let Ok(setting) = self.admit(create) else {
            self.counts.refused += 1;
            assert_eq!(
                self.ledger.exclusive(),
                before,
                "a refused container leaves something behind"
            );
            return false;
        };
        let setting = setting.unwrap();
        if setting.is_exclusive() {
            self.counts.exclusive += 1;
            assert_eq!(Some(setting.cpus().len()), container.cpu.limit.unwrap().whole_cpus());
        } else {
            self.counts.shared += 1;
        }
        self.pins.insert(container.id.clone(), setting);
        self.event(Event::Started { pod: pod.clone(), container: container.clone() });
        if container.kind == ContainerKind::Init {
            self.check();
            self.pins.remove(&container.id);
            self.event(Event::Stop(container.id));
        } else if let Some(live) = self.live.last_mut() {
            live.containers.push(container);
        }
        true
    }

    fn release(&mut self) {
        if !self.live.is_empty() {
            self.counts.released += 1;
            let at = self.random.below(self.live.len());
            self.end(at);
        }
    }

    fn end(&mut self, at: usize) {
        let Live { pod, containers } = self.live.swap_remove(at);
        for container in containers {
            self.pins.remove(&container.id);
        }
        self.event(Event::StopPod(pod.sandbox));
    }

    fn resize(&mut self) {
        let at = self.random.below(self.live.len());
        let Some(live) = self.live.get(at).filter(|live| !live.containers.is_empty()) else {
            return;
        };
        let number = self.random.below(live.containers.len());
        let pod = live.pod.clone();
        let container = live.containers[number].clone();
        let amount = Some(MilliCpu(self.milli()));
        let cpu = CpuRequest { request: amount, limit: amount };
        let pins = self.pins.clone();
        let before = self.ledger.exclusive();
        let requested = RequestedUpdate { cpu, sets_quota: true, ..RequestedUpdate::default() };
        let update = Admission::Update { pod, container: container.clone(), requested };
        if self.admit(update).is_err() {
            self.counts.resizes_refused += 1;
            assert_eq!((&self.pins, self.ledger.exclusive()), (&pins, before));
            return;
        }
        self.counts.resized += 1;
        self.live[at].containers[number].cpu = cpu;
        let was = &pins[&container.id];
        let is = &self.pins[&container.id];
        if was.is_exclusive() && is.is_exclusive() {
            let grown = was.cpus().is_subset(&is.cpus());
            assert!(grown || is.cpus().is_subset(&was.cpus()), "{was:?} became {is:?}");
        }
        for (id, setting) in pins.iter().filter(|(_, setting)| setting.is_exclusive()) {
            assert!(
                *id == container.id || self.pins[id] == *setting,
                "the other container {id} was moved"
            );
        }
    }

    /// Decides about a request, and carries out the answer. Returns where a new container runs.
    fn admit(&mut self, admission: Admission) -> Result<Option<CpuSetting>, Rejection> {
        let decision = self.ledger.admit(admission)?;
        let setting = decision.setting();
        self.carry_out(&decision.due.updates);
        self.ledger.apply(Event::Answered(decision));
        Ok(setting)
    }

    fn event(&mut self, event: Event) {
        let answer_has_updates = event.answer_has_updates();
        self.ledger.apply(event);
        if answer_has_updates {
            let due = self.ledger.due(&Channel::Runtime);
            self.carry_out(&due.updates);
            self.ledger.apply(Event::Sent(due));
        }
    }

    fn carry_out(&mut self, updates: &[Update]) {
        for update in updates {
            if let Some(setting) = self.pins.get_mut(&update.container) {
                setting.clone_from(&update.setting);
            }
        }
    }

    /// One pod in six has whole uncore caches, one in six idle siblings.
    fn annotations(&mut self) -> Annotations {
        let pod_options = IDLE.iter().filter(|_| self.random.below(6) == 0);
        pod_options.map(|(key, value)| (format!("{key}.cpu-manager.nri.io/pod"), *value)).collect()
    }

    /// A random request: mostly small and whole, at times up to the whole machine, or a fraction.
    fn milli(&mut self) -> u64 {
        let cpus = match self.random.below(8) {
            0 => 1 + self.random.below(self.ledger.topology().cpus().len()),
            1 => return 500 + 1000 * self.random.below(4) as u64,
            2..=4 => 2 * (1 + self.random.below(4)),
            _ => 1 + self.random.below(8),
        };
        cpus as u64 * 1000
    }

    /// Invariants 1, 2 and 6 of ARCHITECTURE.md, on the CPUs that the runtime has set.
    fn check(&self) {
        assert_eq!(self.ledger.check(), Ok(()));
        let online = self.ledger.topology().online();
        let placement = &self.ledger.settings().placement;
        let mut exclusive = CpuSet::EMPTY;
        for setting in self.pins.values().filter(|setting| setting.is_exclusive()) {
            assert!(setting.cpus().is_disjoint(&exclusive), "exclusive twice");
            exclusive |= setting.cpus();
        }
        assert!(exclusive.is_disjoint(&placement.reserved), "reserved CPUs are exclusive");
        assert!(exclusive.is_subset(&online), "offline CPUs are exclusive");
        let topology = self.ledger.topology();
        let mut idle = CpuSet::EMPTY;
        for claim in self.ledger.claims().filter(|claim| self.pins.contains_key(&claim.id)) {
            let whole = [
                (claim.margin.siblings, topology.cores()),
                (claim.margin.caches, topology.uncores()),
            ];
            for (_, domains) in whole.iter().filter(|(is_idle, _)| *is_idle) {
                let touched = domains.iter().filter(|one| !one.cpus.is_disjoint(&claim.cpus));
                idle |= touched.map(|one| one.cpus).collect::<CpuSet>() - claim.cpus;
            }
        }
        let idle = idle - placement.reserved;
        for setting in self.pins.values() {
            assert!(setting.cpus().is_disjoint(&idle), "a container runs on idle CPUs");
            assert!(!setting.cpus().is_empty());
            assert!(setting.cpus().is_subset(&online));
            assert!(setting.is_exclusive() || setting.cpus().is_disjoint(&exclusive));
        }
        let held = self.ledger.exclusive();
        assert!(exclusive.is_subset(&held));
        let mut all = self.ledger.pool() | held;
        if placement.options.strict_cpu_reservation {
            assert!(self.ledger.pool().is_disjoint(&placement.reserved));
            all |= placement.reserved;
        }
        assert_eq!(all, online);
    }
}

#[test]
fn the_invariants_hold_on_every_machine() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let (machines, _) = runner::machines(&vectors).unwrap();
    let requested = std::env::var("STEPS").map_or(DEFAULT_STEPS, |steps| steps.parse().unwrap());
    let each = requested.div_ceil(machines.len() * HISTORIES);
    let mut random = Random::new();
    let mut counts = Counts::default();
    let mut used = 0;
    for topology in machines.values() {
        for history in 0..HISTORIES {
            let Some(settings) = (0..20).find_map(|_| settings(topology, &mut random, history))
            else {
                continue;
            };
            used += usize::from(history == 0);
            let mut node = Node {
                ledger: Ledger::new(topology.clone(), settings, Vec::new()),
                live: Vec::new(),
                pins: BTreeMap::new(),
                random: &mut random,
                counts: &mut counts,
            };
            for _ in 0..each {
                node.counts.steps += 1;
                node.step();
            }
            while !node.live.is_empty() {
                node.end(0);
            }
            assert!(node.ledger.exclusive().is_empty());
        }
    }
    println!("{used} machines: {counts:?}");
    assert_eq!(used, machines.len());
    assert!(counts.steps >= requested);
}
