//! A kubelet and a runtime in one: makes the calls to the ledger that a pod causes.

use cpuset::CpuSet;
use ledger::{
    Admission, Channel, Container, ContainerId, ContainerKind, CpuRequest, CpuSetting, Event,
    Ledger, MilliCpu, Pod, PodUid, Policy, Qos, SandboxId, Settings, Update, What,
};
use placement::{self, Hint, Rejection};
use serde::Deserialize;
use std::collections::BTreeMap;
use topology::Topology;

#[derive(Debug, Deserialize)]
pub(crate) struct PodSpec {
    name: String,
    qos: String,
    #[serde(default)]
    init: Vec<ContainerSpec>,
    containers: Vec<ContainerSpec>,
    pod_cpu: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ContainerSpec {
    name: String,
    cpu: Option<String>,
    #[serde(default)]
    restartable: bool,
}

/// Exclusive CPUs by container, and the NUMA affinity they were chosen under.
pub(crate) type Admitted = BTreeMap<String, (CpuSet, Hint)>;

impl ContainerSpec {
    fn milli(&self) -> Option<MilliCpu> {
        let cpu = self.cpu.as_ref()?;
        let milli = match cpu.strip_suffix('m') {
            Some(milli) => milli.parse().ok()?,
            None => cpu.parse::<u64>().ok()? * 1000,
        };
        Some(MilliCpu(milli))
    }

    fn whole_cpus(&self) -> usize {
        self.milli().and_then(MilliCpu::whole_cpus).unwrap_or(0)
    }
}

impl PodSpec {
    /// All containers in the order in which they are created.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ContainerKind, &ContainerSpec)> {
        let init = self.init.iter().map(|spec| {
            let sidecar = spec.restartable;
            let kind = if sidecar { ContainerKind::RestartableInit } else { ContainerKind::Init };
            (kind, spec)
        });
        init.chain(self.containers.iter().map(|spec| (ContainerKind::App, spec)))
    }

    /// Whether containers of the pod with whole CPUs get exclusive ones. With pod-level resources
    /// none does, unless an alpha feature is enabled.
    fn is_exclusive(&self) -> bool {
        self.qos == "guaranteed" && self.pod_cpu.is_none()
    }

    /// The most exclusive CPUs at a time: sidecars keep running, init containers run one by one.
    fn budget(&self) -> usize {
        let mut sidecars = 0;
        let mut most = 0;
        for spec in &self.init {
            if spec.restartable {
                sidecars += spec.whole_cpus();
            } else {
                most = most.max(sidecars + spec.whole_cpus());
            }
        }
        let apps: usize = self.containers.iter().map(ContainerSpec::whole_cpus).sum();
        if self.is_exclusive() { most.max(sidecars + apps) } else { 0 }
    }

    /// Checks that each container has as many exclusive CPUs as it requests.
    pub(super) fn check_sizes(&self, admitted: &Admitted) -> Result<(), String> {
        for (_, spec) in self.all() {
            let expect = if self.is_exclusive() { spec.whole_cpus() } else { 0 };
            let assigned = admitted.get(&spec.name).map_or(0, |(cpus, _)| cpus.len());
            if assigned != expect {
                return Err(format!("{} has {assigned} CPUs, not {expect}", spec.name));
            }
        }
        Ok(())
    }
}

/// A node whose runtime carries out every answer.
pub(crate) struct Node {
    pub(crate) ledger: Ledger,
    /// Pods that were admitted, and their running containers, as the runtime lists them.
    live: BTreeMap<String, (Pod, Vec<Container>)>,
    serial: usize,
}

impl Node {
    pub(crate) fn new(topology: Topology, placement: placement::Settings) -> Node {
        let settings = Settings { policy: Policy::Static, placement, ..Settings::default() };
        Node {
            ledger: Ledger::new(topology, settings, Vec::new()),
            live: BTreeMap::new(),
            serial: 0,
        }
    }

    /// The kubelet's default set: the shared pool without the CPUs that ended containers lend to
    /// it.
    pub(crate) fn shared(&self) -> CpuSet {
        self.ledger.pool() - self.ledger.exclusive()
    }

    /// Starts a pod's containers one after another. A refusal ends the pod, as with the kubelet.
    /// The outer error is a defect.
    pub(crate) fn admit(&mut self, spec: &PodSpec) -> Result<Result<Admitted, Rejection>, String> {
        let pod = self.pod(spec)?;
        self.event(Event::RunPod(pod.clone()))?;
        self.live.insert(spec.name.clone(), (pod.clone(), Vec::new()));
        let mut admitted = Admitted::new();
        for (kind, spec) in spec.all() {
            let container = self.container(&pod, kind, spec);
            match self.start(&pod, container)? {
                Ok(Some(exclusive)) => {
                    admitted.insert(spec.name.clone(), exclusive);
                }
                Ok(None) => {}
                Err(rejection) => {
                    self.remove(&pod.name)?;
                    return Ok(Err(rejection));
                }
            }
        }
        Ok(Ok(admitted))
    }

    /// Creates and starts a container; an init container runs to its end.
    fn start(
        &mut self,
        pod: &Pod,
        container: Container,
    ) -> Result<Result<Option<(CpuSet, Hint)>, Rejection>, String> {
        self.ledger.take_notes();
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let setting = match self.decide(create)? {
            Ok(setting) => setting.ok_or("not pinned")?,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let assigned = self.ledger.take_notes().into_iter().find_map(|note| match note.what {
            What::Assigned { placement, .. } => Some((placement.cpus, placement.hint)),
            _ => None,
        });
        if setting.is_exclusive() != assigned.is_some_and(|(cpus, _)| cpus == setting.cpus()) {
            return Err(format!(
                "{} is pinned to {:?}, logged {assigned:?}",
                container.name, setting
            ));
        }
        let started = Event::Started { pod: pod.clone(), container: container.clone() };
        self.event(started)?;
        if container.kind == ContainerKind::Init {
            self.event(Event::Stop(container.id))?;
        } else if let Some((_, running)) = self.live.get_mut(&pod.name) {
            let mut cpu = container.cpu;
            // The limit of an exclusive container is lifted.
            if setting.is_exclusive() {
                cpu.limit = None;
            }
            running.push(Container { cpus: Some(setting.cpus()), cpu, ..container });
        }
        Ok(Ok(assigned))
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), String> {
        let Some((pod, _)) = self.live.remove(name) else { return Ok(()) };
        self.event(Event::StopPod(pod.sandbox))?;
        Ok(())
    }

    /// Restarts the plugin with its claims: exclusive containers must keep their CPUs.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        let claims = self.ledger.claims().collect();
        let topology = self.ledger.topology().clone();
        let settings = self.ledger.settings().clone();
        self.ledger = Ledger::new(topology, settings, claims);
        let pods = self.live.values().map(|(pod, _)| pod.clone()).collect();
        let containers = self.live.values().flat_map(|(_, running)| running.clone()).collect();
        let synchronize = Event::Synchronize { pods, containers };
        let updates = self.event(synchronize)?;
        match updates.iter().find(|update| update.setting.is_exclusive()) {
            Some(update) => Err(format!("a restart moves {update:?}")),
            None => Ok(()),
        }
    }

    /// Decides about a request and carries out the answer: where the new container runs. The outer
    /// error is a defect.
    fn decide(
        &mut self,
        admission: Admission,
    ) -> Result<Result<Option<CpuSetting>, Rejection>, String> {
        let decided = self.ledger.admit(admission);
        self.ledger.check()?;
        let decision = match decided {
            Ok(decision) => decision,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let setting = decision.setting();
        self.carry_out(&decision.due.updates);
        self.ledger.apply(Event::Answered(decision));
        Ok(Ok(setting))
    }

    /// Records an event and carries out the answer: updates of containers. An error is a defect.
    fn event(&mut self, event: Event) -> Result<Vec<Update>, String> {
        let answer_has_updates = event.answer_has_updates();
        self.ledger.apply(event);
        self.ledger.check()?;
        if !answer_has_updates {
            return Ok(Vec::new());
        }
        let due = self.ledger.due(&Channel::Runtime);
        let updates = due.updates.clone();
        self.carry_out(&updates);
        self.ledger.apply(Event::Sent(due));
        Ok(updates)
    }

    fn carry_out(&mut self, updates: &[Update]) {
        for update in updates {
            let mut running = self.live.values_mut().flat_map(|(_, running)| running);
            if let Some(container) = running.find(|running| running.id == update.container) {
                container.cpus = Some(update.setting.cpus());
            }
        }
    }

    /// The pod as the runtime reports it.
    pub(crate) fn pod(&mut self, spec: &PodSpec) -> Result<Pod, String> {
        self.serial += 1;
        Ok(Pod {
            sandbox: SandboxId(format!("sandbox-{}", self.serial)),
            uid: PodUid(format!("uid-{}", self.serial)),
            namespace: "default".to_owned(),
            name: spec.name.clone(),
            qos: match spec.qos.as_str() {
                "guaranteed" => Qos::Guaranteed,
                "burstable" => Qos::Burstable,
                "besteffort" => Qos::BestEffort,
                other => return Err(format!("unknown class {other}")),
            },
            budget: Some(MilliCpu(spec.budget() as u64 * 1000)),
            limits: Default::default(),
            pool: Default::default(),
            annotations: Default::default(),
            cgroup: None,
        })
    }

    /// The container as the runtime reports it in its creation.
    pub(crate) fn container(
        &mut self,
        pod: &Pod,
        kind: ContainerKind,
        spec: &ContainerSpec,
    ) -> Container {
        self.serial += 1;
        let milli = spec.milli();
        let cpu = match pod.qos {
            Qos::Guaranteed => CpuRequest { request: milli, limit: milli },
            Qos::Burstable => CpuRequest { request: milli, limit: None },
            _ => CpuRequest::default(),
        };
        Container {
            kind,
            ..Container::new(
                ContainerId(format!("id-{}", self.serial)),
                pod.sandbox.clone(),
                spec.name.clone(),
                cpu,
            )
        }
    }
}
