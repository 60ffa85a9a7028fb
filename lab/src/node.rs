//! A node: a container runtime, and the lab in the kubelet's place.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nri_cpu_manager::cpuset::CpuSet;

use crate::containerd::{Containerd, Setup};
use crate::cri::{Cri, wire};
use crate::pod::{Container, Pod};
use crate::{cgroup, plugin, process};

/// A machine's container runtime with the pods that run on it.
#[derive(Debug)]
pub struct Node {
    /// The kubelet's connection to the runtime.
    cri: Cri,
    pods: Vec<RunningPod>,
    directory: PathBuf,
    /// Last, so that the runtime ends after everything that needs it.
    containerd: Containerd,
}

/// A pod that was started.
#[derive(Debug, Clone)]
pub struct RunningPod {
    /// What it is.
    pub pod: Pod,
    /// The runtime's id of its sandbox.
    pub sandbox: String,
    /// Its containers that run.
    pub containers: Vec<RunningContainer>,
}

/// A container that was started.
#[derive(Debug, Clone)]
pub struct RunningContainer {
    /// Its name in the pod.
    pub name: String,
    /// The runtime's id.
    pub id: String,
    /// Its first process.
    pub pid: u32,
}

impl Node {
    /// Starts the runtime and makes the image known to it. `directory` is for the plugin and the containers' reports.
    ///
    /// # Errors
    /// When the runtime does not start or does not take the image.
    pub fn start(setup: Setup, image: &Path, directory: &Path) -> Result<Self> {
        cgroup::prepare()?;
        let containerd = Containerd::start(setup)?;
        containerd.import(image)?;
        let cri = containerd.connect()?;
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self { cri, pods: Vec::new(), directory: directory.to_path_buf(), containerd })
    }

    /// Starts a pod with all its containers, in their order.
    ///
    /// # Errors
    /// The runtime's words when it refuses; what was started until then stays, as with a kubelet, until
    /// [`remove`](Self::remove) or [`remove_all`](Self::remove_all).
    pub fn run(&mut self, pod: &Pod) -> Result<RunningPod> {
        cgroup::add_pod(pod)?;
        let config = pod.sandbox();
        let request = wire::RunPodSandboxRequest { config: Some(config.clone()) };
        let sandbox = self.cri.run_pod_sandbox(request)?.pod_sandbox_id;
        self.pods.push(RunningPod {
            pod: pod.clone(),
            sandbox: sandbox.clone(),
            containers: Vec::new(),
        });
        for container in &pod.containers {
            let started = self.start_container(pod, container, &sandbox, 0)?;
            if let Some(running) = self.pods.last_mut() {
                running.containers.push(started);
            }
        }
        self.pods.last().cloned().context("a pod that was just started is unknown")
    }

    /// Starts one more container, or one container once more, in a pod that runs.
    ///
    /// # Errors
    /// The runtime's words when it refuses.
    pub fn start_container(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &str,
        attempt: u32,
    ) -> Result<RunningContainer> {
        let request = wire::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(pod.container(container, attempt, node_memory())),
            sandbox_config: Some(pod.sandbox()),
        };
        let id = self.cri.create_container(request)?.container_id;
        self.cri.start_container(wire::StartContainerRequest { container_id: id.clone() })?;
        let pid = self.cri.pid(&id)?;
        Ok(RunningContainer { name: container.name.clone(), id, pid })
    }

    /// Stops one container of a pod; the pod goes on.
    ///
    /// # Errors
    /// The runtime's words when it refuses.
    pub fn stop_container(&self, container: &RunningContainer) -> Result<()> {
        self.cri.stop_container(wire::StopContainerRequest {
            container_id: container.id.clone(),
            timeout: 0,
        })?;
        Ok(())
    }

    /// Stops and removes a pod, as a kubelet does: containers first, at the end the pod's cgroup.
    ///
    /// # Errors
    /// The runtime's words when it refuses.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        let Some(index) = self.pods.iter().position(|running| running.pod.name == name) else {
            return Ok(());
        };
        let running = self.pods.remove(index);
        for container in &running.containers {
            self.cri.stop_container(wire::StopContainerRequest {
                container_id: container.id.clone(),
                timeout: 0,
            })?;
        }
        self.cri.stop_pod_sandbox(wire::StopPodSandboxRequest {
            pod_sandbox_id: running.sandbox.clone(),
        })?;
        for container in &running.containers {
            self.cri.remove_container(wire::RemoveContainerRequest {
                container_id: container.id.clone(),
            })?;
        }
        self.cri.remove_pod_sandbox(wire::RemovePodSandboxRequest {
            pod_sandbox_id: running.sandbox.clone(),
        })?;
        cgroup::remove_pod(&running.pod)
    }

    /// Removes every pod.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_all(&mut self) -> Result<()> {
        while let Some(name) = self.pods.last().map(|running| running.pod.name.clone()) {
            self.remove(&name)?;
        }
        Ok(())
    }

    /// The pods that were started, in their order.
    #[must_use]
    pub fn pods(&self) -> &[RunningPod] {
        &self.pods
    }

    /// Changes a running container's resources in place.
    ///
    /// # Errors
    /// The runtime's words when it refuses.
    pub fn resize(
        &self,
        container: &RunningContainer,
        pod: &Pod,
        wanted: &Container,
    ) -> Result<()> {
        self.cri.update_container_resources(wire::UpdateContainerResourcesRequest {
            container_id: container.id.clone(),
            linux: Some(wanted.resources(pod.qos(), node_memory())),
        })?;
        Ok(())
    }

    /// Where a pod's container may run: what the kernel says of every thread of its first process.
    ///
    /// # Errors
    /// When it does not run, or its threads do not agree.
    pub fn allowed(&self, pod: &str, container: &str) -> Result<CpuSet> {
        let running = self.pods.iter().find(|running| running.pod.name == pod);
        let found =
            running.and_then(|running| running.containers.iter().find(|c| c.name == container));
        process::allowed(
            found
                .with_context(|| format!("container {container} of pod {pod} was not started"))?
                .pid,
        )
    }

    /// A plugin for this node, with its directory emptied.
    ///
    /// # Errors
    /// When the directory cannot be emptied.
    pub fn plugin(&self, program: &Path, config: &str) -> Result<plugin::Setup> {
        let directory = self.directory.join("plugin");
        crate::cache::remove(&directory)?;
        Ok(plugin::Setup {
            program: program.to_path_buf(),
            directory,
            socket: self.containerd.nri_socket(),
            config: config.to_owned(),
        })
    }

    /// A directory that containers write their reports to.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn reports(&self) -> Result<PathBuf> {
        let directory = self.directory.join("reports");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }

    /// Ends the runtime as a crash would.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn kill_runtime(&mut self) -> Result<()> {
        self.containerd.kill()
    }

    /// Starts the runtime again, and connects to it.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn restart_runtime(&mut self) -> Result<()> {
        self.containerd.restart()?;
        self.cri = self.containerd.connect()?;
        Ok(())
    }

    /// The runtime's log.
    #[must_use]
    pub fn runtime_log(&self) -> String {
        self.containerd.log()
    }
}

/// Pods are removed through the runtime while it lives; failures can only be told here.
impl Drop for Node {
    fn drop(&mut self) {
        let pods: Vec<Pod> = self.pods.iter().map(|running| running.pod.clone()).collect();
        if let Err(error) = self.remove_all() {
            crate::command::progress(format!("pods were not removed in order: {error:#}"));
            for pod in pods {
                let _ = cgroup::remove_pod(&pod);
            }
        }
        cgroup::tidy();
    }
}

/// Memory of this machine in bytes: the kubelet's OOM scores depend on it.
fn node_memory() -> i64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    kib.map_or(1 << 30, |kib: i64| kib * 1024)
}
