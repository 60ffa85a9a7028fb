//! Plays scripts with only the ledger, without a VM: finds at once a script that no plugin could
//! pass, or that passes for the wrong reason.

use std::collections::BTreeMap;
use std::time::Duration;

use cpuset::CpuSet;
use ledger::{
    self, Admission, Channel, ContainerId, CpuRequest, CpuSetting, Due, Event, Ledger, MilliCpu,
    MovePlan, NoPlan, PodUid, PoolKind, Qos, SandboxId,
};
use nri_cpu_manager::config::{Config, NodeIdentity};

use super::catalogue;
use super::script::NO_TEXT;
use super::shape::Shape;
use crate::hardware::Hardware;
use crate::overlap::Watched;
use crate::pod::{self, Pod};
use crate::step::{Outcome, Step};
use crate::view::{BusyView, ContainerView, View};
use crate::vm::Machine;

/// Containers that wait for others to leave their CPUs are written after those.
const ROUNDS: usize = 3;

/// A ledger whose decisions take effect at once.
struct Rehearsal {
    shape: Shape,
    ledger: Ledger,
    pods: Vec<Pod>,
    cpus: BTreeMap<String, CpuSet>,
    log: String,
    now: Duration,
}

impl Rehearsal {
    fn new(shape: &Shape) -> Self {
        let settings = settings(shape, "cpuManagerPolicy: none");
        let ledger = Ledger::new(shape.topology.clone(), settings, Vec::new());
        let mut node = Self {
            shape: shape.clone(),
            ledger,
            pods: Vec::new(),
            cpus: BTreeMap::new(),
            log: String::new(),
            now: Duration::ZERO,
        };
        node.event(Event::Synchronize { pods: Vec::new(), containers: Vec::new() });
        node
    }

    /// Decides about a request, and carries out the answer. Returns where a new container runs.
    fn admit(&mut self, admission: Admission) -> Result<Option<CpuSetting>, String> {
        let decision = self.ledger.admit(admission).map_err(|why| why.to_string())?;
        let setting = decision.setting();
        self.sent(&decision.due);
        self.ledger.apply(Event::Answered(decision));
        self.log();
        Ok(setting)
    }

    fn event(&mut self, event: Event) {
        let answer_has_updates = event.answer_has_updates();
        self.ledger.apply(event);
        if answer_has_updates {
            let due = self.ledger.due(&Channel::Runtime);
            self.sent(&due);
            self.ledger.apply(Event::Sent(due));
        }
        self.log();
    }

    fn sent(&mut self, due: &Due) {
        let updates = due.updates.iter();
        self.cpus.extend(updates.map(|one| (one.container.0.clone(), one.setting.cpus())));
    }

    fn log(&mut self) {
        for note in self.ledger.take_notes() {
            self.log += &format!("{note}\n");
        }
    }

    /// Carries a plan out, or only logs it if the configuration says so.
    fn rebalance(&mut self, plan: Result<MovePlan, NoPlan>) {
        let Ok(plan) = plan else { return };
        if !self.ledger.moves_containers() {
            self.event(Event::Suggested(plan));
            return;
        }
        for step in plan.steps {
            let (container, to) = (step.container.0.clone(), step.to);
            self.event(Event::Move(step));
            // The daemon writes each step before the next one.
            self.cpus.insert(container, to);
            for _ in 0..ROUNDS {
                let due = self.ledger.due(&Channel::Groups);
                self.event(Event::Sent(due));
            }
        }
    }

    fn play(&mut self, step: &Step) -> Option<Outcome> {
        match step {
            Step::StartPlugin(config) | Step::Reconfigure(config) | Step::SwapConfig(config) => {
                self.event(Event::Settings(settings(&self.shape, config)));
            }
            Step::Run(pod) | Step::RunBusy(pod) => {
                self.pods.push(pod.clone());
                if let Err(why) = self.run(pod) {
                    return Some(Outcome::Refused(why));
                }
            }
            Step::RunTogether(pods) => {
                for pod in pods {
                    self.pods.push(pod.clone());
                    if let Err(why) = self.run(pod) {
                        return Some(Outcome::Refused(why));
                    }
                }
            }
            Step::Retry(name) => {
                let pod = self.pods.iter().find(|pod| pod.name == *name).unwrap().clone();
                if let Err(why) = self.run(&pod) {
                    return Some(Outcome::Refused(why));
                }
            }
            Step::Resize(name, amount) => {
                if let Err(why) = self.resize(name, *amount) {
                    return Some(Outcome::Refused(why));
                }
            }
            Step::ResizeInARow(name, sizes) => {
                let mut ran = CpuSet::EMPTY;
                for size in sizes {
                    self.resize(name, *size).unwrap();
                    ran |= self.cpus[name];
                }
                return Some(Outcome::Ran(ran.to_string()));
            }
            Step::Remove(name) => {
                self.pods.retain(|pod| pod.name != *name);
                self.cpus.remove(name);
                self.event(Event::Stop(ContainerId(name.clone())));
                self.event(Event::StopPod(SandboxId(name.clone())));
                self.event(Event::RemovePod(SandboxId(name.clone())));
                self.rebalance(self.ledger.plan_departure());
            }
            Step::Watch(steps) => {
                for step in steps {
                    self.play(step)?;
                }
                return Some(Outcome::Watched(Watched { readings: 1000, ..Watched::default() }));
            }
            Step::View => return Some(Outcome::View(self.view())),
            // The ledger keeps its state.
            Step::KillPlugin | Step::Clear | Step::Nest(_) => {}
            Step::Wait(seconds) => self.pass(self.now + Duration::from_secs(*seconds)),
            // What the log shall have may follow when a container has stayed for long enough.
            Step::WaitFor(..) => self.pass(self.ledger.next_movable().unwrap_or(self.now)),
            Step::Settle(_) => self.settle(),
            // What the plugin says of itself needs a plugin.
            Step::Status | Step::Fetch(_) | Step::Explain(_) => {}
            Step::Log => return Some(Outcome::Text(self.log.clone())),
            Step::KernelWarned => return Some(Outcome::KernelWarned(false)),
            _ => return None,
        }
        Some(Outcome::Done)
    }

    /// As the daemon, looks for moves whenever a container has stayed for long enough.
    fn pass(&mut self, to: Duration) {
        while let Some(at) = self.ledger.next_movable().filter(|at| *at <= to) {
            self.event(Event::Time(at));
            self.rebalance(self.ledger.plan_departure());
        }
        self.now = to;
        self.event(Event::Time(to));
    }

    /// Shared containers get what a resize has left.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let due = self.ledger.due(&Channel::Runtime);
            self.sent(&due);
            self.event(Event::Sent(due));
        }
    }

    fn resize(&mut self, name: &str, amount: i64) -> Result<(), String> {
        let milli = Some(MilliCpu(u64::try_from(amount).unwrap()));
        let cpu = CpuRequest { request: milli, limit: milli };
        let pod = self.pods.iter().find(|pod| pod.name == name).unwrap();
        let (pod, container) = reported(pod)?;
        let wanted = ledger::Wanted { cpu, sets_quota: true, cpus: None };
        let update = Admission::Update { pod, container, wanted };
        if let Some(setting) = self.admit(update)? {
            self.cpus.insert(name.to_owned(), setting.cpus());
        }
        let pod = self.pods.iter_mut().find(|pod| pod.name == name).unwrap();
        (pod.containers[0].cpu_request, pod.containers[0].cpu_limit) = (amount, amount);
        Ok(())
    }

    fn run(&mut self, pod: &Pod) -> Result<(), String> {
        let only = &pod.containers[0];
        let (reported, container) = reported(pod)?;
        self.event(Event::RunPod(reported.clone()));
        let create = Admission::Create { pod: reported.clone(), container: container.clone() };
        self.rebalance(self.ledger.plan_arrival(&create));
        let setting = self.admit(create)?.unwrap();
        self.cpus.insert(pod.name.clone(), setting.cpus());
        self.event(Event::Started { pod: reported, container });
        if only.command == pod::BINDS {
            self.event(Event::BoundItself(ContainerId(pod.name.clone())));
        }
        Ok(())
    }

    fn view(&self) -> View {
        let running = self.pods.iter().filter_map(|pod| Some((pod, self.cpus.get(&pod.name)?)));
        let claims: BTreeMap<String, (CpuSet, bool)> =
            self.ledger.claims().map(|claim| (claim.pod, (claim.cpus, claim.mixed))).collect();
        let container = |(pod, cpus): (&Pod, &CpuSet)| ContainerView {
            pod: pod.name.clone(),
            container: "main".to_owned(),
            qos: pod.qos(),
            request: pod.containers[0].cpu_request,
            allowed: cpus.to_string(),
            quota: None,
            decided: claims.get(&pod.name).map(|(cpus, _)| cpus.to_string()),
            mixed: claims.get(&pod.name).is_some_and(|(_, mixed)| *mixed),
            mems: String::new(),
            environment: Vec::new(),
        };
        let busy = |(pod, cpus): (&Pod, &CpuSet)| BusyView {
            name: pod.name.clone(),
            allowed: cpus.to_string(),
            ran: cpus.to_string(),
            set: cpus.to_string(),
        };
        let hardware = Hardware::of(&self.shape.topology);
        View {
            read: hardware.clone(),
            hardware,
            busy: running.clone().map(busy).collect(),
            containers: running.map(container).collect(),
        }
    }
}

/// A pod and its only container as a runtime reports them.
fn reported(pod: &Pod) -> Result<(ledger::Pod, ledger::Container), String> {
    let [only] = &pod.containers[..] else { return Err("several containers".to_owned()) };
    let milli = |amount: i64| Some(MilliCpu(u64::try_from(amount).unwrap()));
    let reported = ledger::Pod {
        sandbox: SandboxId(pod.name.clone()),
        uid: PodUid(pod.uid.clone()),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        qos: match pod.qos() {
            pod::Qos::Guaranteed => Qos::Guaranteed,
            pod::Qos::Burstable => Qos::Burstable,
            pod::Qos::BestEffort => Qos::BestEffort,
        },
        budget: milli(only.cpu_request),
        pool: PoolKind::General,
        annotations: pod.annotations.clone().into_iter().collect(),
        cgroup: None,
    };
    let cpu = CpuRequest {
        request: milli(only.cpu_request),
        limit: milli(only.cpu_limit).filter(|limit| limit.0 > 0),
    };
    let id = ContainerId(pod.name.clone());
    let container = ledger::Container::new(id, reported.sandbox.clone(), &only.name, cpu);
    Ok((reported, container))
}

fn settings(shape: &Shape, config: &str) -> ledger::Settings {
    let config = Config::parse("rehearsal", config).unwrap();
    let config = config.for_node(&NodeIdentity::default()).unwrap();
    config.resolve(&shape.topology).unwrap()
}

/// Plays the scenario on all machines to which it applies, and returns them.
fn rehearse(name: &str) -> Vec<String> {
    let mut scenarios = catalogue::all().into_iter().chain(catalogue::long());
    let scenario = scenarios.find(|scenario| scenario.name == name).unwrap();
    let mut fitting = Vec::new();
    for machine in Machine::names().unwrap() {
        let shape = Shape::of(&Machine::load(&machine).unwrap()).unwrap();
        let Some(script) = scenario.script(&shape) else { continue };
        let mut node = Rehearsal::new(&shape);
        let outcomes: Option<Vec<_>> = script.steps().iter().map(|step| node.play(step)).collect();
        let outcomes = outcomes.unwrap_or_else(|| panic!("{name} needs more than a ledger"));
        let mut wrong = script.judge(&outcomes);
        wrong.retain(|what| !what.ends_with(NO_TEXT));
        assert_eq!(wrong, Vec::<String>::new(), "{name} on {machine}");
        fitting.push(machine);
    }
    fitting
}

/// Options with few tests of the kubelet: each makes a difference on some machines.
#[test]
fn options_make_a_difference() {
    for (name, machines) in [
        (
            "uncore",
            &[
                "arm64-grace",
                "arm64-small",
                "far-siblings",
                "four-caches",
                "kep-4800",
                "kep-4800-small",
                "kep-4800-smt",
                "memory-only",
                "modules",
                "numa",
                "smt4",
                "snc",
                "two-socket",
            ][..],
        ),
        (
            "kep-2902",
            &[
                "arm64-grace",
                "arm64-small",
                "far-siblings",
                "memory-only",
                "modules",
                "numa",
                "snc",
                "two-socket",
            ],
        ),
        ("kep-3327", &["far-siblings", "numa", "snc", "two-socket"]),
        ("kep-3545", &["far-siblings", "llc-as-numa", "numa", "snc", "two-socket"]),
    ] {
        assert_eq!(rehearse(name), machines, "{name}");
    }
}

/// Worked examples and other scripts that only start and remove pods.
#[test]
fn scripts_can_be_passed() {
    for name in
        ["kep-4800", "kep-4800-kubelet", "kep-2625", "kep-4540", "kep-693", "churn", "together"]
    {
        assert!(!rehearse(name).is_empty(), "{name} applies to no machine");
    }
}

/// All of these have a cache without reserved CPUs, and CPUs outside of such caches.
#[test]
fn whole_caches_are_taken_where_there_are_any() {
    let machines = rehearse("uncore-exclusive");
    for machine in ["kep-4800", "kep-4800-smt", "llc-as-numa", "numa", "snc", "two-socket"] {
        assert!(machines.iter().any(|fit| fit == machine), "{machine} is not in {machines:?}");
    }
}

/// Without moves, each of these would fail.
#[test]
fn containers_move_where_caches_are_large_enough() {
    let two = [
        "far-siblings",
        "kep-4800",
        "kep-4800-small",
        "kep-4800-smt",
        "memory-only",
        "modules",
        "two-socket",
    ];
    for name in ["rebalance", "rebalance-compact", "rebalance-stays", "rebalance-young"] {
        assert_eq!(rehearse(name), two, "{name}");
    }
    for name in ["exposed-file", "exposed-file-long"] {
        assert!(two.iter().all(|machine| rehearse(name).contains(&machine.to_string())));
    }
    assert_eq!(rehearse("rebalance-ring"), ["four-caches"]);
}
