//! [`World`]: a node in virtual time, with one queue of events.

use crate::calls::Group;
use crate::configuration::Configuration;
use crate::dice::Dice;
use crate::history::Op;
use crate::kernel::{SimulatedKernel, with_memory};
use crate::kubelet::CpuManager;
use crate::oracle::Oracle;
use crate::plugin::Plugin;
use crate::pods::{Class, Container, Paths, Pod, PodId, Serial, State};
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::trace::Trace;
use cpuset::CpuSet;
use ledger::{Policy, Settings as InForce};
use machines::synthetic::Machine;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::Topology;

/// A change of the world at a time in the queue.
type Event = Box<dyn FnOnce(&mut World)>;

pub struct World {
    pub now: Duration,
    /// The time at which `now` is zero.
    pub base: Instant,
    queue: BTreeMap<(Duration, u64), Event>,
    serial: u64,
    pub settings: Settings,
    /// The plugin's configuration file; `Err` has the text of a file with a mistake.
    pub file: Result<Configuration, &'static str>,
    /// The last configuration that the plugin could use.
    pub usable: Configuration,
    /// The settings of `usable`.
    pub in_force: InForce,
    /// Whether cgroups keep others off exclusive CPUs; otherwise the runtime's updates do.
    pub by_groups: bool,
    /// Whether containers with exclusive CPUs become partitions.
    pub by_partitions: bool,
    pub kernel: SimulatedKernel,
    pub pods: BTreeMap<PodId, Pod>,
    pub containers: BTreeMap<Serial, Container>,
    pub next_pod: PodId,
    pub next_container: Serial,
    /// The pods of all containers, including those that are gone.
    pub pod_of: BTreeMap<Serial, PodId>,
    pub runtime: Runtime,
    /// The kubelet is restarting until then.
    pub kubelet_until: Duration,
    pub cpu_manager: CpuManager,
    pub plugin: Plugin,
    pub oracle: Oracle,
    pub trace: Trace,
    pub ops: Vec<Op>,
    /// The time of the last operation.
    pub last_op: Duration,
    /// For choices without separate dice.
    pub dice: Dice,
    pub violation: Option<String>,
}

impl World {
    pub fn new(settings: Settings, ops: Vec<Op>, seed: u64, keeps_trace: bool) -> World {
        let facts = settings.whole_machine().facts().expect("a machine that exists");
        let base = Instant::now();
        let file = settings.configuration.clone();
        let in_force =
            file.settings(&settings.topology_at_boot()).expect("a configuration that fits");
        let by_groups = file.is_by_groups() && in_force.policy == Policy::Static;
        let mut world = World {
            now: Duration::ZERO,
            base,
            queue: BTreeMap::new(),
            serial: 0,
            usable: file.clone(),
            file: Ok(file),
            kubelet_until: Duration::ZERO,
            cpu_manager: CpuManager::default(),
            in_force,
            by_groups,
            by_partitions: false,
            kernel: SimulatedKernel::new(facts),
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            next_pod: 1,
            next_container: 1,
            pod_of: BTreeMap::new(),
            runtime: Runtime::default(),
            plugin: Plugin::new(Dice::of(seed, 2)),
            oracle: Oracle::default(),
            trace: Trace::new(keeps_trace),
            settings,
            ops,
            last_op: Duration::ZERO,
            dice: Dice::of(seed, 1),
            violation: None,
        };
        world.kernel.lock().privileged = world.settings.privileged;
        world.note_mode();
        world.boot();
        world
    }

    pub fn make_kubelet_cgroups(&mut self) {
        let paths = Paths(&self.settings);
        let classes = [Class::Burstable, Class::BestEffort].map(|class| paths.class(class));
        let root = [paths.root().to_owned()];
        for group in if self.settings.systemd { root.to_vec() } else { classes.to_vec() } {
            self.kernel.lock().make_cgroup(&crate::node::group(&group));
        }
        if let Some(cpus) = self.settings.system_partition {
            let system = Paths(&self.settings).system();
            self.kernel.lock().make_cgroup(&crate::node::group(system));
            let written = self.write(system, "cpuset.cpus", cpus);
            debug_assert!(written.is_ok(), "{written:?}");
        }
        // systemd clears these with the first pod.
        let online = self.kernel.lock().online.to_string();
        let written = self.write(&root[0], "cpuset.cpus", &online);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    /// Takes the CPUs offline that are offline when the machine boots.
    pub fn take_offline(&mut self) {
        let online = self.settings.topology_at_boot().online();
        self.kernel.lock().set_online(online);
    }

    /// Installs the plugin, and queues all operations.
    fn boot(&mut self) {
        self.take_offline();
        self.make_kubelet_cgroups();
        self.install(0);
        // The plugin runs by then.
        self.last_op = Duration::from_secs(5);
        for (index, op) in self.ops.iter().enumerate() {
            self.last_op += op.after;
            let event = Box::new(move |world: &mut World| world.operate(index));
            self.queue.insert((self.last_op, 0), event);
        }
    }

    pub fn after(&mut self, delay: Duration, next: impl FnOnce(&mut World) + 'static) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), Box::new(next));
    }

    /// The machine with the CPUs that are online now.
    pub fn topology(&self) -> Topology {
        let whole = self.settings.topology().online();
        let offline = whole - self.kernel.lock().online;
        let machine = Machine { offline, ..self.settings.machine.clone() };
        with_memory(machine.topology().expect("a machine that exists"))
    }

    pub fn reserved(&self) -> CpuSet {
        self.in_force.placement.reserved
    }

    /// CPUs that the kernel was booted to isolate, which containers do not share.
    pub fn isolated(&self) -> CpuSet {
        if self.is_static() { self.settings.machine.isolated } else { CpuSet::EMPTY }
    }

    pub fn is_static(&self) -> bool {
        self.in_force.policy == Policy::Static
    }

    pub fn say(&mut self, line: impl Into<String>) {
        self.trace.say(self.now, line.into());
    }

    pub fn fail(&mut self, why: impl Into<String>) {
        if self.violation.is_none() {
            let why = why.into();
            self.say(format!("VIOLATION {why}"));
            self.violation = Some(why);
        }
    }

    /// Plays until this time, or until a violation.
    pub fn run_until(&mut self, end: Duration) {
        self.record_groups();
        while self.violation.is_none() {
            let Some(entry) = self.queue.first_entry() else { break };
            let (at, _) = *entry.key();
            if at > end {
                break;
            }
            let next = entry.remove();
            self.now = self.now.max(at);
            next(self);
            self.deliver_inotify();
            self.check_now();
            self.record_groups();
        }
        self.now = self.now.max(end);
    }

    /// Records cgroups as often as the lab does.
    fn record_groups(&mut self) {
        if self.trace.calls.is_none() || self.now < self.trace.next_recording {
            return;
        }
        self.trace.next_recording = self.now + Duration::from_millis(10);
        let paths = Paths(&self.settings);
        let classes = [Class::Guaranteed, Class::Burstable, Class::BestEffort];
        let pods = self.pods.values().map(|pod| paths.pod(pod));
        let all = classes.map(|class| paths.class(class)).into_iter().chain(pods);
        let groups = all.filter_map(|path| {
            let events = self.read(&path, "cgroup.events");
            let set = !self.read(&path, "cpuset.cpus").is_empty();
            let group = Group { set, populated: events.contains("populated 1") };
            if events.is_empty() { None } else { Some((path, group)) }
        });
        let groups = groups.collect();
        self.trace.record(|calls| calls.record_groups(groups));
    }

    /// The containers that have a process, with its pid.
    pub fn processes(&self) -> impl Iterator<Item = (u32, &Container)> {
        self.containers.values().filter_map(|c| Some((c.pid?, c)))
    }

    pub fn dir(&self, container: &Container) -> String {
        let pod = &self.pods[&container.pod];
        Paths(&self.settings).container(pod, &crate::pods::id(container.serial))
    }

    pub fn pod_dir(&self, pod: PodId) -> String {
        Paths(&self.settings).pod(&self.pods[&pod])
    }

    pub fn running_containers(&self) -> Vec<Serial> {
        let is = |c: &&Container| c.state == State::Running && !self.pods[&c.pod].is_plugin;
        self.containers.values().filter(is).map(|c| c.serial).collect()
    }
}
