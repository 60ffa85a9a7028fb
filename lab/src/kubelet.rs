//! A kubelet's calls to the runtime, and the cgroups it creates for them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cgroup;
use crate::cri::{Cri, wire};
use crate::pod::{Container, Pod};

mod resize;

/// A kubelet's connection to the runtime. It keeps no account of what it started.
#[derive(Debug)]
pub struct Kubelet {
    cri: Cri,
}

#[derive(Debug, Clone)]
pub struct RunningPod {
    pub pod: Pod,
    /// The runtime's id of its sandbox.
    pub sandbox: String,
    pub containers: Vec<RunningContainer>,
}

#[derive(Debug, Clone)]
pub struct RunningContainer {
    pub name: String,
    /// Id in the runtime.
    pub id: String,
    pub pid: u32,
}

impl Kubelet {
    pub fn connect(socket: &Path) -> Result<Self> {
        Ok(Self { cri: Cri::connect(socket)? })
    }

    /// Creates the pod's cgroup and starts its sandbox; returns the id of the sandbox.
    pub fn run_sandbox(&self, pod: &Pod) -> Result<String> {
        self.run_sandbox_as(pod, pod.sandbox())
    }

    /// As [`run_sandbox`](Self::run_sandbox), with this message in place of the pod's usual one.
    pub fn run_sandbox_as(&self, pod: &Pod, config: wire::PodSandboxConfig) -> Result<String> {
        cgroup::add_pod(pod)?;
        let request = wire::RunPodSandboxRequest { config: Some(config) };
        let started = self.cri.run_pod_sandbox(request);
        if started.is_err() {
            // Processes may be left in it.
            let _ = cgroup::remove_pod(pod);
        }
        Ok(started?.pod_sandbox_id)
    }

    /// Makes a container in a pod; it does not run yet. Its id is returned.
    pub fn create_container(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &str,
        attempt: u32,
    ) -> Result<String> {
        let config = pod.container(container, attempt);
        self.create_container_as(sandbox, config, pod.sandbox())
    }

    /// As [`create_container`](Self::create_container), with these messages.
    pub fn create_container_as(
        &self,
        sandbox: &str,
        config: wire::ContainerConfig,
        sandbox_config: wire::PodSandboxConfig,
    ) -> Result<String> {
        let request = wire::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(self.cri.create_container(request)?.container_id)
    }

    pub fn sandboxes_of(&self, pod: &Pod) -> Result<Vec<String>> {
        let all = self.cri.list_pod_sandbox(wire::ListPodSandboxRequest {})?.items;
        let is_its =
            |one: &wire::PodSandbox| one.metadata.as_ref().is_some_and(|data| data.uid == pod.uid);
        Ok(all.into_iter().filter(is_its).map(|one| one.id).collect())
    }

    pub fn containers_in(&self, sandbox: &str) -> Result<Vec<String>> {
        let filter = Some(wire::ContainerFilter { pod_sandbox_id: sandbox.to_owned() });
        let all = self.cri.list_containers(wire::ListContainersRequest { filter })?.containers;
        Ok(all.into_iter().map(|one| one.id).collect())
    }

    /// None while it has not ended.
    pub fn exit_code(&self, id: &str) -> Result<Option<i32>> {
        let request = wire::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let status = self.cri.container_status(request)?.status.unwrap_or_default();
        let exited = status.state() == wire::ContainerState::ContainerExited;
        Ok(exited.then_some(status.exit_code))
    }

    /// Whether the runtime supports recursive read-only mounts.
    pub fn has_recursive_read_only(&self) -> Result<bool> {
        let handlers = self.cri.status(wire::StatusRequest {})?.runtime_handlers;
        let default = handlers.iter().find(|handler| handler.name.is_empty());
        let features = default.and_then(|handler| handler.features.as_ref());
        Ok(features.is_some_and(|features| features.recursive_read_only_mounts))
    }

    /// Runs a container that was made.
    pub fn start_container(&self, id: &str, name: &str) -> Result<RunningContainer> {
        self.launch_container(id)?;
        self.started(id, name)
    }

    /// As [`start_container`](Self::start_container), but does not look up the process.
    pub fn launch_container(&self, id: &str) -> Result<()> {
        let request = wire::StartContainerRequest { container_id: id.to_owned() };
        self.cri.start_container(request).map(|_| ())
    }

    pub fn started(&self, id: &str, name: &str) -> Result<RunningContainer> {
        let pid = self.cri.pid(id)?;
        Ok(RunningContainer { name: name.to_owned(), id: id.to_owned(), pid })
    }

    pub fn stop_container(&self, id: &str) -> Result<()> {
        self.stop_container_within(id, Duration::ZERO)
    }

    /// SIGKILL follows after `grace`.
    pub fn stop_container_within(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = wire::StopContainerRequest { container_id: id.to_owned(), timeout };
        self.cri.stop_container(request).map(|_| ())
    }

    pub fn remove_container(&self, id: &str) -> Result<()> {
        let request = wire::RemoveContainerRequest { container_id: id.to_owned() };
        self.cri.remove_container(request).map(|_| ())
    }

    /// The runtime lists the sandbox until it is removed.
    pub fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = wire::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.cri.stop_pod_sandbox(request).map(|_| ())
    }

    /// Stops and removes a pod: containers first, at the end the pod's cgroup.
    pub fn remove_pod(&self, running: &RunningPod) -> Result<()> {
        for container in &running.containers {
            self.stop_container(&container.id)?;
        }
        self.stop_sandbox(&running.sandbox)?;
        self.remove_sandbox(&running.sandbox)?;
        cgroup::remove_pod(&running.pod)
    }

    /// Starts pods at the same time: each container is created while earlier ones are being
    /// started. Returns all pods that exist now, also on failure.
    pub fn run_together(&self, pods: &[Pod], attempt: u32) -> (Vec<RunningPod>, Result<()>) {
        let mut running = Vec::new();
        for pod in pods {
            match self.run_sandbox(pod) {
                Ok(sandbox) => {
                    running.push(RunningPod { pod: pod.clone(), sandbox, containers: Vec::new() });
                }
                Err(error) => return (running, Err(error)),
            }
        }
        let started: Vec<_> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (at, RunningPod { pod, sandbox, .. }) in running.iter().enumerate() {
                for container in &pod.containers {
                    let id = self.create_container(pod, container, sandbox, attempt);
                    let start = move || self.start_container(&id?, &container.name);
                    threads.push((at, scope.spawn(start)));
                }
            }
            threads.into_iter().map(|(at, thread)| (at, joined(thread))).collect()
        });
        let mut done = Ok(());
        for (at, container) in started {
            match container {
                Ok(container) => running[at].containers.push(container),
                Err(error) => done = done.and(Err(error)),
            }
        }
        (running, done)
    }

    pub fn remove_together(&self, pods: &[RunningPod]) -> Result<()> {
        thread::scope(|scope| {
            let remove = |running| scope.spawn(move || self.remove_pod(running));
            let threads: Vec<_> = pods.iter().map(remove).collect();
            let results: Vec<_> = threads.into_iter().map(joined).collect();
            results.into_iter().collect()
        })
    }

    /// Removes the containers first: containerd takes a lock twice to remove them itself, and
    /// deadlocks if a plugin registers in between.
    pub fn remove_sandbox(&self, stopped: &str) -> Result<()> {
        for container in self.containers_in(stopped)? {
            self.remove_container(&container)?;
        }
        let pod_sandbox_id = stopped.to_owned();
        self.cri.remove_pod_sandbox(wire::RemovePodSandboxRequest { pod_sandbox_id }).map(|_| ())
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread of the lab panicked"))
}

/// Writes the files of a ConfigMap (name and content) like a kubelet: fills a new directory, then
/// renames the link `..data` over the old one, so that a reader never gets a part. The files' own
/// names are links through `..data`.
pub(crate) fn write_config_map<'a>(
    mount: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    let number = fs::read_dir(mount).map_or(0, |entries| entries.count());
    let version = format!("..{number}");
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(mount.join(&version))?;
        let mut names = Vec::new();
        for (name, content) in files {
            fs::write(mount.join(&version).join(name), content)?;
            names.push(name);
        }
        symlink(&version, mount.join("..data_tmp"))?;
        fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
        for name in names {
            match symlink(Path::new("..data").join(name), mount.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write a ConfigMap's files to {}", mount.display()))
}
