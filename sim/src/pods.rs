//! Pods as the kubelet knows them, and their messages as the runtime sends them.

use crate::devices::PodDevice;
use crate::dice::Dice;
use crate::refusals::Excess;
use crate::settings::Settings;
use cpuset::CpuSet;
use ledger::annotations::DOMAIN;
use ledger::pod_option::PodOption;
use nri::wire;
use placement::IsolatedCpus;
use placement::memory_manager::{Amounts, MemoryKind};
use protobuf::MessageField;
use std::collections::HashMap;
use std::time::Duration;

pub const GI: u64 = 1 << 30;
/// The only huge pages that pods ask for, and the name of their size in messages.
pub const HUGE_PAGES: MemoryKind = MemoryKind::HugePages(2 << 20);
const HUGE_PAGE_SIZE: &str = "2MB";

pub type PodId = u32;
pub type Serial = u32;

/// The namespace of pods in the kubelet's system partition, if it has one.
const SYSTEM_NAMESPACE: &str = "infra";

/// The annotation of pods in a workload of CRI-O.
const WORKLOAD: &str = "target.workload.openshift.io/management";

/// The pod option for both exclusive and shared CPUs.
pub const MIXED: (&str, &str) = ("cpus", "exclusive+shared");

/// Keys and values of pod options about interrupts and latency. Keys of the plugin lack their domain.
const QUIET_POD_OPTIONS: [(&str, &str); 11] = [
    ("interrupts", "leave"),
    ("interrupts", "away"),
    ("interrupts", "housekeeping"),
    ("c-states", "disable"),
    ("c-states", "max-latency:10"),
    ("frequency-governor", "performance"),
    ("min-frequency", "2GHz"),
    ("max-frequency", "3GHz"),
    ("irq-load-balancing.crio.io", "disable"),
    ("cpu-c-states.crio.io", "max_latency:10"),
    ("cpu-quota.crio.io", "disable"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Class {
    #[default]
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Class {
    /// The class in the names of cgroups.
    fn name(self) -> &'static str {
        match self {
            Class::Guaranteed => "",
            Class::Burstable => "burstable",
            Class::BestEffort => "besteffort",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It ends before the next container starts.
    Init,
    /// It starts like an init container and continues to run.
    Sidecar,
    App,
    /// Added to a running pod by `kubectl debug`, without resources.
    Debug,
}

/// Limits in bytes; 0 if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryLimits {
    pub memory: u64,
    /// Of pages of 2 MiB.
    pub huge_pages: u64,
}

/// A container of a pod's template, and the kubelet's state of it.
#[derive(Debug, Clone)]
pub struct Slot {
    pub name: String,
    pub kind: Kind,
    /// In thousandths of a CPU; 0 if there is none.
    pub request: u64,
    pub limit: u64,
    pub memory: MemoryLimits,
    pub instance: Option<Serial>,
    /// Whether it is an init container that has succeeded, or a debug container that has ended.
    pub done: bool,
    pub attempts: u32,
    pub not_before: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sandbox {
    #[default]
    None,
    /// The runtime is making it.
    Starting,
    Ready,
    Stopping,
    Stopped,
    Removed,
}

#[derive(Debug, Clone, Default)]
pub struct Pod {
    pub id: PodId,
    pub class: Class,
    /// `spec.resources` of the pod, in thousandths of a CPU.
    pub resources: Option<u64>,
    pub slots: Vec<Slot>,
    pub sandbox: Sandbox,
    /// The number of sandboxes that it has had.
    pub sandboxes: u32,
    /// The pid of the pause process.
    pub pause: Option<u32>,
    /// The grace period of a deleted pod.
    pub deleted: Option<Duration>,
    /// Whether the kubelet removes all of its containers, to create them again in order.
    pub starts_over: bool,
    /// Whether the runtime is doing something for this pod.
    pub busy: bool,
    /// Whether it is a pod of the plugin.
    pub is_plugin: bool,
    /// Whether it comes from a manifest on the node: its uid has no dashes.
    pub is_static: bool,
    pub namespace: &'static str,
    /// Whether it is in the kubelet's system partition.
    pub is_system: bool,
    pub annotations: Vec<(String, String)>,
    pub devices: Vec<PodDevice>,
    pub excess: Option<Excess>,
    /// Whether the runtime will report the end of the pod.
    pub is_reported: bool,
    /// Whether a container was resized, so that the resources in the template are outdated.
    pub resized: bool,
    pub dice: Dice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// The runtime is calling plugins.
    #[default]
    Creating,
    Created,
    /// Its process exists, but the runtime does not list it as running yet.
    Starting,
    Running,
    Exited,
    /// The runtime has lost track of it.
    Unknown,
}

/// An instance of a container in the runtime.
#[derive(Debug, Clone, Default)]
pub struct Container {
    pub serial: Serial,
    pub pod: PodId,
    pub slot: usize,
    pub state: State,
    pub request: u64,
    pub limit: u64,
    pub memory: MemoryLimits,
    /// The CPUs in its OCI specification; empty if none are set.
    pub cpus: String,
    pub mems: String,
    /// CPUs and quota at its creation: CRI-O lists these after a restart.
    pub created_with: (String, i64),
    pub quota: i64,
    /// Its process; it has a cgroup as long as it has a process.
    pub pid: Option<u32>,
    /// A process in a cgroup that the container has made within its own.
    pub inner: Option<u32>,
    /// The exclusive CPUs that the plugin gave it by answers that reached the runtime.
    pub exclusive: Option<CpuSet>,
    /// Whether it has both exclusive and shared CPUs. No answer says which ones are exclusive.
    pub mixed: bool,
    pub stop_reported: bool,
    /// Whether it has ended without ever running.
    pub never_ran: bool,
    /// Until then the runtime lists it although it has ended.
    pub listed_until: Duration,
    /// Whether the kubelet is ending it.
    pub is_ending: bool,
    /// Whether the kubelet's CPU manager has named CPUs for it, which stay set.
    pub is_named: bool,
    /// Whether CRI-O has set its CPUs before the plugin saw it.
    pub is_preset: bool,
    /// Whether its request or its CPUs have changed while no plugin was connected.
    pub is_uncertain: bool,
    /// Whether the kubelet is trying to resize it.
    pub resizing: bool,
    pub created_at: i64,
}

impl Slot {
    pub fn new(name: String, kind: Kind, request: u64, limit: u64) -> Slot {
        Slot {
            name,
            kind,
            request,
            limit,
            memory: MemoryLimits::default(),
            instance: None,
            done: false,
            attempts: 0,
            not_before: Duration::ZERO,
        }
    }
}

impl Container {
    /// Records the CPUs of an answer without a CFS quota. If the container asks to be mixed, CPUs
    /// beyond the number that it requests are shared.
    pub fn given(&mut self, cpus: &str, pod_options_mixed: bool) {
        let cpus: Option<CpuSet> = cpus.parse().ok();
        let is_more = cpus.is_some_and(|cpus| cpus.len() as u64 > self.request / 1000);
        self.mixed = pod_options_mixed && is_more;
        self.exclusive = if self.mixed { None } else { cpus };
    }

    /// Whether another program than the plugin has set its CPUs.
    pub fn is_set_by_others(&self) -> bool {
        self.is_named || self.is_preset
    }

    pub fn has_exclusive(&self) -> bool {
        self.exclusive.is_some() || self.mixed
    }

    /// Its state in NRI messages. A container that is starting or never ran is still created there. One
    /// that has ended is running until the runtime has recorded the end.
    fn wire_state(&self) -> wire::ContainerState {
        match self.state {
            State::Created | State::Starting => wire::ContainerState::CONTAINER_CREATED,
            State::Exited if self.never_ran => wire::ContainerState::CONTAINER_CREATED,
            State::Running | State::Exited => wire::ContainerState::CONTAINER_RUNNING,
            State::Creating | State::Unknown => wire::ContainerState::CONTAINER_UNKNOWN,
        }
    }

    /// The quota that plugins have set, or else the kubelet's.
    pub fn cfs_quota(&self) -> i64 {
        if self.quota == 0 { quota(self.limit) } else { self.quota }
    }
}

/// The kubelet's CFS quota for a limit; 0 if there is none.
pub fn quota(limit: u64) -> i64 {
    (limit * 100) as i64
}

pub fn id(serial: Serial) -> String {
    format!("c{serial}")
}

pub fn serial(id: &str) -> Option<Serial> {
    id.strip_prefix('c')?.parse().ok()
}

impl Pod {
    pub fn roll(id: PodId, settings: &Settings, mut dice: Dice) -> Pod {
        // Separate dice, so that the other choices of a seed do not depend on memory.
        let mut memory_dice = dice.clone();
        let class = match dice.below(5) {
            0..=2 => Class::Guaranteed,
            3 => Class::Burstable,
            _ => Class::BestEffort,
        };
        let most = (settings.machine.sockets * settings.machine.cores * settings.machine.threads)
            .saturating_sub(1);
        let mut slots = Vec::new();
        let mut add = |dice: &mut Dice, kind: Kind, number: usize| {
            let name = match kind {
                Kind::Init => format!("init{number}"),
                Kind::Sidecar => format!("side{number}"),
                _ => format!("app{number}"),
            };
            let (request, limit) = match class {
                Class::Guaranteed => {
                    let most = (most / 2).clamp(1, settings.machine.threads.max(6));
                    let whole = 1 + dice.below(most) as u64;
                    let milli = if dice.percent(75) { whole * 1000 } else { whole * 1000 - 500 };
                    (milli, milli)
                }
                Class::Burstable => {
                    let request = dice.pick(&[100, 250, 1000, 2000]);
                    (request, dice.pick(&[0, request + 500]))
                }
                Class::BestEffort => (0, 0),
            };
            slots.push(Slot::new(name, kind, request, limit));
        };
        if dice.percent(25) {
            add(&mut dice, Kind::Init, 0);
        }
        if dice.percent(15) {
            add(&mut dice, Kind::Sidecar, 0);
        }
        for number in 0..dice.pick(&[1, 1, 1, 2, 3]) {
            add(&mut dice, Kind::App, number);
        }
        if class == Class::Guaranteed || (class == Class::Burstable && memory_dice.percent(30)) {
            for slot in &mut slots {
                slot.memory = MemoryLimits::roll(&mut memory_dice);
            }
        }
        let mut pod = Pod::bare(id, class, slots, dice);
        pod.is_static = pod.dice.percent(10);
        pod.namespace = pod.dice.pick(&["sim", "trading", "trading", "batch-1", SYSTEM_NAMESPACE]);
        pod.is_system = settings.system_partition.is_some() && pod.namespace == SYSTEM_NAMESPACE;
        let is_allowed = settings.configuration.has("namespaces");
        pod.pod_option(is_allowed);
        pod.ask_for_quiet(is_allowed, &mut memory_dice);
        pod.get_devices();
        // In a pod with pod-level resources, some containers have no resources.
        if class == Class::Guaranteed && pod.dice.percent(20) {
            pod.resources = Some(pod.sum(|slot| slot.request));
            let apps = pod.slots.len();
            let silent = pod.dice.below(apps + 1);
            if let Some(slot) = pod.slots.get_mut(silent) {
                (slot.request, slot.limit) = (0, 0);
            }
        }
        pod.exceed(&mut memory_dice);
        pod
    }

    /// Gives some pods pod options. At most one is about CPUs, so that it is clear which one counts.
    fn pod_option(&mut self, is_allowed: bool) {
        // Those about interrupts have separate dice.
        let pod_options =
            PodOption::all().filter(|pod_option| !matches!(pod_option, PodOption::Interrupts(_)));
        let pod_options: Vec<String> =
            pod_options.map(|pod_option| pod_option.to_string()).collect();
        let mut is_about_cpus = false;
        // A pod with a pod option that is not allowed is refused for ever, so these are rare.
        let chance = if is_allowed && self.namespace == "trading" { 50 } else { 2 };
        while self.dice.percent(chance) {
            let pod_option = &pod_options[self.dice.below(pod_options.len())];
            let Some((key, value)) = pod_option.split_once(": ") else { continue };
            if key == "cpus" && std::mem::replace(&mut is_about_cpus, true) {
                continue;
            }
            let name = &self.slots[self.dice.below(self.slots.len())].name;
            let scope = [String::new(), "/pod".to_owned(), format!("/container.{name}")];
            let scope = &scope[self.dice.below(scope.len())];
            let value = if self.dice.percent(3) { "perhaps" } else { value };
            self.annotations.push((format!("{key}{DOMAIN}{scope}"), value.to_owned()));
        }
    }

    /// Gives some pods pod options about interrupts and latency, in annotations of the plugin and
    /// of CRI-O.
    fn ask_for_quiet(&mut self, is_allowed: bool, dice: &mut Dice) {
        let chance = if is_allowed && self.namespace == "trading" { 30 } else { 1 };
        while dice.percent(chance) {
            let name = self.slots[dice.below(self.slots.len())].name.clone();
            let (key, value) = dice.pick(&QUIET_POD_OPTIONS);
            let scopes = if key.ends_with(".crio.io") {
                [key.to_owned(), key.to_owned(), format!("{key}/{name}")]
            } else {
                let key = format!("{key}{DOMAIN}");
                [key.clone(), format!("{key}/pod"), format!("{key}/container.{name}")]
            };
            let key = scopes[dice.below(scopes.len())].clone();
            self.annotations.push((key, value.to_owned()));
        }
    }

    pub fn bare(id: PodId, class: Class, slots: Vec<Slot>, dice: Dice) -> Pod {
        Pod { id, class, slots, is_reported: true, namespace: "sim", dice, ..Pod::default() }
    }

    /// The kubelet's sum over a pod: all containers that run together, or the largest init container with
    /// the sidecars.
    fn sum(&self, of: impl Fn(&Slot) -> u64) -> u64 {
        let is = |slot: &&Slot, kind| slot.kind == kind;
        let together = self.slots.iter().filter(|slot| !is(slot, Kind::Init)).map(&of).sum::<u64>();
        let sidecars: u64 = self.slots.iter().filter(|s| is(s, Kind::Sidecar)).map(&of).sum();
        let init = self.slots.iter().filter(|slot| is(slot, Kind::Init)).map(&of).max();
        together.max(init.map_or(0, |init| init + sidecars))
    }

    pub fn request(&self) -> u64 {
        self.resources.unwrap_or_else(|| self.sum(|slot| slot.request))
    }

    /// 0 if there is none, as where a container has no limit.
    pub fn limit(&self) -> u64 {
        if let Some(all) = self.resources {
            return all;
        }
        let unlimited = self.slots.iter().any(|s| s.kind != Kind::Debug && s.limit == 0);
        if unlimited { 0 } else { self.sum(|slot| slot.limit) }
    }

    pub fn memory(&self) -> MemoryLimits {
        let is_unlimited = |slot: &Slot| slot.kind != Kind::Debug && slot.memory.memory == 0;
        let memory = if self.slots.iter().any(is_unlimited) {
            0
        } else {
            self.sum(|slot| slot.memory.memory)
        };
        MemoryLimits { memory, huge_pages: self.sum(|slot| slot.memory.huge_pages) }
    }

    /// Request and limit that the runtime gets: those of the pod if the container has none.
    pub fn of_container(&self, slot: usize) -> (u64, u64) {
        let Slot { request, limit, .. } = self.slots[slot];
        match self.resources {
            Some(all) if request == 0 && limit == 0 => (all, all),
            _ => (request, limit),
        }
    }

    pub fn is_guaranteed(&self) -> bool {
        self.class == Class::Guaranteed
    }

    /// Whether it is one of the pods whose CPUs are set before the plugin sees them.
    pub fn is_preset(&self, settings: &Settings) -> bool {
        settings.workload && !self.is_guaranteed() && !self.is_plugin && self.id % 4 == 3
    }

    /// Whether these CPUs are those of a workload of CRI-O. Another plugin has set those of the others.
    pub fn is_in_workload(&self, settings: &Settings) -> bool {
        self.is_preset(settings) && self.id % 8 == 3
    }

    pub fn uid(&self) -> String {
        format!("u{}{}", if self.is_static { "" } else { "-" }, self.id)
    }

    /// Whether an annotation has the pod option `KEY: VALUE` for a container.
    pub fn pod_options(&self, slot: usize, pod_option: (&str, &str)) -> bool {
        let name = &self.slots[slot].name;
        self.annotations.iter().any(|(key, value)| {
            let (key, scope) = key.split_once('/').unwrap_or((key, "pod"));
            let is_for = scope == "pod" || scope.strip_prefix("container.") == Some(name);
            is_for && key.strip_suffix(DOMAIN) == Some(pod_option.0) && value == pod_option.1
        })
    }

    /// The values of all annotations about isolated CPUs for a container.
    pub fn isolated_pod_options(&self, slot: usize) -> Vec<&'static str> {
        let names = IsolatedCpus::ALL.map(IsolatedCpus::name).into_iter();
        names.filter(|value| self.pod_options(slot, ("isolated-cpus", value))).collect()
    }

    pub fn sandbox_id(&self) -> String {
        format!("s{}x{}", self.id, self.sandboxes)
    }

    pub fn wire(&self, settings: &Settings) -> wire::PodSandbox {
        let linux = wire::LinuxPodSandbox {
            pod_resources: resources(self.request(), quota(self.limit()), "", "", self.memory()),
            cgroup_parent: Paths(settings).cgroup_parent(self),
            ..Default::default()
        };
        let workload = (WORKLOAD.to_owned(), "{}".to_owned());
        let workload = if self.is_in_workload(settings) { Some(workload) } else { None };
        wire::PodSandbox {
            id: self.sandbox_id(),
            name: format!("pod{}", self.id),
            uid: self.uid(),
            namespace: self.namespace.to_owned(),
            labels: self.labels(),
            annotations: self.annotations.iter().cloned().chain(workload).collect(),
            linux: MessageField::some(linux),
            ..Default::default()
        }
    }

    fn labels(&self) -> HashMap<String, String> {
        HashMap::from([("io.kubernetes.pod.uid".to_owned(), self.uid())])
    }

    pub fn wire_container(&self, container: &Container, settings: &Settings) -> wire::Container {
        let name = self.slots[container.slot].name.clone();
        let mut labels = self.labels();
        labels.insert("io.kubernetes.container.name".to_owned(), name.clone());
        let request = container.request;
        let quota = container.cfs_quota();
        let linux = wire::LinuxContainer {
            resources: resources(
                request,
                quota,
                &container.cpus,
                &container.mems,
                container.memory,
            ),
            cgroups_path: Paths(settings).cgroups_path(self, &id(container.serial)),
            devices: self.device_files(container.slot),
            ..Default::default()
        };
        wire::Container {
            id: id(container.serial),
            pod_sandbox_id: self.sandbox_id(),
            name,
            labels,
            state: container.wire_state().into(),
            env: self.environment(container.slot),
            linux: MessageField::some(linux),
            created_at: container.created_at,
            ..Default::default()
        }
    }
}

fn int(value: i64) -> MessageField<wire::OptionalInt64> {
    MessageField::some(wire::OptionalInt64 { value, ..Default::default() })
}

fn unsigned(value: u64) -> MessageField<wire::OptionalUInt64> {
    MessageField::some(wire::OptionalUInt64 { value, ..Default::default() })
}

impl MemoryLimits {
    /// Several fit a NUMA node, and few need two.
    fn roll(dice: &mut Dice) -> MemoryLimits {
        let memory = dice.pick(&[1, 1, 2, 2, 3, 5, 8, 20]) * GI;
        let huge_pages = if dice.percent(15) { dice.pick(&[GI / 4, GI / 2, GI]) } else { 0 };
        MemoryLimits { memory, huge_pages }
    }

    pub fn amounts(self) -> Amounts {
        let MemoryLimits { memory, huge_pages } = self;
        let all = [(MemoryKind::Memory, memory), (HUGE_PAGES, huge_pages)];
        all.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// The resources of a request that changes nothing but memory.
    pub fn resources(self) -> wire::LinuxResources {
        let memory = if self.memory == 0 {
            MessageField::none()
        } else {
            let limit = int(self.memory as i64);
            MessageField::some(wire::LinuxMemory { limit, ..Default::default() })
        };
        let page_size = HUGE_PAGE_SIZE.to_owned();
        let limit = self.huge_pages;
        let huge_pages = wire::HugepageLimit { page_size, limit, ..Default::default() };
        let hugepage_limits = if limit == 0 { Vec::new() } else { vec![huge_pages] };
        wire::LinuxResources { memory, hugepage_limits, ..Default::default() }
    }
}

/// The resources that a kubelet makes of a request in thousandths of a CPU, and of limits of memory.
pub fn resources(
    request: u64,
    quota: i64,
    cpus: &str,
    mems: &str,
    memory: MemoryLimits,
) -> MessageField<wire::LinuxResources> {
    let quota = if quota == 0 { MessageField::none() } else { int(quota) };
    let cpu = wire::LinuxCPU {
        shares: unsigned((request * 1024 / 1000).max(2)),
        quota,
        period: unsigned(100_000),
        cpus: cpus.to_owned(),
        mems: mems.to_owned(),
        ..Default::default()
    };
    MessageField::some(wire::LinuxResources { cpu: Some(cpu).into(), ..memory.resources() })
}

/// Paths of cgroups below the mount point, by driver and runtime.
pub struct Paths<'a>(pub &'a Settings);

impl Paths<'_> {
    pub fn root(&self) -> &'static str {
        if self.0.systemd { "kubepods.slice" } else { "kubepods" }
    }

    /// The kubelet's system partition (KEP-5894).
    pub fn system(&self) -> &'static str {
        if self.0.systemd { "kubepods.slice/kubepods-system.slice" } else { "kubepods/system" }
    }

    /// The cgroup of a class outside the system partition.
    pub fn class(&self, class: Class) -> String {
        self.class_in(self.root(), class)
    }

    /// The parent of a pod's cgroup.
    pub fn class_of(&self, pod: &Pod) -> String {
        self.class_in(if pod.is_system { self.system() } else { self.root() }, pod.class)
    }

    fn class_in(&self, above: &str, class: Class) -> String {
        match class.name() {
            "" => above.to_owned(),
            name => self.below(above, name),
        }
    }

    /// A slice's own name repeats the names of all slices above it.
    fn below(&self, above: &str, name: &str) -> String {
        if !self.0.systemd {
            return format!("{above}/{name}");
        }
        let slice = above.rsplit('/').next().and_then(|last| last.strip_suffix(".slice"));
        format!("{above}/{}-{name}.slice", slice.expect("a slice"))
    }

    pub fn pod(&self, pod: &Pod) -> String {
        let uid = pod.uid();
        let uid = if self.0.systemd { uid.replace('-', "_") } else { uid };
        self.below(&self.class_of(pod), &format!("pod{uid}"))
    }

    /// The last part of a pod's path, which is how CRI-O and OCI runtimes name the slice.
    fn slice(&self, pod: &Pod) -> String {
        self.pod(pod).rsplit('/').next().expect("a path").to_owned()
    }

    pub fn container(&self, pod: &Pod, id: &str) -> String {
        let prefix = if self.0.is_crio() { "crio-" } else { "cri-containerd-" };
        let pod = self.pod(pod);
        match (self.0.systemd, self.0.is_crio()) {
            (true, _) => format!("{pod}/{prefix}{id}.scope"),
            (false, true) => format!("{pod}/{prefix}{id}"),
            (false, false) => format!("{pod}/{id}"),
        }
    }

    fn cgroup_parent(&self, pod: &Pod) -> String {
        if self.0.systemd && self.0.is_crio() {
            self.slice(pod)
        } else {
            format!("/{}", self.pod(pod))
        }
    }

    fn cgroups_path(&self, pod: &Pod, id: &str) -> String {
        if self.0.systemd {
            let prefix = if self.0.is_crio() { "crio" } else { "cri-containerd" };
            format!("{}:{prefix}:{id}", self.slice(pod))
        } else {
            format!("/{}", self.container(pod, id))
        }
    }
}
