//! Plays steps on a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cpuset::CpuSet;
use nix::sys::signal::Signal;

use crate::bare::Bare;
use crate::cgroup_snapshot::CgroupSnapshot;
use crate::daemonset::{Confinement, DaemonPod};
use crate::image::shipped::Shipped;
use crate::instance::Instance;
use crate::launched::Launched;
use crate::manifests::Manifests;
use crate::node::Node;
use crate::overlap;
use crate::step::{CgroupRef, Outcome, Settled, Step};
use crate::view::{self, ContainerView, View};
use crate::{cgroup, cgroup_model, chaos, files, kernel, latency};

/// For shared containers to follow a resize; the next view shows what did not.
const FOLLOWS: Duration = Duration::from_secs(10);

/// For an expected log line: two check passes ten seconds apart, on emulated CPUs.
const SAYS: Duration = Duration::from_secs(90);

/// Time to reconnect after the runtime is back.
const BACK: Duration = Duration::from_secs(30);

/// Logged by the pod of `manifests/release` when it has finished.
const RELEASED: &str = "waiting for SIGTERM";

/// The plugin's default state directory.
const STATE: &str = "/var/lib/nri-cpu-manager";

/// A node with one plugin at most, and what is done there.
pub struct Player<'a> {
    node: &'a mut Node,
    shipped: &'a Shipped,
    plugin: Option<Box<dyn Instance>>,
    report: &'a mut dyn FnMut(&str),
}

impl<'a> Player<'a> {
    /// `report` receives progress.
    pub fn new(node: &'a mut Node, shipped: &'a Shipped, report: &'a mut dyn FnMut(&str)) -> Self {
        Self { node, shipped, plugin: None, report }
    }

    /// Over all starts.
    pub fn plugin_log(&self) -> String {
        self.plugin.as_ref().map_or_else(String::new, |plugin| plugin.log())
    }

    /// Of the runtime, and of the plugin if it logs to a file.
    pub fn logs(&self) -> Vec<PathBuf> {
        let plugin = self.plugin.as_ref().and_then(|plugin| plugin.files().log_path());
        let plugin = plugin.map(Path::to_path_buf);
        std::iter::once(self.node.containerd().log_path()).chain(plugin).collect()
    }

    pub fn play(&mut self, step: &Step) -> Result<Outcome> {
        let what = step.describe();
        self.act(step).with_context(|| format!("step failed: {what}")).map_err(|error| match &self
            .plugin
        {
            Some(plugin) => error.context(format!(
                "end of the plugin's log:\n{}",
                crate::command::last_lines(&plugin.files().log(), 10)
            )),
            None => error,
        })
    }

    /// Fails if there is no plugin on the node.
    fn plugin(&mut self) -> Result<(&mut dyn Instance, &mut Node)> {
        let plugin = self.plugin.as_deref_mut().context("no plugin on the node")?;
        Ok((plugin, self.node))
    }

    /// Replaces a plugin that is on the node.
    fn install(&mut self, manifests: &Manifests) -> Result<()> {
        self.uninstall()?;
        let daemon = DaemonPod::install(self.node, &self.shipped.image, manifests)?;
        self.plugin.insert(Box::new(daemon)).wait_until_ready(self.node)
    }

    fn start(&mut self) -> Result<()> {
        let (plugin, node) = self.plugin()?;
        plugin.start(node)?;
        plugin.wait_until_ready(node)
    }

    fn uninstall(&mut self) -> Result<()> {
        self.plugin.take().map_or(Ok(()), |mut plugin| plugin.remove(self.node))
    }

    /// The pod must become ready, and end on SIGTERM.
    fn release(&mut self, containers: bool) -> Result<Outcome> {
        let manifests = Manifests::for_release(&self.shipped.manifests, containers)?;
        let applied = DaemonPod::apply(self.node, &self.shipped.image, &manifests);
        let mut pod = match applied {
            Ok(pod) => pod,
            failed => return Ok(refusal(failed.map(drop))),
        };
        let mut done = String::new();
        for init in &manifests.pod().init_containers {
            done += &pod.init_log(&init.name)?;
        }
        pod.wait_for(self.node, RELEASED, 1, SAYS)?;
        pod.remove(self.node)?;
        Ok(Outcome::Text(done))
    }

    fn act(&mut self, step: &Step) -> Result<Outcome> {
        match step {
            Step::StartPlugin(config) => {
                let manifests = Manifests::for_config(&self.shipped.manifests, config)?;
                self.install(&manifests)?;
            }
            Step::StartDaemonSet(manifests) => self.install(manifests)?,
            Step::Record => self.node.record()?,
            Step::StartBare(config) => {
                self.uninstall()?;
                let bare = Bare::install(self.node, &self.shipped.program, config)?;
                self.plugin.insert(Box::new(bare)).wait_until_ready(self.node)?;
            }
            Step::Launch(config) => {
                self.uninstall()?;
                let program = &self.shipped.program;
                let program = fs::read(program)
                    .with_context(|| format!("cannot read {}", program.display()))?;
                let root = self.node.containerd().root();
                let launched = Launched::install(root, &program, config, Path::new(STATE))?;
                self.plugin = Some(Box::new(launched));
                self.node.restart_runtime()?;
            }
            Step::Confinement => {
                return Confinement::of(self.plugin()?.0.pid()?).map(Outcome::Confinement);
            }
            Step::Log => return Ok(Outcome::Text(self.plugin()?.0.log())),
            Step::KillPlugin => {
                let (plugin, node) = self.plugin()?;
                plugin.end(node, Signal::SIGKILL)?;
                self.start()?;
            }
            Step::EndPlugin => {
                let (plugin, node) = self.plugin()?;
                plugin.end(node, Signal::SIGKILL)?;
            }
            Step::RunBusy(pod) => return Ok(refusal(self.node.run_busy(pod))),
            Step::RunCrowd(number) => self.node.run_crowd(*number)?,
            Step::RunFirstInstruction(pod) => {
                let files = self.plugin()?.0.files().clone();
                let first = self.node.run_first(pod, |name| files.decided(name, "main"))?;
                return Ok(Outcome::FirstInstruction(first));
            }
            Step::RunWatched(pod) => {
                let files = self.plugin()?.0.files().clone();
                let mut taken = CpuSet::EMPTY;
                for other in self.node.pods() {
                    taken |= files.decided(&other.pod.name, "main")?.unwrap_or_default();
                }
                return self.node.run_watched(pod, taken).map(Outcome::Strayed);
            }
            Step::RealiseClasses => cgroup::realise_classes(self.node.driver())?,
            Step::RunBusyOnHost(name) => self.node.run_busy_on_host(name)?,
            Step::Throttling(name, seconds) => return self.throttling(name, *seconds),
            Step::KernelWarned => return kernel::is_tainted().map(Outcome::KernelWarned),
            Step::Latency(settings) => {
                let rows =
                    latency::measure(self.node, &self.shipped.program, settings, self.report)?;
                return Ok(Outcome::Latency(rows));
            }
            Step::ClassWrites => return latency::class_write::measure().map(Outcome::ClassWrites),
            Step::Reconfigure(config) => {
                let (plugin, node) = self.plugin()?;
                plugin.end(node, Signal::SIGTERM)?;
                plugin.configure(config)?;
                self.start()?;
            }
            Step::KillRuntime => return self.kill_runtime(),
            Step::SwapConfig(config) => self.plugin()?.0.configure(config)?,
            Step::Status => {
                let program = &self.shipped.program;
                return self.plugin()?.0.files().status(program).map(Outcome::Text);
            }
            Step::WaitFor(text, count) => {
                let (plugin, node) = self.plugin()?;
                plugin.wait_for(node, text, *count, SAYS)?;
            }
            Step::SetOnline(cpu, online) => {
                kernel::set_online(*cpu, *online)?;
            }
            Step::Add(pod, container) => return Ok(refusal(self.node.add(pod, container))),
            Step::Stop(pod, container) => self.node.stop(pod, container)?,
            Step::End(pod, container) => self.node.end(pod, container)?,
            Step::Run(pod) => return Ok(refusal(self.node.run(pod).map(|_| ()))),
            Step::Settle(seconds) => {
                return self.settle(Duration::from_secs(*seconds)).map(Outcome::Settled);
            }
            Step::Watch(steps) => {
                let (plugin, node) = self.plugin()?;
                let ends = |pod: &str| {
                    steps.iter().any(|step| matches!(step, Step::Remove(gone) if gone == pod))
                };
                let members = overlap::members(node, plugin.files(), ends)?;
                let watched = overlap::watch(&members, || self.play_all(steps))?;
                return Ok(Outcome::Watched(watched));
            }
            Step::Wait(seconds) => std::thread::sleep(Duration::from_secs(*seconds)),
            Step::Retry(pod) => return Ok(refusal(self.node.retry(pod).map(|_| ()))),
            Step::Resize(pod, milli) => {
                let done = refusal(self.node.resize(pod, "main", *milli));
                // The runtime changes the container last, and shared containers get its CPUs after
                // that.
                if matches!(done, Outcome::Done) && self.plugin.is_some() {
                    self.settle(FOLLOWS)?;
                }
                return Ok(done);
            }
            Step::ResizeInARow(pod, sizes) => {
                let ran = self.node.resize_in_a_row(pod, sizes)?;
                return Ok(Outcome::Ran(ran.to_string()));
            }
            Step::Remove(pod) => self.node.remove(pod)?,
            Step::WriteCgroup(group, file, value) => {
                files::write_value(&self.directory(group)?.join(file), value)?;
            }
            Step::Nest(pod) => cgroup::nest(&self.directory(&CgroupRef::Container(pod.clone()))?)?,
            Step::ReadCgroup(group, file) => {
                let path = self.directory(group)?.join(file);
                return files::read_value(&path).map(Outcome::Text);
            }
            Step::View => {
                let files = self.plugin.as_ref().map(|plugin| plugin.files());
                return View::of(self.node, files).map(Outcome::View);
            }
            Step::Storm(settings) => {
                let plugin = self.plugin.as_deref_mut();
                let plugin = plugin.context("no plugin to kill")?;
                let summary = chaos::storm(self.node, plugin, settings, self.report)?;
                return Ok(Outcome::Storm(summary));
            }
            Step::CompareCgroups(settings) => {
                return cgroup_model::compare(settings).map(Outcome::Comparison);
            }
            Step::Panic => {
                fs::write("/proc/sysrq-trigger", "c").context("cannot crash the kernel")?
            }
            Step::Uninstall => self.uninstall()?,
            Step::Release(containers) => return self.release(*containers),
            Step::SnapshotCgroups => {
                return CgroupSnapshot::read(Path::new(kernel::CGROUPS)).map(Outcome::Snapshot);
            }
            Step::Clear => {
                self.node.remove_all()?;
                self.uninstall()?;
                cgroup::clear_classes();
            }
        }
        Ok(Outcome::Done)
    }

    fn directory(&self, group: &CgroupRef) -> Result<PathBuf> {
        let (pod, above) = match group {
            CgroupRef::Named(name) => return cgroup::add(name),
            CgroupRef::Container(pod) => (pod, 0),
            CgroupRef::Pod(pod) => (pod, 1),
            CgroupRef::Class(pod) => (pod, 2),
        };
        let running = self.node.pods().iter().find(|running| running.pod.name == *pod);
        let container = running.and_then(|running| running.containers.first());
        let pid = container.with_context(|| format!("pod {pod} has no running container"))?.pid;
        let container = cgroup::of_process(pid, "")?;
        let group = container.ancestors().nth(above);
        Ok(group.context("a container's cgroup has no parent")?.to_path_buf())
    }

    fn play_all(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            if let Outcome::Refused(why) = self.play(step)? {
                bail!("{} was refused: {why}", step.describe());
            }
        }
        Ok(())
    }

    fn settle(&mut self, most: Duration) -> Result<Settled> {
        let start = Instant::now();
        let mut first = None;
        loop {
            let last = self.disagreements()?;
            let first = first.get_or_insert_with(|| last.clone());
            if last.is_empty() || start.elapsed() >= most {
                return Ok(Settled { first: std::mem::take(first), last });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn disagreements(&mut self) -> Result<Vec<String>> {
        let (plugin, node) = self.plugin()?;
        let containers = ContainerView::all(node, Some(plugin.files()))?;
        Ok(view::disagreements(kernel::cpus("online")?, &containers))
    }

    fn throttling(&self, name: &str, seconds: u64) -> Result<Outcome> {
        let busy = self.node.busy().iter().find(|busy| busy.name == name);
        let pid = busy.with_context(|| format!("{name} is not busy"))?.pid;
        let before = cgroup::throttled(pid)?;
        std::thread::sleep(Duration::from_secs(seconds));
        let after = cgroup::throttled(pid)?;
        Ok(Outcome::Throttled { container: after.0 - before.0, pod: after.1 - before.1 })
    }

    fn kill_runtime(&mut self) -> Result<Outcome> {
        let (plugin, node) = self.plugin()?;
        let before = plugin.files().synchronisations();
        node.kill_runtime()?;
        node.restart_runtime()?;
        plugin.wait_for_synchronisation(node, before + 1, BACK)?;
        Ok(Outcome::Done)
    }
}

fn refusal(result: Result<()>) -> Outcome {
    result.map_or_else(|error| Outcome::Refused(format!("{error:#}")), |()| Outcome::Done)
}
