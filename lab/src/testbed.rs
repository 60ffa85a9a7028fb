//! A node with one plugin at most: what is done there, and what must be true of it at any time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use cpuset::CpuSet;
use nix::sys::signal::Signal;
use noise::NoiseReport;
use status::outlook::Outlook;

use crate::bare::Bare;
use crate::cgroup_snapshot::CgroupSnapshot;
use crate::chaos::{self, StormSettings, Summary};
use crate::command::{last_lines, poll};
use crate::daemonset::{Confinement, DaemonPod};
use crate::images::Shipped;
use crate::instance::Instance;
use crate::invariants::{Invariants, parse};
use crate::latency::{self, LatencySettings, Measurements};
use crate::launched::Launched;
use crate::manifests::Manifests;
use crate::memory::ProcessMemory;
use crate::node::Node;
use crate::overlap;
use crate::pod::{Container, Pod};
use crate::view::{self, ContainerView, View};
use crate::{cgroup, files, foreign, kernel, process, scenario};

/// For shared containers to follow a resize; the next view shows what did not.
const FOLLOWS: Duration = Duration::from_secs(10);

/// For an expected log line: two check passes ten seconds apart, on emulated CPUs.
const SAYS: Duration = Duration::from_secs(90);

/// Time to reconnect after the runtime is back.
const BACK: Duration = Duration::from_secs(30);

/// For a program to have written its memory, on emulated CPUs.
const HOLDS: Duration = Duration::from_secs(60);

/// Logged by the pod of `manifests/uninstall` when it has finished.
const REVERTED: &str = "waiting for SIGTERM";

/// The plugin's default state directory.
const STATE: &str = "/var/lib/nri-cpu-manager";

/// In the plugin's log for a drift.
const DRIFT: &str = ": should have CPU";

/// In the plugin's log for a container or a resize that does not fit.
const REFUSED: &str = ": refused: ";

/// Fewer readings during a watch prove nothing.
const FEW: u64 = 20;

pub struct Testbed<'a> {
    node: &'a mut Node,
    shipped: &'a Shipped,
    plugin: Option<Box<dyn Instance>>,
    report: &'a mut dyn FnMut(&str),
    /// What is being done, for errors.
    doing: String,
    invariants: Invariants,
    /// The first disagreement with the state file. It fails at the end, because errors in processes
    /// explain more.
    unwritten: Option<Error>,
}

/// A cgroup that a test reads or writes.
#[derive(Debug, Clone, Copy)]
pub enum CgroupRef<'a> {
    /// Of the first container of a pod.
    Container(&'a str),
    Pod(&'a str),
    /// That of the pod's QoS class.
    Class(&'a str),
    /// A path below the root of cgroup v2; created unless it exists.
    Named(&'a str),
}

impl<'a> Testbed<'a> {
    /// `report` receives progress.
    pub fn new(node: &'a mut Node, shipped: &'a Shipped, report: &'a mut dyn FnMut(&str)) -> Self {
        let (doing, invariants) = (String::new(), Invariants::default());
        Self { node, shipped, plugin: None, report, doing, invariants, unwritten: None }
    }

    /// Does all of a task. An error names the step that failed, and ends with the plugin's log.
    pub fn run<T>(&mut self, task: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        task(self).map_err(|error| {
            let failed = format!("failed: {}: {error:#}", self.doing);
            let Some(plugin) = &self.plugin else { return anyhow!(failed) };
            let log = last_lines(&plugin.files().log(), 10);
            anyhow!("{failed}\nend of the plugin's log:\n{log}")
        })
    }

    pub(crate) fn begin(&mut self, what: impl Into<String>) {
        self.doing = what.into();
        (self.report)(&self.doing);
    }

    /// From now on, views are checked for these. What an earlier task has left is forgotten.
    pub(crate) fn keep(&mut self, invariants: Invariants) {
        self.invariants = invariants;
        self.unwritten = None;
    }

    pub(crate) fn state_was_written(&mut self) -> Result<()> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    pub(crate) fn invariants(&mut self) -> &mut Invariants {
        &mut self.invariants
    }

    /// On an empty node without a plugin.
    pub(crate) fn latency(&mut self, settings: &LatencySettings) -> Result<Measurements> {
        self.begin("time writes to the cgroups of classes, then exclusive containers");
        latency::measure(self.node, &self.shipped.programs.plugin, settings, self.report)
    }

    /// On an empty node without a plugin: a table of what runs or fires on exclusive CPUs.
    pub(crate) fn foreign(&mut self, seconds: u64) -> Result<String> {
        self.begin("count what else runs or fires on exclusive CPUs");
        foreign::count(&self.shipped.programs.cpuctl, seconds)
    }

    pub(crate) fn storm(&mut self, settings: &StormSettings) -> Result<Summary> {
        self.begin("storm");
        let plugin = self.plugin.as_deref_mut().context("no plugin to kill")?;
        chaos::storm(self.node, plugin, settings, self.report)
    }

    /// Fails if there is no plugin on the node.
    fn plugin(&mut self) -> Result<(&mut dyn Instance, &mut Node)> {
        let plugin = self.plugin.as_deref_mut().context("no plugin on the node")?;
        Ok((plugin, self.node))
    }

    /// Removes every pod and the plugin: the node is empty then.
    pub fn clear(&mut self) -> Result<()> {
        self.node.remove_all()?;
        self.remove_plugin()?;
        cgroup::clear_classes();
        self.invariants = Invariants::default();
        Ok(())
    }

    /// Starts the plugin as shipped without state: in the pod of the base, or of the overlay that
    /// the configuration needs.
    pub fn start_plugin(&mut self, config: &str) -> Result<()> {
        let manifests = self.manifests(config)?;
        self.apply(&manifests)
    }

    pub(crate) fn manifests(&self, config: &str) -> Result<Manifests> {
        Manifests::for_config(&self.shipped.manifests, config)
    }

    /// As [`start_plugin`](Self::start_plugin), with what the plugin needs for quiet CPUs.
    pub(crate) fn start_quiet_plugin(&mut self, config: &str) -> Result<()> {
        let manifests = self.quiet_manifests(config)?;
        self.apply(&manifests)
    }

    pub(crate) fn quiet_manifests(&self, config: &str) -> Result<Manifests> {
        self.manifests(config)?.with_quiet_cpus(&self.shipped.manifests)
    }

    /// As [`start_plugin`](Self::start_plugin), from these manifests. Replaces a plugin that is on
    /// the node.
    pub fn apply(&mut self, manifests: &Manifests) -> Result<()> {
        self.begin("start the plugin");
        self.remove_plugin()?;
        let daemon = DaemonPod::install(self.node, &self.shipped.image, manifests)?;
        self.install(Box::new(daemon))
    }

    /// As [`start_plugin`](Self::start_plugin), but as a plain process with full root privileges.
    /// With `record`, what the runtime sends to it is recorded.
    pub fn start_bare(&mut self, config: &str, record: bool) -> Result<()> {
        self.begin("start the plugin as a plain process");
        self.remove_plugin()?;
        if record {
            self.node.record()?;
        }
        let bare = Bare::install(self.node, &self.shipped.programs.plugin, config)?;
        self.install(Box::new(bare))
    }

    fn install(&mut self, plugin: Box<dyn Instance>) -> Result<()> {
        self.invariants.written = true;
        self.plugin.insert(plugin).wait_until_ready(self.node)
    }

    /// Puts the plugin into the runtime's plugin directory without state and restarts the runtime,
    /// which launches it. In virtual machines only: its state is in the default directory.
    pub fn launch(&mut self, config: &str) -> Result<()> {
        self.begin("restart containerd, which launches the plugin");
        self.remove_plugin()?;
        let program = &self.shipped.programs.plugin;
        let program =
            fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let root = self.node.containerd().root();
        let launched = Launched::install(root, &program, config, Path::new(STATE))?;
        self.plugin = Some(Box::new(launched));
        self.invariants.written = true;
        self.node.restart_runtime()
    }

    /// SIGKILL without a restart.
    pub fn end_plugin(&mut self) -> Result<()> {
        self.begin("kill the plugin");
        self.invariants.written = false;
        let (plugin, node) = self.plugin()?;
        plugin.end(node, Signal::SIGKILL)
    }

    pub fn kill_plugin(&mut self) -> Result<()> {
        self.end_plugin()?;
        self.start_again()
    }

    /// After [`end_plugin`](Self::end_plugin).
    pub(crate) fn restart_plugin(&mut self) -> Result<()> {
        self.begin("start the plugin again");
        self.start_again()
    }

    /// Restarts the plugin (SIGTERM) with this configuration; its state is kept.
    pub fn reconfigure(&mut self, config: &str) -> Result<()> {
        self.begin("restart the plugin with another configuration");
        let (plugin, node) = self.plugin()?;
        plugin.end(node, Signal::SIGTERM)?;
        plugin.configure(config)?;
        self.start_again()
    }

    fn start_again(&mut self) -> Result<()> {
        self.invariants.written = true;
        let (plugin, node) = self.plugin()?;
        plugin.start(node)?;
        plugin.wait_until_ready(node)
    }

    /// Changes the plugin's configuration like a kubelet that changes a mounted ConfigMap.
    pub fn swap_config(&mut self, config: &str) -> Result<()> {
        self.begin("change the ConfigMap");
        self.plugin()?.0.configure(config)
    }

    pub fn uninstall(&mut self) -> Result<()> {
        self.begin("remove the plugin's DaemonSet");
        self.remove_plugin()
    }

    fn remove_plugin(&mut self) -> Result<()> {
        self.invariants.written = false;
        self.plugin.take().map_or(Ok(()), |mut plugin| plugin.remove(self.node))
    }

    /// Applies `manifests/uninstall`, with or without `--containers`. The pod must become ready, and
    /// end on SIGTERM. Returns the log of its init containers, whose failure is an error.
    pub fn revert(&mut self, containers: bool) -> Result<String> {
        let manifests = Manifests::for_uninstall(&self.shipped.manifests, containers)?;
        let also = if containers { " with --containers" } else { "" };
        self.revert_as(&manifests, also)
    }

    /// As [`revert`](Self::revert), for quiet CPUs.
    pub(crate) fn revert_quiet(&mut self) -> Result<String> {
        let rendered = &self.shipped.manifests;
        let manifests = Manifests::for_uninstall(rendered, true)?.with_quiet_cpus(rendered)?;
        self.revert_as(&manifests, " with --containers and the mounts for quiet CPUs")
    }

    fn revert_as(&mut self, manifests: &Manifests, also: &str) -> Result<String> {
        self.begin(format!("apply manifests/uninstall{also}"));
        let mut pod = DaemonPod::apply(self.node, &self.shipped.image, manifests)?;
        let mut log = String::new();
        for init in &manifests.pod().init_containers {
            log += &pod.init_log(&init.name)?;
        }
        pod.wait_for(self.node, REVERTED, 1, SAYS)?;
        pod.remove(self.node)?;
        Ok(log)
    }

    /// SIGKILL to the runtime, and its restart: the plugin must reconnect, or is launched again.
    pub fn kill_runtime(&mut self) -> Result<()> {
        self.begin("kill and restart containerd");
        let (plugin, node) = self.plugin()?;
        let before = plugin.files().synchronisations();
        node.kill_runtime()?;
        node.restart_runtime()?;
        plugin.wait_for_synchronisation(node, before + 1, BACK)?;
        Ok(())
    }

    pub fn confinement(&mut self) -> Result<Confinement> {
        Confinement::of(self.plugin()?.0.pid()?)
    }

    /// The plugin's log over all its starts.
    pub fn log(&mut self) -> Result<String> {
        self.begin("read the plugin's log");
        Ok(self.plugin()?.0.log())
    }

    pub fn status(&mut self) -> Result<String> {
        self.begin("run nri-cpu-manager status");
        let files = self.plugin()?.0.files().clone();
        files.status(&self.shipped.programs.plugin)
    }

    /// As `check-config --live`.
    pub fn outlook(&mut self, config: &str) -> Result<Outlook> {
        self.begin("ask what a configuration would change");
        self.plugin()?.0.files().outlook(config)
    }

    /// As `uninstall --dry-run`, with or without `--containers`.
    pub fn uninstall_outlook(&mut self, containers: bool) -> Result<Outlook> {
        self.begin("ask what the removal would change");
        self.plugin()?.0.files().uninstall_outlook(containers)
    }

    /// What runs or fires on exclusive CPUs within so many seconds, by `nri-cpu-manager noise`.
    pub fn noise(&mut self, seconds: u64) -> Result<NoiseReport> {
        self.begin(format!("run nri-cpu-manager noise for {seconds} s"));
        let files = self.plugin()?.0.files().clone();
        files.noise(&self.shipped.programs.plugin, seconds)
    }

    /// What the plugin itself has observed on exclusive CPUs in the last minute.
    pub(crate) fn recent_noise(&mut self) -> Result<Option<NoiseReport>> {
        let files = self.plugin()?.0.files().clone();
        files.recent_noise(&self.shipped.programs.plugin)
    }

    /// The median time to create and start an exclusive container, in milliseconds. Nothing else
    /// happens for `rest` before each.
    pub(crate) fn start_time(&mut self, samples: usize, rest: Duration) -> Result<f64> {
        self.begin(format!("time the start of {samples} exclusive containers"));
        latency::median_of(self.node, samples, rest)
    }

    /// Waits until the plugin has logged this text so many times since its last start.
    pub fn wait_for(&mut self, text: &str, count: usize) -> Result<()> {
        self.begin(format!("wait for {text:?} in the plugin's log ({count} times)"));
        let (plugin, node) = self.plugin()?;
        plugin.wait_for(node, text, count, SAYS)?;
        Ok(())
    }

    /// The plugin's log has no drift so far: a change that merely takes time is not a drift.
    pub fn logs_no_drift(&mut self) -> Result<()> {
        let log = self.log()?;
        says_no(&log, DRIFT)
    }

    /// The plugin has not logged a warning or an error so far, apart from refusals.
    pub fn logs_no_warning(&mut self) -> Result<()> {
        let log = self.log()?;
        let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        let warnings = log.lines().filter(is_warning).filter(|line| !line.contains(REFUSED));
        let warnings: Vec<&str> = warnings.collect();
        ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
        Ok(())
    }

    pub fn wait(&mut self, seconds: u64) {
        self.begin(format!("wait {seconds} s"));
        std::thread::sleep(Duration::from_secs(seconds));
    }

    pub fn set_online(&mut self, cpu: usize, online: bool) -> Result<()> {
        self.begin(format!("set CPU {cpu} {}", if online { "online" } else { "offline" }));
        kernel::set_online(cpu, online)
    }

    /// Starts a pod. An error may be a refusal.
    pub fn start(&mut self, pod: &Pod) -> Result<()> {
        self.begin(format!("start pod {} ({:?}, {})", pod.name, pod.qos(), pod.describe_cpus()));
        self.node.run(pod).map(|_| ())
    }

    /// Starts a pod with an exclusive container.
    pub fn exclusive(&mut self, name: &str, cpus: usize) -> Result<()> {
        self.start(&scenario::exclusive(name, cpus))
    }

    /// Starts a Burstable pod.
    pub fn shared(&mut self, name: &str) -> Result<()> {
        self.start(&scenario::shared(name))
    }

    /// Starts the missing containers of a pod again, as the kubelet does.
    pub fn retry(&mut self, pod: &str) -> Result<()> {
        self.begin(format!("start pod {pod} again"));
        self.node.retry(pod).map(|_| ())
    }

    pub fn add(&mut self, pod: &str, container: &Container) -> Result<()> {
        self.begin(format!("start container {} in pod {pod}", container.name));
        self.node.add(pod, container)
    }

    /// The runtime stops the container `main`; its pod keeps running.
    pub fn stop(&mut self, pod: &str) -> Result<()> {
        self.begin(format!("stop the container of pod {pod}"));
        self.node.stop(pod, "main")
    }

    /// The process of the container `main` ends by itself, like an init container or a crash.
    pub fn end(&mut self, pod: &str) -> Result<()> {
        self.begin(format!("the container of pod {pod} ends"));
        self.node.end(pod, "main")
    }

    /// Gives the container `main` of a pod so many thousandths of a CPU, in place.
    pub fn resize(&mut self, pod: &str, milli: i64) -> Result<()> {
        self.begin(format!("resize pod {pod} to {milli}m CPU"));
        self.node.resize(pod, "main", milli)?;
        // The runtime changes the container last, and shared containers get its CPUs after that.
        if self.plugin.is_some() {
            self.settle(FOLLOWS)?;
        }
        Ok(())
    }

    /// Resizes a pod up and down without a pause, and checks only its container, which must run
    /// after each. Its program must run on some of the CPUs that come and go.
    pub fn resize_in_a_row(&mut self, pod: &str, sizes: [usize; 2], times: usize) -> Result<()> {
        self.begin(format!("resize pod {pod} {times} times"));
        let all: Vec<i64> = sizes.into_iter().cycle().take(times).map(scenario::milli).collect();
        let ran = self.node.resize_in_a_row(pod, &all)?;
        let is_moving = sizes.iter().any(|size| ran.len() > *size);
        ensure!(is_moving, "the program stayed where it was: {ran}");
        Ok(())
    }

    pub fn remove(&mut self, pod: &str) -> Result<()> {
        self.begin(format!("remove pod {pod}"));
        self.node.remove(pod)
    }

    /// Starts a pod whose container `main` is always busy.
    pub fn run_busy(&mut self, pod: &Pod) -> Result<()> {
        self.begin(format!("start busy pod {} ({})", pod.name, pod.describe_cpus()));
        self.node.run_busy(pod)
    }

    /// Starts a busy process outside of all pods.
    pub fn run_busy_on_host(&mut self, name: &str) -> Result<()> {
        self.begin(format!("start busy host process {name}"));
        self.node.run_busy_on_host(name)
    }

    pub fn run_crowd(&mut self, number: usize) -> Result<()> {
        self.begin(format!("start {number} busy pods"));
        self.node.run_crowd(number)
    }

    /// Starts a pod. As its first process begins, it and all busy threads, of which there must be at
    /// least `busy`, keep to their own CPUs.
    pub fn first_instruction(&mut self, pod: &Pod, busy: usize) -> Result<()> {
        self.begin(format!("start pod {} ({:?}) with the probe", pod.name, pod.qos()));
        let files = self.plugin()?.0.files().clone();
        self.node.run_first(pod, |name| files.claimed(name, "main"))?.check(busy)
    }

    /// Starts a pod. None of its processes, the pause container's included, may run on exclusive CPUs
    /// of others at any moment.
    pub fn begins_in_pool(&mut self, pod: &Pod) -> Result<()> {
        self.begin(format!("start pod {} ({:?}) and watch its processes", pod.name, pod.qos()));
        let files = self.plugin()?.0.files().clone();
        let mut taken = CpuSet::EMPTY;
        for other in self.node.pods() {
            taken |= files.claimed(&other.pod.name, "main")?.unwrap_or_default();
        }
        let strayed = self.node.run_watched(pod, taken)?;
        ensure!(strayed.processes > 0 && strayed.strayed == 0, "{strayed:?}");
        Ok(())
    }

    /// The throttled periods of a busy pod's container `main` and of the pod, within so many seconds.
    pub fn throttling(&mut self, name: &str, seconds: u64) -> Result<(u64, u64)> {
        self.begin(format!("count throttled periods of pod {name} for {seconds} s"));
        let pid = self.busy_pid(name)?;
        let before = cgroup::throttled(pid)?;
        std::thread::sleep(Duration::from_secs(seconds));
        let after = cgroup::throttled(pid)?;
        Ok((after.0 - before.0, after.1 - before.1))
    }

    /// Rewrites the cgroups of QoS classes, as systemd does with its slices at any time.
    pub fn realise_classes(&mut self) -> Result<()> {
        self.begin("rewrite the cgroups of QoS classes");
        cgroup::realise_classes(self.node.driver())
    }

    /// Makes a cgroup within that of a pod's first container, with one of its CPUs and two processes,
    /// as hypervisors do for their own threads. Cgroup v2 only.
    pub fn nest(&mut self, pod: &str) -> Result<()> {
        self.begin(format!("make a cgroup within that of pod {pod}"));
        cgroup::nest(&self.directory(CgroupRef::Container(pod))?)
    }

    /// Writes a cgroup file, as any root user can.
    pub fn write(&mut self, group: CgroupRef<'_>, file: &str, value: &str) -> Result<()> {
        self.begin(format!("write {value:?} to {file} of {group:?}"));
        files::write_value(&self.directory(group)?.join(file), value)
    }

    /// This file of a cgroup must have exactly this text.
    pub fn reads(&mut self, group: CgroupRef<'_>, file: &str, expected: &str) -> Result<()> {
        self.begin(format!("read {file} of {group:?}"));
        let text = files::read_value(&self.directory(group)?.join(file))?;
        ensure!(text.trim() == expected, "it has {:?}, expected {expected:?}", text.trim());
        Ok(())
    }

    /// The memory of a pod's first container, once at least so many bytes of it are anonymous.
    pub fn memory(&mut self, pod: &str, bytes: u64) -> Result<ProcessMemory> {
        self.begin(format!("read on which NUMA nodes the memory of pod {pod} is"));
        let pid = self.pid(pod)?;
        let held = || {
            let memory = ProcessMemory::of(pid)?;
            Ok(if memory.total() >= bytes { Some(memory) } else { None })
        };
        poll(HOLDS, held)?.with_context(|| format!("pod {pod} never had {bytes} bytes of memory"))
    }

    /// Waits until so many huge pages of 2 MiB of a NUMA node are free.
    pub fn free_huge_pages(&mut self, node: usize, expected: u64) -> Result<()> {
        self.begin(format!("wait until {expected} huge pages of NUMA node {node} are free"));
        let free = || {
            let free = kernel::free_huge_pages(node)?;
            Ok(if free == expected { Some(()) } else { None })
        };
        poll(HOLDS, free)?.with_context(|| format!("never {expected} free huge pages"))
    }

    /// Changes the number of a NUMA node's huge pages of 2 MiB.
    pub fn set_huge_pages(&mut self, node: usize, pages: u64) -> Result<()> {
        self.begin(format!("set the huge pages of NUMA node {node} to {pages}"));
        kernel::set_huge_pages(node, pages)
    }

    /// The program of [`run_busy_on_host`](Self::run_busy_on_host).
    pub(crate) fn busy_pid(&self, name: &str) -> Result<u32> {
        let busy = self.node.busy().iter().find(|busy| busy.name == name);
        Ok(busy.with_context(|| format!("{name} is not busy"))?.pid)
    }

    /// Of a pod's first container.
    fn pid(&self, pod: &str) -> Result<u32> {
        let running = self.node.pods().iter().find(|running| running.pod.name == pod);
        let container = running.and_then(|running| running.containers.first());
        Ok(container.with_context(|| format!("pod {pod} has no running container"))?.pid)
    }

    /// Variables of a pod's first container that start with `prefix`.
    pub(crate) fn environment(&self, pod: &str, prefix: &str) -> Result<Vec<String>> {
        process::environment(self.pid(pod)?, prefix)
    }

    fn directory(&self, group: CgroupRef<'_>) -> Result<PathBuf> {
        let (pod, above) = match group {
            CgroupRef::Named(name) => return cgroup::add(name),
            CgroupRef::Container(pod) => (pod, 0),
            CgroupRef::Pod(pod) => (pod, 1),
            CgroupRef::Class(pod) => (pod, 2),
        };
        let container = cgroup::of_process(self.pid(pod)?, "")?;
        let group = container.ancestors().nth(above);
        Ok(group.context("a container's cgroup has no parent")?.to_path_buf())
    }

    pub fn snapshot(&mut self) -> Result<CgroupSnapshot> {
        self.begin("record all cgroups");
        CgroupSnapshot::read(Path::new(kernel::CGROUPS))
    }

    /// The kernel has not warned of itself since it was started.
    pub fn kernel_is_sound(&mut self) -> Result<()> {
        self.begin("ask the kernel whether it has warned");
        ensure!(!kernel::is_tainted()?, "the kernel warned or oopsed: see its console");
        Ok(())
    }

    /// Containers must not meet on an exclusive CPU while this is done.
    pub fn watches(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let (plugin, node) = self.plugin()?;
        let members = overlap::members(node, plugin.files())?;
        let watched = overlap::watch(&members, || work(self))?;
        if let Some(who) = watched.met {
            bail!(who);
        }
        ensure!(watched.readings >= FEW, "too few readings: {watched:?}");
        Ok(())
    }

    /// All containers must be as decided within so many seconds; these pods must not be at first.
    pub fn settles(&mut self, seconds: u64, disturbed: &[&str]) -> Result<()> {
        self.begin(format!("wait until containers are as decided (at most {seconds} s)"));
        let (first, last) = self.settle(Duration::from_secs(seconds))?;
        ensure!(last.is_empty(), "after {seconds} s: {}", last.join("; "));
        for pod in disturbed {
            let is_listed = first.iter().any(|what| what.starts_with(&format!("{pod}: ")));
            ensure!(is_listed, "{pod} was not disturbed: {first:?}");
        }
        Ok(())
    }

    /// Disagreements between processes and decisions at first, and when there are none or the time
    /// is over.
    fn settle(&mut self, most: Duration) -> Result<(Vec<String>, Vec<String>)> {
        let start = Instant::now();
        let mut first = None;
        loop {
            let (plugin, node) = self.plugin()?;
            let containers = ContainerView::all(node, Some(plugin.files()))?;
            let last = view::disagreements(kernel::cpus("online")?, &containers);
            let first = first.get_or_insert_with(|| last.clone());
            if last.is_empty() || start.elapsed() >= most {
                return Ok((std::mem::take(first), last));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where processes may run and what the plugin has claimed, unchecked.
    pub fn look(&self) -> Result<View> {
        View::of(self.node, self.plugin.as_ref().map(|plugin| plugin.files()))
    }

    /// Checks the invariants of all containers.
    pub fn view(&mut self) -> Result<View> {
        self.begin("check all containers");
        let view = self.look()?;
        self.invariants.check(&view)?;
        if self.unwritten.is_none() {
            self.unwritten = self.invariants.check_written(&view).err();
        }
        Ok(view)
    }

    /// These pods' processes may run on exactly these CPUs.
    pub fn expect(&mut self, expected: &[(&str, CpuSet)]) -> Result<View> {
        let view = self.view()?;
        for (pod, cpus) in expected {
            let allowed = view.allowed(pod);
            ensure!(allowed == cpus.to_string(), "{pod} may run on {allowed}, expected {cpus}");
        }
        Ok(view)
    }

    /// No container of this view that still runs may run elsewhere now.
    pub fn unmoved(&mut self, since: &View) -> Result<View> {
        self.compare(since, |_| true)
    }

    /// As [`unmoved`](Self::unmoved), but shared containers may have moved.
    pub fn exclusive_unmoved(&mut self, since: &View) -> Result<View> {
        let reserved = self.invariants.reserved;
        self.compare(since, |container| parse(&container.allowed).is_disjoint(&reserved))
    }

    fn compare(&mut self, since: &View, counts: impl Fn(&ContainerView) -> bool) -> Result<View> {
        let now = self.view()?;
        for before in since.containers.iter().filter(|container| counts(container)) {
            let is_it = |c: &&ContainerView| c.pod == before.pod && c.container == before.container;
            if let Some(after) = now.containers.iter().find(is_it) {
                ensure!(
                    after.allowed == before.allowed,
                    "{}/{} moved from {} to {}",
                    after.pod,
                    after.container,
                    before.allowed,
                    after.allowed
                );
            }
        }
        Ok(now)
    }
}

/// The refusal must have `reason` in its message.
pub fn refused<T>(result: Result<T>, reason: &str) -> Result<()> {
    let Err(why) = result else { bail!("not refused, expected {reason:?}") };
    let why = format!("{why:#}");
    ensure!(why.contains(reason), "refused without {reason:?}: {why}");
    Ok(())
}

/// The text must have all of this in it.
pub fn says(text: &str, parts: &[&str]) -> Result<()> {
    match parts.iter().find(|part| !text.contains(*part)) {
        None => Ok(()),
        Some(part) => bail!("no {part:?} in\n{text}"),
    }
}

/// No line of the text has `part` in it.
pub fn says_no(text: &str, part: &str) -> Result<()> {
    match text.lines().find(|line| line.contains(part)) {
        None => Ok(()),
        Some(line) => bail!(line.to_owned()),
    }
}
