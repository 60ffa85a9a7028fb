//! What happens on a node, as data: a script of steps, and what came of each.
//!
//! The same script runs on this machine and in a virtual server; only its outcomes travel back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::daemonset::Confinement;
use crate::launched::Launched;
use crate::manifests::Manifests;
use crate::node::Node;
use crate::plugin::{self, Plugin, Word};
use crate::pod::{Container, Pod};
use crate::process;
use crate::view::View;
use crate::{cgroup, chaos, kernel, latency};

/// How long the plugin may take to see something: two looks ten seconds apart, on an emulated machine.
const SAYS: Duration = Duration::from_secs(90);

/// Where the plugin keeps its state unless told otherwise.
const STATE: &str = "/var/lib/nri-cpu-manager";

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Start the plugin with this configuration and no memory of earlier runs.
    StartPlugin(String),
    /// Start the plugin as it is installed: as the pod of these manifests, from its image, with no memory of earlier runs.
    StartDaemonSet(Box<Manifests>),
    /// Put the plugin with this configuration into the runtime's directories and restart the runtime, which launches it,
    /// with no memory of earlier runs. Its state is where it is by default: for virtual servers only.
    Launch(String),
    /// Look how the process in the plugin's pod is confined.
    Confinement,
    /// What the plugin has logged since its start.
    Log,
    /// Kill the plugin with SIGKILL and start it again, with the memory it has.
    KillPlugin,
    /// Kill the plugin with SIGKILL, for good.
    EndPlugin,
    /// Start a pod whose container `main` is always busy; refusing it is an outcome too.
    RunBusy(Pod),
    /// Start a process that is always busy, outside of all pods.
    RunBusyOnHost(String),
    /// Wait so many seconds, and count in how many periods the container `main` of a busy pod was throttled meanwhile.
    Throttling(String, u64),
    /// Stop the plugin and start it with this configuration, with the memory it has.
    Reconfigure(String),
    /// Kill the runtime with SIGKILL and start it again: the plugin has to come back by itself, or is launched anew.
    KillRuntime,
    /// Kill both with SIGKILL and start both again.
    KillBoth,
    /// Change the plugin's configuration file as the kubelet changes a mounted ConfigMap.
    SwapConfig(String),
    /// What `nri-cpu-manager status` says.
    Status,
    /// What the plugin answers over HTTP to somebody who gets this path.
    Fetch(String),
    /// Wait until the plugin's log has said this since the plugin was started, as often as given.
    WaitFor(String, usize),
    /// Take a CPU of the machine offline, or online again.
    SetOnline(usize, bool),
    /// Start a pod; refusing it is an outcome, not a failure, here and in the next ones.
    Run(Pod),
    /// Start pods at the same time.
    RunTogether(Vec<Pod>),
    /// Wait so many seconds.
    Wait(u64),
    /// Start what of a pod was refused once more, as the kubelet does.
    Retry(String),
    /// Start one more container in a pod.
    Add(String, Container),
    /// Have a container of a pod that goes on ended by the runtime.
    Stop(String, String),
    /// The process of a container of a pod that goes on ends by itself: an init container that is done, or one that has
    /// crashed.
    End(String, String),
    /// Give the container `main` of a pod so many thousandths of a CPU, in place.
    Resize(String, i64),
    /// Remove a pod.
    Remove(String),
    /// The kubelet writes its CPU manager's state file.
    KubeletState(String),
    /// Write a file of a control group, as anybody with root can.
    WriteGroup(Group, String, String),
    /// Read a file of a control group.
    ReadGroup(Group, String),
    /// Wait until the plugin has logged this.
    Await(String),
    /// Whether the kernel has warned of itself since it was started.
    KernelWarned,
    /// Look at the node: what the processes say, beside what was decided.
    Look,
    /// How much memory the plugin uses.
    Measure,
    /// Time exclusive containers, on an empty node without a plugin.
    Latency(latency::Settings),
    /// A storm of pods and of SIGKILLs to the plugin, on an empty node without a plugin.
    Storm(chaos::Settings),
    /// End the kernel with a panic: for virtual servers only.
    Panic,
    /// Remove every pod and end the plugin: the next step starts with an empty node.
    Clear,
}

/// A control group, by whose it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Group {
    /// That of the first container of a pod.
    Container(String),
    /// That of a pod.
    Pod(String),
    /// This one below the root of cgroup v2. It is made if it is not there.
    Named(String),
}

/// What came of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The runtime refused the pod or the resize, with these words.
    Refused(String),
    /// After how many milliseconds the plugin had synchronised with the runtime that came back.
    Reconnected(u64),
    /// What the node looks like.
    View(View),
    /// What a file or the plugin's log says.
    Text(String),
    /// What the process in the plugin's pod may do.
    Confinement(Confinement),
    /// Whether it has.
    KernelWarned(bool),
    /// The plugin's resident memory in KiB.
    Resident(u64),
    /// Periods in which a container and its pod were throttled.
    Throttled {
        /// By the container's own quota.
        container: u64,
        /// By the pod's.
        pod: u64,
    },
    /// How long exclusive containers took.
    Latency(Vec<latency::Row>),
    /// What came of a storm.
    Storm(chaos::Summary),
}

/// Carries out steps on a node, with one plugin at most.
pub struct Player<'a> {
    node: &'a mut Node,
    program: &'a Path,
    plugin: Option<(plugin::Setup, Plugin)>,
    launched: Option<(Launched, Word)>,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Player<'a> {
    /// On this node, with the plugin of this program. `tell` hears how long steps go.
    #[must_use]
    pub fn new(node: &'a mut Node, program: &'a Path, tell: &'a mut dyn FnMut(&str)) -> Self {
        Self { node, program, plugin: None, launched: None, tell }
    }

    /// What the plugin has logged since it was started.
    #[must_use]
    pub fn plugin_log(&self) -> String {
        self.word().map_or_else(String::new, Word::log)
    }

    /// The logs of the runtime and, if there is one that keeps its own, of the plugin.
    #[must_use]
    pub fn logs(&self) -> Vec<PathBuf> {
        let plugin = self.word().and_then(Word::log_path).map(Path::to_path_buf);
        std::iter::once(self.node.containerd().log_path()).chain(plugin).collect()
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// When the lab, the runtime or the plugin fails at it.
    pub fn play(&mut self, step: &Step) -> Result<Outcome> {
        let what = step.describe();
        self.act(step).with_context(|| format!("step failed: {what}")).map_err(|error| {
            match self.word() {
                Some(word) => error.context(format!(
                    "the plugin's last words:\n{}",
                    crate::command::last_lines(&word.log(), 10)
                )),
                None => error,
            }
        })
    }

    /// What the plugin says, if there is one.
    fn word(&self) -> Option<&Word> {
        let process = self.plugin.as_ref().map(|(_, plugin)| plugin.word());
        let launched = || self.launched.as_ref().map(|(_, word)| word);
        process.or_else(launched).or_else(|| self.node.daemon_word())
    }

    fn act(&mut self, step: &Step) -> Result<Outcome> {
        match step {
            Step::StartPlugin(config) => {
                self.plugin = None;
                let setup = self.node.plugin(self.program, config)?;
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::StartDaemonSet(manifests) => {
                self.plugin = None;
                self.node.start_daemon_set(self.program, manifests)?;
                let (daemon, kubelet) = self.node.daemon()?;
                daemon.wait_until_ready(kubelet)?;
            }
            Step::Launch(config) => {
                let program = fs::read(self.program)
                    .with_context(|| format!("cannot read {}", self.program.display()))?;
                let root = self.node.containerd().root();
                let launched = Launched::install(root, &program, config, Path::new(STATE))?;
                let word = launched.word();
                self.launched = Some((launched, word));
                self.node.restart_runtime()?;
            }
            Step::Confinement => {
                return self.node.daemon()?.0.confinement().map(Outcome::Confinement);
            }
            Step::Log => {
                let word =
                    self.word().context("there is no plugin that could have said anything")?;
                return Ok(Outcome::Text(word.log()));
            }
            Step::KillPlugin => {
                let (setup, plugin) = self.plugin.take().context("there is no plugin to kill")?;
                plugin.end(Signal::SIGKILL)?;
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::EndPlugin => {
                let (_, plugin) = self.plugin.take().context("there is no plugin to kill")?;
                plugin.end(Signal::SIGKILL)?;
            }
            Step::RunBusy(pod) => return Ok(refusal(self.node.run_busy(pod))),
            Step::RunBusyOnHost(name) => self.node.run_busy_on_host(name)?,
            Step::Throttling(name, seconds) => return self.throttling(name, *seconds),
            Step::KernelWarned => return kernel::has_warned().map(Outcome::KernelWarned),
            Step::Latency(settings) => {
                let rows = latency::measure(self.node, self.program, settings, self.tell)?;
                return Ok(Outcome::Latency(rows));
            }
            Step::Reconfigure(config) => {
                let (setup, plugin) = self.plugin.take().context("there is no plugin to stop")?;
                plugin.end(Signal::SIGTERM)?;
                let setup = plugin::Setup { config: config.clone(), ..setup };
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::KillRuntime => return self.kill_runtime(),
            Step::KillBoth => {
                let (setup, plugin) = self.plugin.take().context("there is no plugin to kill")?;
                plugin.end(Signal::SIGKILL)?;
                self.node.kill_runtime()?;
                self.node.restart_runtime()?;
                let plugin = Plugin::start(&setup)?;
                self.plugin = Some((setup, plugin));
            }
            Step::SwapConfig(config) => {
                let (setup, _) = self.plugin.as_mut().context("there is no plugin to configure")?;
                setup.config.clone_from(config);
                setup.write_config()?;
            }
            Step::Status => {
                let (setup, _) = self.plugin.as_ref().context("there is no plugin to ask")?;
                return setup.status().map(Outcome::Text);
            }
            Step::Fetch(path) => return plugin::fetch(path).map(Outcome::Text),
            Step::WaitFor(text, count) => {
                let (_, plugin) =
                    self.plugin.as_mut().context("there is no plugin to listen to")?;
                plugin.wait_for(text, *count, Duration::from_secs(60))?;
            }
            Step::SetOnline(cpu, online) => {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                std::fs::write(&path, if *online { "1" } else { "0" })
                    .with_context(|| format!("cannot write to {path}"))?;
            }
            Step::Add(pod, container) => return Ok(refusal(self.node.add(pod, container))),
            Step::Stop(pod, container) => self.node.stop(pod, container)?,
            Step::End(pod, container) => self.node.end(pod, container)?,
            Step::Run(pod) => return Ok(refusal(self.node.run(pod).map(|_| ()))),
            Step::RunTogether(pods) => return Ok(refusal(self.node.run_together(pods))),
            Step::Wait(seconds) => std::thread::sleep(Duration::from_secs(*seconds)),
            Step::Retry(pod) => return Ok(refusal(self.node.retry(pod).map(|_| ()))),
            Step::Resize(pod, milli) => return Ok(refusal(self.node.resize(pod, "main", *milli))),
            Step::Remove(pod) => self.node.remove(pod)?,
            Step::KubeletState(state) => self.node.kubelet_state(Some(state))?,
            Step::WriteGroup(group, file, value) => {
                let path = self.directory(group)?.join(file);
                fs::write(&path, value)
                    .with_context(|| format!("cannot write {value:?} to {}", path.display()))?;
            }
            Step::ReadGroup(group, file) => {
                let path = self.directory(group)?.join(file);
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                return Ok(Outcome::Text(text.trim().to_owned()));
            }
            Step::Await(text) => {
                let (_, plugin) = self.plugin.as_mut().context("there is no plugin to log")?;
                plugin.wait_for(text, 1, SAYS)?;
            }
            Step::Look => return View::of(self.node, self.word()).map(Outcome::View),
            Step::Measure => {
                let (_, plugin) = self.plugin.as_ref().context("there is no plugin to measure")?;
                return process::resident_kib(plugin.pid()).map(Outcome::Resident);
            }
            Step::Storm(settings) => {
                let setup = self.node.plugin(self.program, &settings.config)?;
                let summary = chaos::storm(self.node, &setup, settings, self.tell)?;
                return Ok(Outcome::Storm(summary));
            }
            Step::Panic => fs::write("/proc/sysrq-trigger", "c").context("the kernel goes on")?,
            Step::Clear => {
                self.node.remove_all()?;
                self.node.end_daemon_set()?;
                if let Some((_, plugin)) = self.plugin.take() {
                    let status = plugin.end(Signal::SIGTERM)?;
                    ensure!(status.code().is_some(), "the plugin had to be killed: it did not end");
                }
                if let Some((launched, _)) = self.launched.take() {
                    launched.remove()?;
                    self.node.restart_runtime()?;
                    launched.wait_for_end()?;
                }
            }
        }
        Ok(Outcome::Done)
    }

    fn directory(&self, group: &Group) -> Result<PathBuf> {
        let (pod, above) = match group {
            Group::Named(name) => return cgroup::add(name),
            Group::Container(pod) => (pod, false),
            Group::Pod(pod) => (pod, true),
        };
        let running = self.node.pods().iter().find(|running| running.pod.name == *pod);
        let container = running.and_then(|running| running.containers.first());
        let pid = container.with_context(|| format!("no container of pod {pod} runs"))?.pid;
        let directory = cgroup::of_process(pid, "")?;
        let parent = directory.parent().map(Path::to_path_buf);
        Ok(parent.filter(|_| above).unwrap_or(directory))
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
        if self.launched.is_some() {
            self.node.kill_runtime()?;
            self.node.restart_runtime()?;
            return Ok(Outcome::Done);
        }
        let (_, plugin) =
            self.plugin.as_mut().context("there is no plugin that could come back")?;
        let before = plugin.synchronisations();
        self.node.kill_runtime()?;
        self.node.restart_runtime()?;
        let waited = plugin.wait_for_synchronisation(before + 1, Duration::from_secs(30))?;
        Ok(Outcome::Reconnected(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)))
    }
}

fn refusal(result: Result<()>) -> Outcome {
    result.map_or_else(|error| Outcome::Refused(format!("{error:#}")), |()| Outcome::Done)
}

impl Step {
    /// In a person's words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::StartPlugin(_) => "start the plugin".to_owned(),
            Self::StartDaemonSet(_) => "start the plugin as a DaemonSet's pod".to_owned(),
            Self::Launch(_) => "have containerd launch the plugin".to_owned(),
            Self::Confinement => "look how the plugin is confined".to_owned(),
            Self::Log => "read the plugin's log".to_owned(),
            Self::KillPlugin => "kill the plugin and start it again".to_owned(),
            Self::KillRuntime => "kill containerd and start it again".to_owned(),
            Self::KillBoth => "kill containerd and the plugin, and start both again".to_owned(),
            Self::SwapConfig(_) => "change the configuration's ConfigMap".to_owned(),
            Self::Status => "ask for the status".to_owned(),
            Self::Fetch(path) => format!("get {path}"),
            Self::WaitFor(text, _) => format!("wait until the plugin says {text:?}"),
            Self::SetOnline(cpu, true) => format!("bring CPU {cpu} online"),
            Self::SetOnline(cpu, false) => format!("take CPU {cpu} offline"),
            Self::Add(pod, container) => {
                format!("start container {} in pod {pod}", container.name)
            }
            Self::Stop(pod, container) => format!("stop container {container} of pod {pod}"),
            Self::End(pod, container) => format!("container {container} of pod {pod} ends"),
            Self::Run(pod) => {
                format!("start pod {} ({:?}, {})", pod.name, pod.qos(), pod.describe_cpus())
            }
            Self::RunTogether(pods) => format!("start {} pods at the same time", pods.len()),
            Self::Wait(seconds) => format!("wait for {seconds} s"),
            Self::Reconfigure(_) => "restart the plugin with another configuration".to_owned(),
            Self::Retry(pod) => format!("start pod {pod} once more"),
            Self::Resize(pod, milli) => format!("resize pod {pod} to {milli}m CPU"),
            Self::Remove(pod) => format!("remove pod {pod}"),
            Self::KubeletState(_) => "write the kubelet's state file".to_owned(),
            Self::WriteGroup(group, file, value) => {
                format!("write {value:?} to {file} of {group:?}")
            }
            Self::ReadGroup(group, file) => format!("read {file} of {group:?}"),
            Self::Await(text) => format!("wait until the plugin says {text:?}"),
            Self::Look => "look at every container's process".to_owned(),
            Self::Measure => "measure the plugin's memory".to_owned(),
            Self::EndPlugin => "kill the plugin".to_owned(),
            Self::RunBusy(pod) => format!("start busy pod {} ({})", pod.name, pod.describe_cpus()),
            Self::RunBusyOnHost(name) => format!("start {name} on the host, busy"),
            Self::Throttling(pod, seconds) => format!("count throttling of {pod} for {seconds} s"),
            Self::KernelWarned => "ask the kernel whether it has warned of itself".to_owned(),
            Self::Latency(_) => "time exclusive containers".to_owned(),
            Self::Storm(settings) => format!(
                "a storm of {} kills, seed {}, {} workers",
                settings.kills, settings.seed, settings.workers
            ),
            Self::Panic => "end the kernel".to_owned(),
            Self::Clear => "empty the node".to_owned(),
        }
    }
}
