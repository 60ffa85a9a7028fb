//! The plugin as installed: from its own image, in the pod that `manifests/` describes, started
//! like a kubelet.
//!
//! Unlike a kubelet, the lab does not repeat probes, and does without the service account's token,
//! service links and their variables, the termination message, the pod's `/etc/hosts`, and back-off
//! before restarts. The pod uses the host's network, like all of the lab's pods.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::command::{last_lines, poll};
use crate::cri::wire;
use crate::instance::Instance;
use crate::kubelet::{Kubelet, RunningContainer, RunningPod};
use crate::manifests::Manifests;
use crate::manifests::types::{ContainerSpec, Probe};
use crate::node::Node;
use crate::plugin::{self, PluginFiles};
use crate::{cache, files, process};

mod confinement;
mod messages;
mod volumes;

pub use confinement::{Confinement, refuses_writes};
use volumes::NodeLayout;

/// Includes the time on emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The default terminationGracePeriodSeconds.
const GRACE: Duration = Duration::from_secs(30);

/// The pod's address on the host's network. Not 127.0.0.1: a kubelet cannot reach a container that
/// listens only there.
const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The plugin's state, below the node's root directory.
const STATE: &str = "var/lib/nri-cpu-manager";

/// The containers' logs, below the kubelet's directory.
const LOGS: &str = "logs";

/// The plugin's pod.
#[derive(Debug)]
pub struct DaemonPod {
    manifests: Manifests,
    layout: NodeLayout,
    sandbox: wire::PodSandboxConfig,
    running: RunningPod,
    /// Starts of its container.
    attempts: u32,
    files: PluginFiles,
}

impl DaemonPod {
    /// Imports the image, removes the plugin's state and applies the manifests. Does not wait until
    /// the plugin is ready.
    pub fn install(node: &mut Node, image: &Path, manifests: &Manifests) -> Result<Self> {
        cache::remove(&node.containerd().root().join(STATE))?;
        Self::apply(node, image, manifests)
    }

    /// As [`install`](Self::install), but keeps the state. The failure of an init container is an
    /// error.
    pub fn apply(node: &mut Node, image: &Path, manifests: &Manifests) -> Result<Self> {
        node.import_plugin(image)?;
        let layout = NodeLayout {
            root: node.containerd().root().to_path_buf(),
            directory: node.directory().join(&manifests.daemon_set.metadata.name),
            driver: node.driver(),
        };
        Self::start(node.kubelet(), manifests.clone(), layout)
    }

    /// Init containers one after the other, then the container.
    fn start(kubelet: &Kubelet, manifests: Manifests, layout: NodeLayout) -> Result<Self> {
        ensure!(
            manifests.pod().containers.len() == 1,
            "the plugin's pod must have exactly one container"
        );
        cache::remove(&layout.directory)?;
        volumes::set_up(&manifests, &layout)?;
        let pod = messages::pod(&manifests, layout.driver)?;
        let sandbox = messages::sandbox(&pod, &layout.directory.join(LOGS));
        let id = kubelet.run_sandbox_as(&pod, sandbox.clone())?;
        let running = RunningPod { pod, sandbox: id, containers: Vec::new() };
        let files = PluginFiles::at(None, layout.root.join(STATE));
        let mut daemon = Self { manifests, layout, sandbox, running, attempts: 0, files };
        if let Err(error) = daemon.start_containers(kubelet) {
            kubelet.remove_pod(&daemon.running)?;
            return Err(error);
        }
        Ok(daemon)
    }

    fn start_containers(&mut self, kubelet: &Kubelet) -> Result<()> {
        for init in &self.manifests.pod().init_containers {
            let container = self.create(kubelet, init, 0)?;
            let code = wait(|| kubelet.exit_code(&container.id))
                .with_context(|| format!("init container {}", init.name))?;
            let log = fs::read_to_string(self.log_path(&init.name, 0)).unwrap_or_default();
            ensure!(code == 0, "init container {} exited with {code}:\n{log}", init.name);
        }
        self.start_main(kubelet)
    }

    /// Starts the plugin's container, at first or again, with a new log.
    fn start_main(&mut self, kubelet: &Kubelet) -> Result<()> {
        let container = self.create(kubelet, self.main(), self.attempts)?;
        let log = self.log_path(&container.name, self.attempts);
        self.files = PluginFiles::at(Some(log), self.layout.root.join(STATE));
        self.attempts += 1;
        self.running.containers.push(container);
        Ok(())
    }

    fn create(
        &self,
        kubelet: &Kubelet,
        spec: &ContainerSpec,
        attempt: u32,
    ) -> Result<RunningContainer> {
        let recursive = kubelet.has_recursive_read_only()?;
        let mounts = volumes::mounts(&self.manifests, spec, &self.layout, recursive)?;
        files::make_directory(&self.layout.directory.join(LOGS).join(&spec.name))?;
        let config = messages::container(&self.running.pod, spec, attempt, mounts)?;
        let id =
            kubelet.create_container_as(&self.running.sandbox, config, self.sandbox.clone())?;
        kubelet.launch_container(&id)?;
        // A container that has already ended has no process.
        let ended = RunningContainer { name: spec.name.clone(), id: id.clone(), pid: 0 };
        Ok(kubelet.started(&id, &spec.name).unwrap_or(ended))
    }

    /// Runs each probe once.
    pub fn probe(&self) -> Result<()> {
        let main = self.main();
        for (name, probe) in main.probes() {
            succeeds(main, probe).with_context(|| format!("the {name} of {} failed", main.name))?;
        }
        Ok(())
    }

    pub fn wait_for_end(&self, kubelet: &Kubelet) -> Result<i32> {
        let id = &self.container()?.id;
        wait(|| kubelet.exit_code(id)).with_context(|| {
            format!("end of the plugin's log:\n{}", last_lines(&self.files.log(), 10))
        })
    }

    pub fn container(&self) -> Result<&RunningContainer> {
        self.running.containers.last().context("the plugin's container has not been started")
    }

    pub fn init_log(&self, name: &str) -> Result<String> {
        files::read(&self.log_path(name, 0))
    }

    fn main(&self) -> &ContainerSpec {
        &self.manifests.pod().containers[0]
    }

    fn log_path(&self, container: &str, attempt: u32) -> PathBuf {
        let logs = self.layout.directory.join(LOGS);
        logs.join(messages::log_path(container, attempt))
    }
}

impl Instance for DaemonPod {
    /// Like a kubelet once the runtime reports the end of the container: the ended instance is
    /// removed after the new one has started.
    fn start(&mut self, node: &mut Node) -> Result<()> {
        let kubelet = node.kubelet();
        // A runtime that was killed too may report the state as unknown forever. A kubelet stops
        // such a container, and tries again while the runtime is cleaning up.
        let id = &self.container()?.id;
        wait(|| Ok(kubelet.stop_container(id).ok()))?;
        self.wait_for_end(kubelet)?;
        let ended = self.container()?.id.clone();
        self.start_main(kubelet)?;
        kubelet.remove_container(&ended)?;
        self.running.containers.retain(|container| container.id != ended);
        Ok(())
    }

    /// The runtime may not know that the container has ended.
    fn end(&mut self, node: &mut Node, signal: Signal) -> Result<()> {
        let container = self.container()?;
        if signal == Signal::SIGKILL {
            process::signal(container.pid, signal);
            return wait(|| Ok((!process::is_alive(container.pid)).then_some(())));
        }
        node.kubelet().stop_container_within(&container.id, GRACE)?;
        let code = self.wait_for_end(node.kubelet())?;
        ensure!(code == 0, "the plugin exited with {code} after SIGTERM");
        Ok(())
    }

    /// Like a kubelet that updates a mounted ConfigMap.
    fn configure(&mut self, config: &str) -> Result<()> {
        self.manifests = self.manifests.clone().configured(config);
        volumes::write_config(&self.manifests, &self.layout)
    }

    fn remove(&mut self, node: &mut Node) -> Result<()> {
        if self.ended(node)?.is_none() {
            self.end(node, Signal::SIGTERM)?;
        }
        node.kubelet().remove_pod(&self.running)
    }

    fn ended(&mut self, node: &Node) -> Result<Option<String>> {
        let code = node.kubelet().exit_code(&self.container()?.id)?;
        Ok(code.map(|code| format!("exit code {code}")))
    }

    /// All probes must succeed. Like a kubelet, tries again: the first write of the state may take
    /// a second.
    fn wait_until_ready(&mut self, node: &Node) -> Result<()> {
        self.wait_for_synchronisation(node, 1, PATIENCE)?;
        let mut probed = Ok(());
        poll(PATIENCE, || {
            probed = self.probe();
            Ok(if probed.is_ok() { Some(()) } else { None })
        })?;
        probed
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.container()?.pid)
    }

    fn files(&self) -> &PluginFiles {
        &self.files
    }

    /// Like `kubectl logs`: without the runtime's prefix of each line.
    fn log(&self) -> String {
        let name = &self.main().name;
        let logs = (0..self.attempts).map(|attempt| self.log_path(name, attempt));
        let text: String = logs.filter_map(|log| fs::read_to_string(log).ok()).collect();
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

fn wait<T>(condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    poll(PATIENCE, condition)?.with_context(|| format!("timeout after {} s", PATIENCE.as_secs()))
}

fn succeeds(container: &ContainerSpec, probe: &Probe) -> Result<()> {
    let address = SocketAddr::from((POD, container.port(&probe.http_get.port)?));
    let timeout = Duration::from_secs(probe.timeout_seconds);
    let answer = plugin::fetch_from(address, &probe.http_get.path, timeout)?;
    let status = answer.split_whitespace().nth(1).and_then(|code| code.parse::<u16>().ok());
    ensure!(status.is_some_and(|code| (200..400).contains(&code)), "the answer was\n{answer}");
    Ok(())
}
