//! The plugin as it is installed: from its own image, as the pod that `manifests/` describe,
//! started as a kubelet would.
//!
//! What a kubelet does beyond that and the lab does not: probes over and over, the service
//! account's token, service links and their variables, a termination message, `/etc/hosts` of the
//! pod, back-off before restarts. The pod uses the host's network, as all of the lab's pods do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use crate::command::last_lines;
use crate::cri::wire;
use crate::instance::Instance;
use crate::kubelet::{Kubelet, RunningContainer, RunningPod, node_memory};
use crate::manifests::Manifests;
use crate::manifests::types::Container;
use crate::node::Node;
use crate::plugin::Word;
use crate::{cache, process};

mod confinement;
mod messages;
pub mod place;
mod probes;
mod volumes;

pub use confinement::{Confinement, refuses_writes};
use place::Place;

/// Includes the time on emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The default terminationGracePeriodSeconds.
const GRACE: Duration = Duration::from_secs(30);

/// The plugin's pod.
#[derive(Debug)]
pub struct DaemonPod {
    manifests: Manifests,
    place: Place,
    sandbox: wire::PodSandboxConfig,
    running: RunningPod,
    /// Starts of its container.
    attempts: u32,
    word: Word,
}

impl DaemonPod {
    /// Starts the plugin of this image as it is installed: the image imported, these manifests
    /// applied, with no memory of earlier runs. Does not wait for what it does.
    pub fn install(node: &mut Node, image: &Path, manifests: &Manifests) -> Result<Self> {
        cache::remove(&node.containerd().root().join("var/lib/nri-cpu-manager"))?;
        Self::apply(node, image, manifests)
    }

    /// As [`install`](Self::install), with the memory that there is.
    ///
    /// # Errors
    /// As [`install`](Self::install), or when an init container fails.
    pub fn apply(node: &mut Node, image: &Path, manifests: &Manifests) -> Result<Self> {
        node.import_plugin(image)?;
        let place = Place {
            root: node.containerd().root().to_path_buf(),
            directory: node.directory().join(&manifests.daemon_set.metadata.name),
            driver: node.driver(),
        };
        Self::start(node.kubelet(), manifests, &place)
    }

    /// Starts the pod: its init containers one after the other, then its container. Does not wait
    /// for what that does.
    fn start(kubelet: &Kubelet, manifests: &Manifests, place: &Place) -> Result<Self> {
        let [main] = &manifests.pod().containers[..] else {
            bail!("the lab expects exactly one container in the plugin's pod");
        };
        cache::remove(&place.directory)?;
        let pod = messages::pod(manifests, place.driver)?;
        let logs = place.directory.join("logs");
        let sandbox = messages::sandbox(&pod, manifests.pod(), &logs);
        volumes::set_up(manifests, place)?;
        let id = kubelet.run_sandbox_as(&pod, sandbox.clone())?;
        let running = RunningPod { pod, sandbox: id, containers: Vec::new() };
        let word = Word::at(Some(log_path(&logs, main, 0)), state(manifests, main, place)?);
        let manifests = manifests.clone();
        let mut daemon =
            Self { manifests, place: place.clone(), sandbox, running, attempts: 0, word };
        if let Err(error) = daemon.start_containers(kubelet) {
            daemon.delete(kubelet)?;
            return Err(error);
        }
        Ok(daemon)
    }

    fn start_containers(&mut self, kubelet: &Kubelet) -> Result<()> {
        for init in self.manifests.pod().init_containers.clone() {
            let container = self.create(kubelet, &init, 0)?;
            let ended = || kubelet.exit_code(&container.id);
            let code = wait(ended).with_context(|| format!("init container {}", init.name))?;
            let log = fs::read_to_string(log_path(&self.logs(), &init, 0)).unwrap_or_default();
            ensure!(code == 0, "init container {} ended with {code}:\n{log}", init.name);
        }
        self.start_main(kubelet)
    }

    /// Starts the plugin's container again, with a new log.
    fn start_main(&mut self, kubelet: &Kubelet) -> Result<()> {
        let main = self.manifests.pod().containers[0].clone();
        let container = self.create(kubelet, &main, self.attempts)?;
        let path = log_path(&self.logs(), &main, self.attempts);
        self.word = Word::at(Some(path), state(&self.manifests, &main, &self.place)?);
        self.attempts += 1;
        self.running.containers.push(container);
        Ok(())
    }

    fn create(
        &self,
        kubelet: &Kubelet,
        spec: &Container,
        attempt: u32,
    ) -> Result<RunningContainer> {
        kubelet.find_image(&spec.image)?;
        let recursive = kubelet.has_recursive_read_only()?;
        let mounts = volumes::mounts(&self.manifests, spec, &self.place, recursive)?;
        let path = log_path(&self.logs(), spec, attempt);
        let directory = path.parent().context("a log lies in a directory")?;
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let mut config =
            messages::container(&self.running.pod, spec, attempt, mounts, node_memory())?;
        config.log_path = relative_log(spec, attempt);
        let id =
            kubelet.create_container_as(&self.running.sandbox, config, self.sandbox.clone())?;
        kubelet.launch_container(&id)?;
        // One that has ended already has no process.
        let ended = RunningContainer { name: spec.name.clone(), id: id.clone(), pid: 0 };
        Ok(kubelet.started(&id, &spec.name).unwrap_or(ended))
    }

    /// Runs each probe once.
    pub fn probe(&self) -> Result<()> {
        probes::probe(&self.manifests.pod().containers[0])
    }

    pub fn wait_for_end(&self, kubelet: &Kubelet) -> Result<i32> {
        let id = &self.container()?.id;
        wait(|| kubelet.exit_code(id)).with_context(|| {
            format!("the plugin's last words:\n{}", last_lines(&self.word.log(), 10))
        })
    }

    pub fn delete(&self, kubelet: &Kubelet) -> Result<()> {
        kubelet.remove_pod(&self.running)
    }

    pub fn container(&self) -> Result<&RunningContainer> {
        self.running.containers.last().context("the plugin's container was not started")
    }

    pub fn confinement(&self) -> Result<Confinement> {
        Confinement::of(self.container()?.pid)
    }

    pub fn init_log(&self, name: &str) -> Result<String> {
        let path = self.logs().join(name).join("0.log");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn logs(&self) -> PathBuf {
        self.place.directory.join("logs")
    }
}

impl Instance for DaemonPod {
    /// As a kubelet does once the runtime says that the container has ended. The instance that has
    /// is removed then.
    fn start(&mut self, node: &mut Node) -> Result<()> {
        let kubelet = node.kubelet();
        // A runtime that was killed as well may call its state unknown, for ever. A kubelet has
        // such a container stopped, and tries again where the runtime is just clearing it away.
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
        ensure!(code == 0, "the plugin was asked to end and ended with {code}");
        Ok(())
    }

    /// Like a kubelet that updates a mounted ConfigMap.
    fn configure(&mut self, config: &str) -> Result<()> {
        self.manifests = self.manifests.clone().configured(config);
        volumes::write_config(&self.manifests, &self.place)
    }

    fn remove(&mut self, node: &mut Node) -> Result<()> {
        if self.ended(node)?.is_none() {
            self.end(node, Signal::SIGTERM)?;
        }
        self.delete(node.kubelet())
    }

    fn ended(&mut self, node: &Node) -> Result<Option<String>> {
        let code = node.kubelet().exit_code(&self.container()?.id)?;
        Ok(code.map(|code| format!("exit code {code}")))
    }

    /// All probes must succeed.
    fn wait_until_ready(&mut self, node: &Node) -> Result<()> {
        self.wait_for_synchronisation(node, 1, PATIENCE)?;
        self.probe()
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.container()?.pid)
    }

    fn word(&self) -> &Word {
        &self.word
    }

    /// Like `kubectl logs`: without the runtime's prefix of each line.
    fn log(&self) -> String {
        let main = &self.manifests.pod().containers[0];
        let logs = (0..self.attempts).map(|attempt| log_path(&self.logs(), main, attempt));
        let text: String = logs.filter_map(|log| fs::read_to_string(log).ok()).collect();
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

fn relative_log(container: &Container, attempt: u32) -> String {
    format!("{}/{attempt}.log", container.name)
}

fn log_path(logs: &Path, container: &Container, attempt: u32) -> PathBuf {
    logs.join(relative_log(container, attempt))
}

/// The state directory's path on the node.
fn state(manifests: &Manifests, main: &Container, place: &Place) -> Result<PathBuf> {
    let mount = main.volume_mounts.iter().find(|m| m.mount_path == "/var/lib/nri-cpu-manager");
    let mount = mount.context("nothing is mounted at the plugin's state directory")?;
    let volume = manifests.pod().volume(&mount.name)?;
    let path = volume.host_path.as_ref().context("the plugin's state is not kept on the node")?;
    Ok(volumes::on_node(place, &path.path))
}

fn wait<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(start.elapsed() < PATIENCE, "it did not end within {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}
