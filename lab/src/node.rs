//! A node: a container runtime, and the pods that the lab started on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use cpuset::CpuSet;
use nix::sys::signal::Signal;

use crate::busy::Busy;
use crate::cgroup::Driver;
use crate::command::poll;
use crate::containerd::{Containerd, ContainerdSetup};
use crate::kubelet::{Kubelet, RunningContainer, RunningPod};
use crate::pod::{Container, Pod};
use crate::tap::Tap;
use crate::{cache, cgroup, files, images, plugin, process};

mod first;
mod strayed;

pub use first::{FirstInstruction, ProbeReport};
pub use strayed::Strayed;

/// How long a runtime may take to notice that a container's process has ended; it takes a moment.
const EXIT: Duration = Duration::from_secs(30);

/// For a resize to be in force.
const RESIZED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Node {
    kubelet: Kubelet,
    pods: Vec<RunningPod>,
    busy: Vec<Busy>,
    /// Whether the plugin's image has been imported.
    ships: bool,
    driver: Driver,
    /// Attempt number of the last container: two with one name must not have the same.
    attempts: u32,
    directory: PathBuf,
    tap: Option<Tap>,
    /// The last field: the runtime ends after everything that needs it.
    containerd: Containerd,
}

impl Node {
    /// Starts the runtime and imports the image. `directory` is for the plugin and the containers'
    /// reports.
    pub fn start(setup: ContainerdSetup, image: &Path, directory: &Path) -> Result<Self> {
        let driver = setup.driver;
        cgroup::prepare(driver)?;
        let containerd = Containerd::start(setup)?;
        containerd.import(image, images::LAB)?;
        let kubelet = Kubelet::connect(&containerd.socket())?;
        files::make_directory(directory)?;
        let node = Self {
            kubelet,
            pods: Vec::new(),
            busy: Vec::new(),
            ships: false,
            driver,
            attempts: 0,
            directory: directory.to_path_buf(),
            tap: None,
            containerd,
        };
        cache::remove(&node.kubelet_directory())?;
        // Every kubelet makes it, and the overlay `podresources` mounts it.
        files::make_directory(&node.kubelet_directory().join("pod-resources"))?;
        Ok(node)
    }

    /// Containers start in order. What ran before a refusal stays, as with a kubelet, until
    /// [`remove`](Self::remove) or [`remove_all`](Self::remove_all).
    pub fn run(&mut self, pod: &Pod) -> Result<RunningPod> {
        let pod = Pod { driver: self.driver, ..pod.clone() };
        let sandbox = self.kubelet.run_sandbox(&pod)?;
        let name = pod.name.clone();
        self.pods.push(RunningPod { pod, sandbox, containers: Vec::new() });
        self.retry(&name)
    }

    pub fn run_together(&mut self, pods: &[Pod]) -> Result<()> {
        let own = |pod: &Pod| Pod { driver: self.driver, ..pod.clone() };
        let pods: Vec<Pod> = pods.iter().map(own).collect();
        self.attempts += 1;
        let (running, done) = self.kubelet.run_together(&pods, self.attempts);
        self.pods.extend(running);
        done
    }

    /// Starts the containers of a pod that do not run, like a kubelet that retries.
    pub fn retry(&mut self, name: &str) -> Result<RunningPod> {
        let index = self.index(name)?;
        let RunningPod { pod, sandbox, containers } = self.pods[index].clone();
        let missing = |one: &&Container| containers.iter().all(|c| c.name != one.name);
        for container in pod.containers.iter().filter(missing) {
            let attempt = self.attempts;
            self.attempts += 1;
            let started = self.start_container(&pod, container, &sandbox, attempt)?;
            self.pods[index].containers.push(started);
        }
        Ok(self.pods[index].clone())
    }

    pub fn add(&mut self, pod: &str, container: &Container) -> Result<()> {
        let index = self.index(pod)?;
        self.attempts += 1;
        let running = &mut self.pods[index];
        running.pod.containers.push(container.clone());
        let RunningPod { pod, sandbox, .. } = running.clone();
        let started = self.start_container(&pod, container, &sandbox, self.attempts)?;
        self.pods[index].containers.push(started);
        Ok(())
    }

    /// The pod keeps running; [`retry`](Self::retry) would start the container again.
    pub fn stop(&mut self, pod: &str, container: &str) -> Result<()> {
        let stopped = self.take(pod, container)?;
        self.kubelet.stop_container(&stopped.id)
    }

    /// As [`stop`](Self::stop), but the process ends by itself. Like a kubelet, waits until the
    /// runtime reports the exit.
    pub fn end(&mut self, pod: &str, container: &str) -> Result<()> {
        let ended = self.take(pod, container)?;
        process::signal(ended.pid, Signal::SIGKILL);
        poll(EXIT, || self.kubelet.exit_code(&ended.id))?
            .with_context(|| format!("the runtime does not report the exit of {container}"))?;
        Ok(())
    }

    fn take(&mut self, pod: &str, container: &str) -> Result<RunningContainer> {
        let index = self.index(pod)?;
        let containers = &mut self.pods[index].containers;
        let index = containers.iter().position(|running| running.name == container);
        let index = index.with_context(|| format!("no container {container} in pod {pod}"))?;
        Ok(containers.remove(index))
    }

    /// A refused resize changes nothing.
    pub fn resize(&mut self, pod: &str, container: &str, milli: i64) -> Result<()> {
        let index = self.index(pod)?;
        self.pods[index].pod = self.kubelet.resize(&self.pods[index], container, milli)?;
        Ok(())
    }

    /// Resizes the container `main` of a pod to each of these sizes, and waits for nothing but that
    /// its program, which must keep running, may use so many CPUs. Returns where it ran.
    pub fn resize_in_a_row(&mut self, pod: &str, sizes: &[i64]) -> Result<CpuSet> {
        let mut ran = CpuSet::EMPTY;
        for size in sizes {
            self.resize(pod, "main", *size)?;
            let main = self.pods[self.index(pod)?].containers.first();
            let pid = main.with_context(|| format!("pod {pod} has no container"))?.pid;
            let has_all = || {
                Ok(process::allowed(pid)?.len() as i64 * 1000 == *size).map(|is| is.then_some(()))
            };
            poll(RESIZED, has_all)?
                .with_context(|| format!("pod {pod} does not get {size}m CPU"))?;
            ran |= cgroup::threads(pid)?.into_iter().filter_map(process::last_cpu).collect();
        }
        Ok(ran)
    }

    fn index(&self, pod: &str) -> Result<usize> {
        let index = self.pods.iter().position(|running| running.pod.name == pod);
        index.with_context(|| format!("no pod {pod}"))
    }

    /// The container `main` is busy on every CPU it may use.
    pub fn run_busy(&mut self, pod: &Pod) -> Result<()> {
        let record = self.report_of(&pod.name)?;
        let pod = self.probing(pod, "spin", [])?;
        let running = self.run(&pod)?;
        let main = running.containers.iter().find(|c| c.name == "main");
        let pid = main.context("a busy pod must have a container main")?.pid;
        self.busy.push(Busy::in_pod(&pod.name, pid, record)?);
        Ok(())
    }

    /// Outside of all pods.
    pub fn run_busy_on_host(&mut self, name: &str) -> Result<()> {
        let record = self.report_of(name)?;
        self.busy.push(Busy::on_host(name, record)?);
        Ok(())
    }

    pub fn busy(&self) -> &[Busy] {
        &self.busy
    }

    fn report_of(&self, name: &str) -> Result<PathBuf> {
        let record = self.reports()?.join(name);
        cache::remove(&record)?;
        Ok(record)
    }

    /// Starts a container in a running pod, again or for the first time.
    pub fn start_container(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &str,
        attempt: u32,
    ) -> Result<RunningContainer> {
        let id = self.kubelet.create_container(pod, container, sandbox, attempt)?;
        self.kubelet.start_container(&id, &container.name)
    }

    /// Like a kubelet: containers first, the pod's cgroup last.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        let Some(index) = self.pods.iter().position(|running| running.pod.name == name) else {
            return Ok(());
        };
        let running = self.pods.remove(index);
        self.busy.retain(|busy| busy.name != name);
        self.kubelet.remove_pod(&running)
    }

    /// Removes all pods at the same time, and ends busy processes of the host.
    pub fn remove_all(&mut self) -> Result<()> {
        self.busy.clear();
        let pods = std::mem::take(&mut self.pods);
        self.kubelet.remove_together(&pods)
    }

    /// Makes the plugin's image known to the runtime, once: it stays the same.
    pub fn import_plugin(&mut self, image: &Path) -> Result<()> {
        if !self.ships {
            self.containerd.import(image, image::NAME)?;
            self.ships = true;
        }
        Ok(())
    }

    /// Files of this node that are not the runtime's.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Invalid once the runtime is restarted.
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// The pods that were started, in their order.
    pub fn pods(&self) -> &[RunningPod] {
        &self.pods
    }

    /// From every thread of all processes of the container. An error if they differ for longer than
    /// the plugin needs to change them all.
    pub fn allowed(&self, pod: &str, container: &str) -> Result<CpuSet> {
        let running = self.pods.iter().find(|running| running.pod.name == pod);
        let running_container =
            running.and_then(|running| running.containers.iter().find(|c| c.name == container));
        let pid = running_container
            .with_context(|| format!("container {container} of pod {pod} was not started"))?
            .pid;
        process::allowed_together(|| cgroup::threads(pid))
            .with_context(|| format!("container {container} of pod {pod}"))
    }

    /// Replaces the state file of the kubelet's CPU manager atomically, or deletes it.
    pub fn kubelet_state(&self, state: Option<&str>) -> Result<()> {
        let directory = self.kubelet_directory();
        let new = directory.join("new");
        let path = directory.join("cpu_manager_state");
        files::make_directory(&directory)?;
        let result = match state {
            Some(state) => fs::write(&new, state).and_then(|()| fs::rename(&new, &path)),
            None => fs::remove_file(&path),
        };
        result.with_context(|| format!("cannot change {}", path.display()))
    }

    /// Never the directory of a real kubelet on this machine.
    fn kubelet_directory(&self) -> PathBuf {
        self.containerd.root().join("var/lib/kubelet")
    }

    /// A second connection. The caller removes what it starts.
    pub fn another_kubelet(&self) -> Result<Kubelet> {
        Kubelet::connect(&self.containerd.socket())
    }

    /// Records from now on what the runtime sends to a plugin that is started as a plain process.
    pub fn record(&mut self) -> Result<()> {
        let runtime = self.containerd.nri_socket();
        self.tap = Some(Tap::open(runtime.with_file_name("tap.sock"), runtime)?);
        Ok(())
    }

    /// Empty if nothing is recorded.
    pub fn recording(&self) -> String {
        self.tap.as_ref().map_or_else(String::new, Tap::recording)
    }

    fn plugin_socket(&self) -> PathBuf {
        let runtime = || self.containerd.nri_socket();
        self.tap.as_ref().map_or_else(runtime, |tap| tap.socket().to_path_buf())
    }

    /// Empties the plugin's directory.
    pub fn plugin(&self, program: &Path, config: &str) -> Result<plugin::PluginSetup> {
        let directory = self.directory.join("plugin");
        cache::remove(&directory)?;
        Ok(plugin::PluginSetup {
            program: program.to_path_buf(),
            directory,
            socket: self.plugin_socket(),
            config: format!("{config}kubeletStateDir: {}\n", self.kubelet_directory().display()),
        })
    }

    pub fn reports(&self) -> Result<PathBuf> {
        let directory = self.directory.join("reports");
        files::make_directory(&directory)?;
        Ok(directory)
    }

    pub fn kill_runtime(&mut self) -> Result<()> {
        self.containerd.kill()
    }

    pub fn restart_runtime(&mut self) -> Result<()> {
        self.containerd.restart()?;
        self.kubelet = self.another_kubelet()?;
        Ok(())
    }

    /// containerd 1.7 has NRI disabled by default.
    pub fn restart_runtime_without_nri(&mut self) -> Result<()> {
        self.containerd.restart_without_nri()?;
        self.kubelet = self.another_kubelet()?;
        Ok(())
    }

    pub fn containerd(&self) -> &Containerd {
        &self.containerd
    }
}

/// Removes pods through the runtime while it runs. Failures are only reported.
impl Drop for Node {
    fn drop(&mut self) {
        let pods: Vec<Pod> = self.pods.iter().map(|running| running.pod.clone()).collect();
        if let Err(error) = self.remove_all() {
            crate::command::progress(format!("pods were not removed properly: {error:#}"));
            for pod in pods {
                let _ = cgroup::remove_pod(&pod);
            }
        }
        cgroup::tidy();
    }
}
