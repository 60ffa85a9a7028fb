//! A kubelet and a runtime in one: makes the calls to the ledger that a pod causes.

use super::memory::amounts;
use cpuset::CpuSet;
use ledger::{
    Admission, Channel, Claim, Container, ContainerId, ContainerKind, CpuRequest, CpuSetting,
    Event, Ledger, MemoryClaim, MilliCpu, Pod, PodLevelResources, PodUid, Qos, SandboxId, Settings,
    Update, What,
};
use placement::cores::whole_cores;
use placement::memory_manager::{Amounts, NodeMemoryClaim};
use placement::pod_options::Margin;
use placement::{Hint, Rejection, Scope};
use serde::Deserialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use topology::Topology;

#[derive(Debug, Deserialize)]
pub(crate) struct PodSpec {
    pub(super) name: String,
    qos: String,
    #[serde(default)]
    init: Vec<ContainerSpec>,
    containers: Vec<ContainerSpec>,
    pod_cpu: Option<String>,
    pod_resources: Option<serde_json::Value>,
    devices: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ContainerSpec {
    name: String,
    cpu: Option<String>,
    #[serde(default)]
    restartable: bool,
    memory: Option<String>,
    #[serde(default)]
    hugepages: BTreeMap<String, String>,
    devices: Option<serde_json::Value>,
}

/// What a container got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Granted {
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) memory: Option<NodeMemoryClaim>,
}

/// Exclusive CPUs by container, and the NUMA affinity they were chosen under.
pub(crate) type Admitted = BTreeMap<String, (CpuSet, Hint)>;

impl ContainerSpec {
    fn milli(&self) -> Option<MilliCpu> {
        milli(self.cpu.as_ref()?)
    }

    fn limits(&self) -> Option<Amounts> {
        amounts(self.memory.as_deref(), &self.hugepages)
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
    /// none does, unless these have managers.
    fn is_exclusive(&self, pod_level: bool) -> bool {
        self.qos == "guaranteed" && (self.pod_cpu.is_none() || pod_level)
    }

    pub(super) fn has_own_resources(&self) -> bool {
        self.pod_cpu.is_some()
    }

    /// The most exclusive CPUs at a time: sidecars keep running, init containers run one by one.
    fn budget(&self, has_bubbles: bool, pod_level: bool) -> MilliCpu {
        if let (true, "guaranteed", Some(all)) =
            (has_bubbles, self.qos.as_str(), self.pod_cpu.as_deref().and_then(milli))
        {
            return all;
        }
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
        let budget = if self.is_exclusive(pod_level) { most.max(sidecars + apps) } else { 0 };
        MilliCpu(budget as u64 * 1000)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.all().map(|(_, spec)| &spec.name)
    }

    /// Whether it asks for whole CPUs.
    pub(super) fn is_whole(&self, name: &str) -> bool {
        self.all().any(|(_, spec)| spec.name == name && spec.whole_cpus() > 0)
    }

    pub(super) fn is_init(&self, name: &str) -> bool {
        self.init.iter().any(|spec| spec.name == name && !spec.restartable)
    }

    pub(super) fn is_app(&self, name: &str) -> bool {
        self.containers.iter().any(|spec| spec.name == name)
    }

    /// Whether more decides about it than CPUs and memory.
    pub(super) fn is_beyond_memory(&self) -> bool {
        let devices = self.all().any(|(_, spec)| spec.devices.is_some());
        // The kubelet refuses a fraction of a byte, which no runtime can show.
        let fraction = self
            .all()
            .any(|(_, spec)| spec.memory.as_ref().is_some_and(|memory| memory.ends_with('m')));
        devices || fraction || self.devices.is_some() || self.pod_resources.is_some()
    }

    /// Whether an init container has memory that the kubelet keeps until another one is started.
    pub(super) fn leaves_init_memory(&self) -> bool {
        let of = |spec: &ContainerSpec| spec.limits().is_some_and(|limits| !limits.is_empty());
        self.init.iter().any(|spec| !spec.restartable && of(spec))
    }

    /// Whether an init container has whole CPUs.
    pub(super) fn leaves_init_cpus(&self) -> bool {
        self.init.iter().any(|spec| !spec.restartable && spec.whole_cpus() > 0)
    }

    /// The most memory at a time, as for CPUs.
    fn limits(&self) -> Amounts {
        let mut sidecars = Amounts::new();
        let mut most = Amounts::new();
        for spec in &self.init {
            let mut now = sidecars.clone();
            add(&mut now, &spec.limits().unwrap_or_default());
            if spec.restartable {
                sidecars = now;
            } else {
                raise(&mut most, &now);
            }
        }
        let mut apps = Amounts::new();
        for spec in &self.containers {
            add(&mut apps, &spec.limits().unwrap_or_default());
        }
        add(&mut sidecars, &apps);
        raise(&mut most, &sidecars);
        // As in the kubelet, what only init containers ask for does not count.
        most.retain(|kind, _| apps.contains_key(kind));
        most
    }

    /// Checks that each container of an admitted pod has the memory that it asks for.
    pub(super) fn check_memory(
        &self,
        node: &Node,
        granted: &BTreeMap<String, Granted>,
    ) -> Result<(), String> {
        let counts = node.ledger.settings().memory.is_some() && self.qos == "guaranteed";
        for (_, spec) in self.all() {
            let asked = if counts { spec.limits().unwrap_or_default() } else { Amounts::new() };
            let memory = granted.get(&spec.name).and_then(|granted| granted.memory.as_ref());
            let given = memory.map(|claim| claim.amounts.clone()).unwrap_or_default();
            if given != asked && self.pod_resources.is_none() {
                return Err(format!("{} has {given:?}, not {asked:?}", spec.name));
            }
        }
        Ok(())
    }

    /// What is better about the node's answer to this pod than about the kubelet's, which gives its
    /// containers `theirs`; `None` if nothing is, or something is worse.
    ///
    /// The kubelet may leave CPUs of an ended init container to the pod that the pod does not
    /// request, and needs their NUMA nodes in the affinity of the next containers.
    pub(super) fn is_better(
        &self,
        node: &Node,
        theirs: &BTreeMap<String, CpuSet>,
    ) -> Option<&'static str> {
        let budget = (self.budget(false, node.is_pod_level()).0 / 1000) as usize;
        if !self.leaves_init_cpus() || node.has_bubbles() {
            return None;
        }
        let Some((ours, held)) = node.answered(&self.name) else {
            return if theirs.is_empty() { Some("refused for another reason") } else { None };
        };
        if held.len() > budget {
            return None;
        }
        if theirs.is_empty() {
            return Some("admitted instead of refused");
        }
        let topology = node.ledger.topology();
        let nodes = |cpus: &CpuSet| {
            topology.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus)).count()
        };
        let split = |cpus: &CpuSet| {
            let siblings = whole_cores(topology, cpus) - *cpus;
            topology.cores().iter().filter(|core| !core.cpus.is_disjoint(&siblings)).count()
        };
        let aligns = node.ledger.settings().placement.options.prefer_align_cpus_by_uncorecache;
        let caches = |cpus: &CpuSet| {
            let all = topology.uncores().iter();
            if aligns { all.filter(|cache| !cache.cpus.is_disjoint(cpus)).count() } else { 0 }
        };
        let badness = |cpus: &CpuSet| (nodes(cpus), caches(cpus), split(cpus));
        let mut their_pod = CpuSet::EMPTY;
        for (_, spec) in self.all() {
            let Some(theirs) = theirs.get(&spec.name) else { continue };
            let ours = ours.get(&spec.name)?;
            their_pod |= *theirs;
            if ours == theirs {
                continue;
            }
            // The answers to later containers follow from this one.
            return match badness(ours).cmp(&badness(theirs)) {
                Ordering::Less => Some("fewer NUMA nodes, caches or split cores"),
                Ordering::Equal if their_pod.len() > budget => Some(WITHIN_BUDGET),
                Ordering::Equal | Ordering::Greater => None,
            };
        }
        if their_pod.len() > budget { Some(WITHIN_BUDGET) } else { None }
    }

    /// Checks that each container has as many exclusive CPUs as it requests.
    pub(super) fn check_sizes(&self, admitted: &Admitted, pod_level: bool) -> Result<(), String> {
        for (_, spec) in self.all() {
            // It may share the CPUs of its pod.
            if pod_level && self.pod_cpu.is_some() && spec.whole_cpus() == 0 {
                continue;
            }
            let expect = if self.is_exclusive(pod_level) { spec.whole_cpus() } else { 0 };
            let assigned = admitted.get(&spec.name).map_or(0, |(cpus, _)| cpus.len());
            if assigned != expect {
                return Err(format!("{} has {assigned} CPUs, not {expect}", spec.name));
            }
        }
        Ok(())
    }
}

fn milli(cpu: &str) -> Option<MilliCpu> {
    let milli = match cpu.strip_suffix('m') {
        Some(milli) => milli.parse().ok()?,
        None => cpu.parse::<u64>().ok()? * 1000,
    };
    Some(MilliCpu(milli))
}

fn add(to: &mut Amounts, other: &Amounts) {
    other.iter().for_each(|(kind, bytes)| *to.entry(*kind).or_default() += bytes);
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (kind, bytes) in other {
        let least = to.entry(*kind).or_default();
        *least = (*least).max(*bytes);
    }
}

fn claim(pod: &Pod, container: &Container, cpus: CpuSet) -> Claim {
    Claim {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
        id: container.id.clone(),
        cpus,
        margin: Margin::NONE,
        mixed: false,
        lent: false,
        cpu: container.cpu,
    }
}

const WITHIN_BUDGET: &str = "no CPUs beyond the pod's budget";

/// A node whose runtime carries out every answer.
pub(crate) struct Node {
    pub(crate) ledger: Ledger,
    /// Pods that were admitted, and their running containers, as the runtime lists them.
    live: BTreeMap<String, (Pod, Vec<Container>)>,
    serial: usize,
    /// What the containers of the last pod got.
    granted: BTreeMap<String, Granted>,
    /// The last NUMA affinity.
    hint: Hint,
}

impl Node {
    pub(crate) fn with_settings(topology: Topology, settings: Settings) -> Node {
        Node {
            ledger: Ledger::new(topology, settings, Vec::new()),
            live: BTreeMap::new(),
            serial: 0,
            granted: BTreeMap::new(),
            hint: Hint::ANY,
        }
    }

    /// Whether pods with resources of their own have CPUs of their own.
    pub(crate) fn is_pod_level(&self) -> bool {
        self.ledger.settings().pod_level_resources == PodLevelResources::OwnPool
    }

    fn has_bubbles(&self) -> bool {
        let scope = self.ledger.settings().placement.topology_manager.scope;
        self.is_pod_level() && scope == Scope::Pod
    }

    /// The kubelet's default set: the shared pool without the CPUs that ended containers lend to
    /// it.
    pub(crate) fn shared(&self) -> CpuSet {
        self.ledger.pool() - self.ledger.exclusive()
    }

    /// As [`Node::admit`], with what each container got, memory included.
    pub(crate) fn admit_all(
        &mut self,
        spec: &PodSpec,
    ) -> Result<Result<BTreeMap<String, Granted>, Rejection>, String> {
        let admitted = self.admit(spec)?;
        Ok(admitted.map(|_| std::mem::take(&mut self.granted)))
    }

    /// Starts a pod's containers one after another. A refusal ends the pod, as with the kubelet.
    /// The outer error is a defect.
    pub(crate) fn admit(&mut self, spec: &PodSpec) -> Result<Result<Admitted, Rejection>, String> {
        self.granted.clear();
        let pod = self.pod(spec)?;
        self.event(Event::RunPod(pod.clone()))?;
        self.live.insert(spec.name.clone(), (pod.clone(), Vec::new()));
        let mut admitted = Admitted::new();
        let mut sharing = BTreeSet::new();
        for (kind, spec) in spec.all() {
            let container = self.container(&pod, kind, spec);
            match self.start(&pod, container)? {
                Ok(Some(exclusive)) => {
                    admitted.insert(spec.name.clone(), exclusive);
                }
                // The kubelet counts the own pool of a pod to each container that shares it.
                Ok(None) => {
                    if let Some(own_pool) = self.own_pool(&pod) {
                        sharing.insert(spec.name.clone());
                        admitted.insert(spec.name.clone(), (own_pool, self.hint));
                    }
                }
                Err(rejection) => {
                    self.remove(&pod.name)?;
                    return Ok(Err(rejection));
                }
            }
        }
        // Of those that share an own pool, all but init containers have what is left of it now.
        if let Some(own_pool) = self.own_pool(&pod) {
            for (name, (cpus, _)) in &mut admitted {
                if sharing.contains(name) && !spec.is_init(name) {
                    *cpus = own_pool;
                }
            }
        }
        Ok(Ok(admitted))
    }

    fn own_pool(&self, pod: &Pod) -> Option<CpuSet> {
        let is_its = |claim: &Claim| claim.pod_uid == pod.uid && claim.container.is_empty();
        self.ledger.claims().find(is_its).map(|claim| claim.cpus)
    }

    /// Creates and starts a container; an init container runs to its end.
    fn start(
        &mut self,
        pod: &Pod,
        container: Container,
    ) -> Result<Result<Option<(CpuSet, Hint)>, Rejection>, String> {
        self.ledger.take_notes();
        let create = Admission::Create { pod: pod.clone(), container: container.clone() };
        let decided = match self.decide(create)? {
            Ok(setting) => setting,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let is_it =
            |claim: &MemoryClaim| claim.pod_uid == pod.uid && claim.container == container.name;
        let memory = self.ledger.memory_claims().find(is_it).map(|claim| claim.memory);
        let exclusive =
            decided.as_ref().filter(|setting| setting.is_exclusive()).map(|setting| setting.cpus());
        let granted = Granted { cpus: exclusive, memory };
        self.granted.insert(container.name.clone(), granted);
        let Some(setting) = decided else {
            return self.started(pod, container).map(|()| Ok(None));
        };
        let mut assigned = None;
        for note in self.ledger.take_notes() {
            match note.what {
                What::Assigned { placement, .. } => {
                    assigned = Some((placement.cpus, placement.hint));
                    self.hint = placement.hint;
                }
                What::PodAssigned { placement, .. } => self.hint = placement.hint,
                _ => {}
            }
        }
        if setting.is_exclusive() != assigned.is_some_and(|(cpus, _)| cpus == setting.cpus()) {
            return Err(format!(
                "{} is pinned to {:?}, logged {assigned:?}",
                container.name, setting
            ));
        }
        let mut cpu = container.cpu;
        // The limit of an exclusive container is lifted.
        if setting.is_exclusive() {
            cpu.limit = None;
        }
        let (cpus, mems) = (Some(setting.cpus()), setting.mems());
        self.started(pod, Container { cpus, mems, cpu, ..container })?;
        Ok(Ok(assigned))
    }

    /// A container runs, and an init container runs to its end.
    fn started(&mut self, pod: &Pod, container: Container) -> Result<(), String> {
        let started = Event::Started { pod: pod.clone(), container: container.clone() };
        self.event(started)?;
        if container.kind == ContainerKind::Init {
            self.event(Event::Stop(container.id))?;
        } else if let Some((_, running)) = self.live.get_mut(&pod.name) {
            running.push(container);
        }
        Ok(())
    }

    /// What the containers of the last pod got, and what it holds now; `None` if it was refused.
    pub(super) fn answered(&self, name: &str) -> Option<(BTreeMap<String, CpuSet>, CpuSet)> {
        let (pod, _) = self.live.get(name)?;
        let of_pod = self.ledger.claims().filter(|claim| claim.pod_uid == pod.uid);
        let cpus = |(name, granted): (&String, &Granted)| Some((name.clone(), granted.cpus?));
        Some((self.granted.iter().filter_map(cpus).collect(), of_pod.map(|one| one.cpus).collect()))
    }

    /// Replaces what the last pod got by the kubelet's answer: the plugin starts with its claims.
    pub(super) fn adopt(
        &mut self,
        spec: &PodSpec,
        assigned: &BTreeMap<String, CpuSet>,
    ) -> Result<(), String> {
        let Some((pod, mut running)) = self.live.remove(&spec.name) else { return Ok(()) };
        self.event(Event::StopPod(pod.sandbox.clone()))?;
        if !assigned.is_empty() {
            let mut claims: Vec<Claim> = self.ledger.claims().collect();
            let mut later = CpuSet::EMPTY;
            let all: Vec<(ContainerKind, &ContainerSpec)> = spec.all().collect();
            for (kind, one) in all.into_iter().rev() {
                let Some(cpus) = assigned.get(&one.name) else { continue };
                let container = self.container(&pod, kind, one);
                let claim = claim(&pod, &container, *cpus - later);
                later |= *cpus;
                if !claim.cpus.is_empty() {
                    claims.push(claim);
                }
                if let Some(known) = running.iter_mut().find(|known| known.name == one.name) {
                    *known = Container { cpus: Some(*cpus), id: container.id, ..known.clone() };
                }
            }
            self.live.insert(spec.name.clone(), (pod, running));
            let (topology, settings) = (self.ledger.topology(), self.ledger.settings());
            self.ledger = Ledger::new(topology.clone(), settings.clone(), claims);
            self.synchronize()?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), String> {
        let Some((pod, _)) = self.live.remove(name) else { return Ok(()) };
        self.event(Event::StopPod(pod.sandbox))?;
        Ok(())
    }

    /// Restarts the plugin with its claims: exclusive containers must keep their CPUs.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        let claims = self.ledger.claims().collect();
        let memory = self.ledger.memory_claims().collect();
        let topology = self.ledger.topology().clone();
        let settings = self.ledger.settings().clone();
        self.ledger = Ledger::new(topology, settings, claims).with_memory(memory);
        self.synchronize()
    }

    fn synchronize(&mut self) -> Result<(), String> {
        let pods = self.live.values().map(|(pod, _)| pod.clone()).collect();
        let containers = self.live.values().flat_map(|(_, running)| running.clone()).collect();
        let updates = self.event(Event::Synchronize { pods, containers })?;
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
                container.mems = update.setting.mems().or(container.mems);
            }
        }
    }

    /// The pod as the runtime reports it.
    pub(crate) fn pod(&mut self, spec: &PodSpec) -> Result<Pod, String> {
        self.serial += 1;
        Ok(Pod {
            sandbox: SandboxId(format!("sandbox-{}", self.serial).into()),
            uid: PodUid(format!("uid-{}", self.serial).into()),
            namespace: "default".to_owned(),
            name: spec.name.clone(),
            qos: match spec.qos.as_str() {
                "guaranteed" => Qos::Guaranteed,
                "burstable" => Qos::Burstable,
                "besteffort" => Qos::BestEffort,
                other => return Err(format!("unknown class {other}")),
            },
            budget: Some(spec.budget(self.has_bubbles(), self.is_pod_level())),
            limits: spec.limits(),
            own_resources: Some(spec.has_own_resources()),
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
        let limits = match pod.qos {
            Qos::Guaranteed => spec.limits().unwrap_or_default(),
            _ => Amounts::new(),
        };
        Container {
            kind,
            limits,
            ..Container::new(
                ContainerId(format!("id-{}", self.serial).into()),
                pod.sandbox.clone(),
                spec.name.clone(),
                cpu,
            )
        }
    }
}
