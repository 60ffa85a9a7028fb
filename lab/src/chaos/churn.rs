//! A kubelet with a few pods that never rest: started, refused, restarted, failed, removed.

use anyhow::Result;
use fastrand::Rng;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Storm;
use crate::kubelet::{Kubelet, RunningContainer, RunningPod};
use crate::pod::{Container, Pod};

/// Pods of one kubelet.
const PODS: usize = 3;
/// More CPUs than any machine of the lab has.
const GREEDY: i64 = 1_000_000;

struct Worker<'a> {
    storm: &'a Storm<'a>,
    kubelet: Kubelet,
    rng: Rng,
    number: u64,
    started: u64,
    attempts: u32,
    pods: Vec<RunningPod>,
    /// Pods as they were with sandboxes that are dead.
    dead: Vec<RunningPod>,
}

/// Goes on until the storm is over; then removes what is left.
pub(super) fn run(storm: &Storm<'_>, kubelet: Kubelet, number: u64) -> Result<()> {
    let rng = Rng::with_seed(storm.settings.seed.wrapping_mul(1000).wrapping_add(number));
    let mut worker = Worker {
        storm,
        kubelet,
        rng,
        number,
        started: 0,
        attempts: 0,
        pods: Vec::new(),
        dead: Vec::new(),
    };
    while !storm.over.load(Ordering::Relaxed) {
        let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
        worker.act();
    }
    while let Some(pod) = worker.pods.pop() {
        worker.remove(&pod)?;
    }
    // Of those whose next sandbox did not start.
    worker.bury(|_| true)
}

impl Worker<'_> {
    /// What the runtime refuses or fails at is counted: it is part of the storm.
    fn act(&mut self) {
        let dice = self.rng.u8(0..100);
        let result = match dice {
            _ if self.pods.is_empty() => self.start_pod(),
            0..15 if self.pods.len() < PODS => self.start_pod(),
            0..15 => self.remove_a_pod(),
            15..22 => self.start_what_fails(),
            22..28 => self.ask_for_too_much(),
            28..32 => self.replace_a_sandbox(),
            32..35 => self.bury(|_| true),
            _ => self.restart_a_container(),
        };
        if let Err(error) = result {
            Storm::count(&self.storm.failed);
            self.storm.witness.note(format!("failed: {error:#}"));
        }
    }

    fn start_pod(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("w{}-{}", self.number, self.started);
        let guaranteed = self.rng.u8(0..100) < 65;
        let count = self.rng.usize(1..=3);
        let containers: Vec<Container> = (0..count)
            .map(|index| {
                let name = format!("c{index}");
                match self.rng.u8(0..100) {
                    0..75 if guaranteed => Container::guaranteed(&name, self.size() * 1000),
                    _ if guaranteed => Container::guaranteed(&name, 500),
                    _ => Container::burstable(&name, 100),
                }
            })
            .collect();
        let pod = Pod::new(&name, containers);
        let sandbox = self.kubelet.run_sandbox(&pod)?;
        self.pods.push(RunningPod { pod, sandbox, containers: Vec::new() });
        self.start_missing(self.pods.len() - 1)
    }

    /// Small ones are more frequent; on a machine of two CPUs there is only one to be had.
    fn size(&mut self) -> i64 {
        let most = self.storm.most();
        self.rng.i64(1..=most).min(self.rng.i64(1..=most))
    }

    /// Starts what of a pod does not run, as a kubelet tries again what was refused.
    fn start_missing(&mut self, index: usize) -> Result<()> {
        let RunningPod { pod, containers, .. } = self.pods[index].clone();
        let runs = |wanted: &&Container| containers.iter().all(|c| c.name != wanted.name);
        for container in pod.containers.iter().filter(runs) {
            self.start_container(index, container)?;
        }
        Ok(())
    }

    fn start_container(&mut self, index: usize, container: &Container) -> Result<()> {
        self.attempts += 1;
        let RunningPod { pod, sandbox, .. } = &self.pods[index];
        let Ok(id) = self.kubelet.create_container(pod, container, sandbox, self.attempts) else {
            Storm::count(&self.storm.refused);
            return Ok(());
        };
        Storm::count(&self.storm.creations);
        match self.kubelet.start_container(&id, &container.name) {
            Ok(running) => {
                self.storm.witness.watch(&id, &pod.name, &container.name, running.pid);
                self.pods[index].containers.push(running);
                Ok(())
            }
            Err(error) => {
                self.kubelet.remove_container(&id)?;
                Err(error)
            }
        }
    }

    /// It ends and starts anew, with a new id and the same name. The old one is removed later, as a kubelet does.
    fn restart_a_container(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        if self.pods[index].containers.is_empty() {
            return self.start_missing(index);
        }
        let which = self.rng.usize(0..self.pods[index].containers.len());
        let old = self.pods[index].containers.remove(which);
        self.stop(&old)?;
        let spec = self.pods[index].pod.containers.iter().find(|c| c.name == old.name).cloned();
        let result = match spec {
            Some(container) => self.start_container(index, &container),
            None => Ok(()),
        };
        self.kubelet.remove_container(&old.id)?;
        result.and_then(|()| self.start_missing(index))
    }

    /// A container that is created and cannot run: its program does not exist.
    fn start_what_fails(&mut self) -> Result<()> {
        let size = self.size();
        let container = Container::guaranteed("fails", size * 1000).running(["/nowhere"]);
        let Some(id) = self.create_in_some_pod(&container) else { return Ok(()) };
        // It must fail; if it does not, removing it ends it.
        let _ = self.kubelet.start_container(&id, "fails");
        self.kubelet.remove_container(&id)
    }

    /// A container that no node could hold: refused, or created without CPUs of its own while the plugin is away.
    fn ask_for_too_much(&mut self) -> Result<()> {
        match self.create_in_some_pod(&Container::guaranteed("greedy", GREEDY)) {
            Some(id) => self.kubelet.remove_container(&id),
            None => Ok(()),
        }
    }

    /// Creates a container, and does not start it. `None` if it is refused.
    fn create_in_some_pod(&mut self, container: &Container) -> Option<String> {
        let index = self.rng.usize(0..self.pods.len());
        let RunningPod { pod, sandbox, .. } = &self.pods[index];
        self.attempts += 1;
        match self.kubelet.create_container(pod, container, sandbox, self.attempts) {
            Ok(id) => {
                Storm::count(&self.storm.creations);
                Some(id)
            }
            Err(_) => {
                Storm::count(&self.storm.refused);
                None
            }
        }
    }

    fn remove_a_pod(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        let pod = self.pods.remove(index);
        self.remove(&pod)
    }

    /// As after a reboot: a pod's sandbox is dead, the pod gets another, and for a while the runtime lists both.
    fn replace_a_sandbox(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        let dead = self.pods.remove(index);
        for container in &dead.containers {
            self.stop(container)?;
        }
        self.storm.witness.forget_pod(&dead.pod.name);
        self.kubelet.stop_sandbox(&dead.sandbox)?;
        let pod = dead.pod.clone();
        self.dead.push(dead);
        self.attempts += 1;
        let mut config = pod.sandbox();
        if let Some(metadata) = &mut config.metadata {
            metadata.attempt = self.attempts;
        }
        let sandbox = self.kubelet.run_sandbox_as(&pod, config)?;
        Storm::count(&self.storm.reborn);
        self.pods.push(RunningPod { pod, sandbox, containers: Vec::new() });
        self.start_missing(self.pods.len() - 1)
    }

    /// Removes dead sandboxes of these pods, which may live on.
    fn bury(&mut self, of: impl Fn(&str) -> bool) -> Result<()> {
        let (buried, dead): (Vec<_>, Vec<_>) =
            self.dead.drain(..).partition(|dead| of(&dead.pod.name));
        self.dead = dead;
        buried.iter().try_for_each(|dead| self.kubelet.remove_sandbox(dead))
    }

    fn remove(&mut self, pod: &RunningPod) -> Result<()> {
        self.bury(|name| name == pod.pod.name)?;
        for container in &pod.containers {
            self.stop(container)?;
        }
        self.storm.witness.forget_pod(&pod.pod.name);
        self.kubelet.remove_pod(pod)
    }

    /// It is watched until it has ended: until then its CPUs are its own.
    fn stop(&self, container: &RunningContainer) -> Result<()> {
        let result = self.kubelet.stop_container(&container.id);
        self.storm.witness.forget(&container.id);
        result
    }
}
