//! A kubelet with a few pods: started, refused, restarted, failed, removed.

use anyhow::Result;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use super::history::short;
use super::storm::Storm;
use super::summary::NAMESPACE;
use crate::kubelet::{Kubelet, RunningContainer, RunningPod};
use crate::pod::{Container, Pod};

mod calls;
mod failures;
mod init;
mod resizes;

/// Pods per kubelet.
const PODS: usize = 3;
/// Ended instances that one kubelet keeps.
const ENDED: usize = 6;
/// Pause after a failed call.
const PAUSE: Duration = Duration::from_millis(500);
/// Percentage of resizes among all actions, where containers are resized.
const RESIZES: u8 = 25;

struct Worker<'a> {
    storm: &'a Storm<'a>,
    kubelet: Kubelet,
    /// Value of [`Storm::turns`] for its connection.
    life: u64,
    rng: Rng,
    number: u64,
    started: u64,
    attempts: u32,
    pods: Vec<RunningPod>,
    /// Milli-CPUs of each pod when its sandbox was created, by sandbox: some runtimes tell the
    /// plugin of no others.
    budgets: BTreeMap<String, i64>,
    /// Instances of these pods' containers that have ended, or that could not be started.
    ended: Vec<Ended>,
    /// Pods as they were, with their dead sandboxes.
    dead: Vec<RunningPod>,
}

/// An ended instance that the kubelet has not removed yet.
struct Ended {
    sandbox: String,
    /// Pod and container.
    names: (String, String),
    id: String,
}

/// Runs until the storm is over, then removes its pods.
pub(super) fn run(storm: &Storm<'_>, number: u64) -> Result<()> {
    let rng = Rng::with_seed(storm.settings.seed.wrapping_mul(1000).wrapping_add(number));
    let mut worker = Worker {
        storm,
        kubelet: Kubelet::connect(&storm.socket)?,
        life: 0,
        rng,
        number,
        started: 0,
        attempts: 0,
        pods: Vec::new(),
        budgets: BTreeMap::new(),
        ended: Vec::new(),
        dead: Vec::new(),
    };
    while !storm.is_over() {
        let acted = {
            let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
            worker.act()
        };
        if let Err(error) = acted {
            storm.failed_at(&format!("{error:#}"));
            // A kubelet waits longer after each failure.
            std::thread::sleep(PAUSE);
        }
    }
    while let Some(pod) = worker.pods.pop() {
        worker.remove(&pod)?;
    }
    // Dead sandboxes of pods whose next one did not start.
    worker.bury(|_| true)
}

impl Worker<'_> {
    /// Refusals and failures are part of the storm: they are counted.
    fn act(&mut self) -> Result<()> {
        if self.storm.settings.changes.resizes && self.rng.u8(0..100) < RESIZES {
            self.resize_a_container()?;
            return self.tidy();
        }
        let dice = self.rng.u8(0..100);
        // Restarts leave no gaps to move containers into; pods that end do.
        let turns_over = self.storm.settings.changes.rebalance && dice >= 60;
        let result = match if turns_over { 0 } else { dice } {
            _ if self.pods.is_empty() => self.start_pod(),
            0..15 if self.pods.len() < PODS => self.start_pod(),
            0..15 => self.remove_a_pod(),
            15..20 => self.start_what_fails(),
            20..25 => self.ask_for_too_much(),
            25..29 => self.replace_a_sandbox(),
            29..32 => self.bury(|_| true),
            32..50 => self.relapse(),
            _ => self.restart_a_container(),
        };
        result.and_then(|()| self.tidy())
    }

    fn start_pod(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("w{}-{}", self.number, self.started);
        if self.rng.u8(0..100) < 25 {
            return self.start_pod_with_init(&name);
        }
        let class = self.rng.u8(0..100);
        let guaranteed = class < 65;
        let count = self.rng.usize(1..=3);
        let containers: Vec<Container> = (0..count)
            .map(|index| {
                let name = format!("c{index}");
                match self.rng.u8(0..100) {
                    0..75 if guaranteed => Container::guaranteed(&name, self.size() * 1000),
                    _ if guaranteed => Container::guaranteed(&name, 500),
                    // Few, so that the class is often empty.
                    _ if class < 75 => Container::best_effort(&name),
                    _ => Container::burstable(&name, 100),
                }
            })
            .collect();
        self.start_sandbox(Pod::new(&name, containers))?;
        self.start_missing(self.pods.len() - 1)
    }

    fn start_sandbox(&mut self, pod: Pod) -> Result<()> {
        let (namespace, driver) = (NAMESPACE.to_owned(), self.storm.driver);
        let pod = Pod { namespace, driver, ..pod };
        let sandbox = self.run_sandbox(&pod, pod.sandbox())?;
        self.pods.push(RunningPod { pod, sandbox, containers: Vec::new() });
        Ok(())
    }

    /// Small sizes are more frequent; a machine with two CPUs has only one size.
    fn size(&mut self) -> i64 {
        let most = self.storm.most();
        let size = self.rng.i64(1..=most);
        // Large ones are those that do not fit into an uncore cache.
        if self.storm.settings.changes.rebalance { size } else { size.min(self.rng.i64(1..=most)) }
    }

    /// Starts all containers of a pod that do not run, like a kubelet's retry.
    fn start_missing(&mut self, index: usize) -> Result<()> {
        let RunningPod { pod, containers, .. } = self.pods[index].clone();
        let runs = |wanted: &&Container| containers.iter().all(|c| c.name != wanted.name);
        for container in pod.containers.iter().filter(runs) {
            self.start_container(index, container)?;
        }
        Ok(())
    }

    fn start_container(&mut self, index: usize, container: &Container) -> Result<()> {
        let Some(id) = self.create_container(index, container) else { return Ok(()) };
        match self.launch(&id, &container.name) {
            Ok(running) => {
                let pod = &mut self.pods[index];
                self.storm.witness.watch(&id, &pod.pod.name, &container.name, running.pid);
                pod.containers.push(running);
                Ok(())
            }
            Err(error) => {
                self.retire(index, &container.name, id);
                Err(error)
            }
        }
    }

    /// Creates a container without starting it; None if it is refused.
    fn create_container(&mut self, index: usize, container: &Container) -> Option<String> {
        self.attempts += 1;
        let RunningPod { pod, sandbox, .. } = self.pods[index].clone();
        if let Some(cpus) = whole_cpus(container) {
            self.storm.witness.requests(&pod.name, &container.name, cpus);
        }
        let created = self.create(&pod, container, &sandbox);
        let what = match &created {
            Ok(id) => {
                self.storm.counts().creations += 1;
                format!("{} created", short(id))
            }
            Err(error) => {
                self.storm.counts().refused += 1;
                format!("not created ({})", reason(error))
            }
        };
        self.storm.witness.record(&pod.name, &container.name, &what);
        created.ok()
    }

    /// The new instance has the same name and a new id. The old one is removed later, like by a
    /// kubelet.
    fn restart_a_container(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        if self.pods[index].containers.is_empty() {
            return self.start_missing(index);
        }
        let which = self.rng.usize(0..self.pods[index].containers.len());
        self.end_container(index, which)?;
        self.start_missing(index)
    }

    /// Stops a container that another instance will follow.
    fn end_container(&mut self, index: usize, which: usize) -> Result<()> {
        let old = self.pods[index].containers.remove(which);
        self.stop(&old)?;
        self.retire(index, &old.name, old.id);
        Ok(())
    }

    fn retire(&mut self, index: usize, container: &str, id: String) {
        let RunningPod { pod, sandbox, .. } = &self.pods[index];
        let names = (pod.name.clone(), container.to_owned());
        self.ended.push(Ended { sandbox: sandbox.clone(), names, id });
    }

    /// Removes some ended instances in any order: a kubelet keeps a few for a while.
    fn tidy(&mut self) -> Result<()> {
        while !self.ended.is_empty() && (self.ended.len() > ENDED || self.rng.bool()) {
            let which = self.rng.usize(0..self.ended.len());
            self.sweep(which)?;
        }
        Ok(())
    }

    fn sweep(&mut self, which: usize) -> Result<()> {
        let id = self.ended[which].id.clone();
        self.surely(|kubelet| kubelet.remove_container(&id))?;
        let Ended { names: (pod, container), id, .. } = self.ended.swap_remove(which);
        self.storm.witness.record(&pod, &container, &format!("{} removed", short(&id)));
        Ok(())
    }

    fn remove_a_pod(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        let pod = self.pods.remove(index);
        self.remove(&pod)
    }

    /// As after a reboot: the sandbox is dead, the pod gets another, and the runtime lists both for
    /// a while.
    fn replace_a_sandbox(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        let dead = self.pods.remove(index);
        for container in &dead.containers {
            self.stop(container)?;
        }
        self.storm.witness.forget_pod(&dead.pod.name);
        self.surely(|kubelet| kubelet.stop_sandbox(&dead.sandbox))?;
        let pod = dead.pod.clone();
        self.dead.push(dead);
        self.attempts += 1;
        let mut config = pod.sandbox();
        if let Some(metadata) = &mut config.metadata {
            metadata.attempt = self.attempts;
        }
        let sandbox = self.run_sandbox(&pod, config)?;
        self.storm.counts().reborn += 1;
        self.pods.push(RunningPod { pod, sandbox, containers: Vec::new() });
        self.start_missing(self.pods.len() - 1)
    }

    /// Removes dead sandboxes of these pods, which may have a living one.
    fn bury(&mut self, of: impl Fn(&str) -> bool) -> Result<()> {
        let (buried, dead): (Vec<_>, Vec<_>) =
            self.dead.drain(..).partition(|dead| of(&dead.pod.name));
        self.dead = dead;
        buried.iter().try_for_each(|dead| {
            self.ended.retain(|ended| ended.sandbox != dead.sandbox);
            self.surely(|kubelet| kubelet.remove_sandbox(&dead.sandbox))
        })
    }

    fn remove(&mut self, pod: &RunningPod) -> Result<()> {
        self.bury(|name| name == pod.pod.name)?;
        for container in &pod.containers {
            self.stop(container)?;
        }
        self.ended.retain(|ended| ended.sandbox != pod.sandbox);
        self.storm.witness.forget_pod(&pod.pod.name);
        self.surely(|kubelet| kubelet.remove_pod(pod))
    }

    /// Observed until it has ended: until then its CPUs are exclusive.
    fn stop(&mut self, container: &RunningContainer) -> Result<()> {
        let result = self.surely(|kubelet| kubelet.stop_container(&container.id));
        self.storm.witness.forget(&container.id);
        result
    }
}

/// What a container asks for, unless it asks for a fraction of a CPU or for none.
fn whole_cpus(container: &Container) -> Option<usize> {
    let cpus = usize::try_from(container.cpu_limit / 1000).ok()?;
    if container.cpu_limit % 1000 == 0 && cpus > 0 { Some(cpus) } else { None }
}

/// All that a pod's containers may use, in milli-CPUs.
fn budget(pod: &Pod) -> i64 {
    let sum = || pod.containers.iter().map(|container| container.cpu_limit).sum();
    pod.budget.unwrap_or_else(sum)
}

/// The original error message, without the texts of the gRPC layers.
fn reason(error: &anyhow::Error) -> String {
    format!("{error:#}").rsplit("desc = ").next().unwrap_or_default().to_owned()
}
