//! A kubelet with a few pods: started, refused, restarted, resized, removed.
//!
//! The runtime may be killed during each call. A lost call may have been carried out: a kubelet lists
//! what exists and continues from that; here the result of a lost call is removed.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use nix::sys::signal::Signal;

use super::Storm;
use crate::command::poll;
use crate::kubelet::{Kubelet, RunningContainer, RunningPod};
use crate::pod::{Container, Pod};
use crate::process;

/// Pods per kubelet.
const PODS: usize = 3;
/// Pause after a failed call.
const PAUSE: Duration = Duration::from_millis(500);
/// Percentage of resizes among all actions, where containers are resized.
const RESIZES: u8 = 25;
/// For the runtime to report the end of a process, which takes a moment.
const EXIT: Duration = Duration::from_secs(30);

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
    };
    let mut done = Ok(());
    while !storm.is_over() {
        let acted = {
            let _moving = storm.rest.read().unwrap_or_else(PoisonError::into_inner);
            worker.act()
        };
        if let Err(error) = acted {
            done = storm.failed_with(error);
            // A kubelet waits longer after each failure.
            std::thread::sleep(PAUSE);
        }
    }
    while let Some(pod) = worker.pods.pop() {
        done = done.and(worker.remove(&pod));
    }
    done
}

impl Worker<'_> {
    /// Refusals and failures are part of the storm: they are counted.
    fn act(&mut self) -> Result<()> {
        let changes = self.storm.settings.changes;
        if changes.resizes && self.rng.u8(0..100) < RESIZES {
            return self.resize_a_pod();
        }
        // Restarts leave no gaps to move containers into; pods that end do.
        let turns_over = self.rng.u8(0..100) < if changes.rebalance { 50 } else { 25 };
        if self.pods.is_empty() || (turns_over && self.pods.len() < PODS) {
            self.start_pod()
        } else if turns_over {
            let index = self.rng.usize(0..self.pods.len());
            let pod = self.pods.remove(index);
            self.remove(&pod)
        } else {
            self.restart_a_container()
        }
    }

    fn start_pod(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("w{}-{}", self.number, self.started);
        let class = self.rng.u8(0..100);
        if class < 20 {
            return self.start_pod_with_init(&name);
        }
        let guaranteed = class < 70;
        let count = self.rng.usize(1..=3);
        let containers: Vec<Container> = (0..count)
            .map(|index| {
                let name = format!("c{index}");
                match self.rng.u8(0..100) {
                    0..75 if guaranteed => Container::guaranteed(&name, self.size() * 1000),
                    _ if guaranteed => Container::guaranteed(&name, 500),
                    // Few, so that the class is often empty.
                    _ if class < 80 => Container::best_effort(&name),
                    _ => Container::burstable(&name, 100),
                }
            })
            .collect();
        self.start_sandbox(Pod::new(&name, containers))?;
        self.start_missing(self.pods.len() - 1)
    }

    /// The init container ends by itself before the pod's own container is created, which gets its
    /// CPUs; unneeded ones are lent to others until the pod ends. If the init container is refused,
    /// the pod is removed.
    fn start_pod_with_init(&mut self, name: &str) -> Result<()> {
        let [init, own] =
            ["init", "c0"].map(|name| Container::guaranteed(name, self.size() * 1000));
        let budget = init.cpu_limit.max(own.cpu_limit);
        self.start_sandbox(Pod::new(name, [own]).within(budget))?;
        let index = self.pods.len() - 1;
        self.start_container(index, &init)?;
        let Some(init) = self.pods[index].containers.pop() else {
            let pod = self.pods.remove(index);
            return self.remove(&pod);
        };
        process::signal(init.pid, Signal::SIGKILL);
        poll(EXIT, || self.surely(|kubelet| kubelet.exit_code(&init.id)))?
            .context("the runtime does not report the exit of an init container")?;
        self.storm.witness.forget(&init.id);
        self.start_missing(index)?;
        self.surely(|kubelet| kubelet.remove_container(&init.id))
    }

    fn start_sandbox(&mut self, pod: Pod) -> Result<()> {
        let pod = Pod { driver: self.storm.driver, ..pod };
        let undo = |kubelet: &Kubelet| {
            kubelet.sandboxes_of(&pod)?.iter().try_for_each(|one| {
                kubelet.stop_sandbox(one)?;
                kubelet.remove_sandbox(one)
            })
        };
        let sandbox = self.once(|kubelet| kubelet.run_sandbox(&pod), undo)?;
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
        let missing = |one: &&Container| containers.iter().all(|c| c.name != one.name);
        for container in pod.containers.iter().filter(missing) {
            self.start_container(index, container)?;
        }
        Ok(())
    }

    /// A container that is refused is not started.
    fn start_container(&mut self, index: usize, container: &Container) -> Result<()> {
        self.attempts += 1;
        let RunningPod { pod, sandbox, .. } = self.pods[index].clone();
        let attempt = self.attempts;
        let before = self.surely(|kubelet| kubelet.containers_in(&sandbox))?;
        let undo = |kubelet: &Kubelet| {
            let all = kubelet.containers_in(&sandbox)?;
            let mut new = all.iter().filter(|one| !before.contains(one));
            new.try_for_each(|one| kubelet.remove_container(one))
        };
        let created =
            self.once(|kubelet| kubelet.create_container(&pod, container, &sandbox, attempt), undo);
        let Ok(id) = created else {
            self.storm.witness.observed().summary.refused += 1;
            return Ok(());
        };
        self.storm.witness.observed().summary.creations += 1;
        let started = self.once(
            |kubelet| kubelet.start_container(&id, &container.name),
            |kubelet| kubelet.stop_container(&id),
        );
        match started {
            Ok(running) => {
                self.storm.witness.watch(&id, &pod.name, &container.name, running.pid);
                self.pods[index].containers.push(running);
                Ok(())
            }
            Err(error) => {
                self.surely(|kubelet| kubelet.remove_container(&id))?;
                Err(error)
            }
        }
    }

    /// The new instance has the same name and a new id. The old one is removed after it has started,
    /// like by a kubelet.
    fn restart_a_container(&mut self) -> Result<()> {
        let index = self.rng.usize(0..self.pods.len());
        if self.pods[index].containers.is_empty() {
            return self.start_missing(index);
        }
        let which = self.rng.usize(0..self.pods[index].containers.len());
        let old = self.pods[index].containers.remove(which);
        self.stop(&old)?;
        let started = self.start_missing(index);
        self.surely(|kubelet| kubelet.remove_container(&old.id))?;
        started
    }

    /// The only container of a pod gets more CPUs, or fewer. A refusal is taken back at once.
    fn resize_a_pod(&mut self) -> Result<()> {
        let is_resizable = |index: &usize| {
            let RunningPod { pod, containers, .. } = &self.pods[*index];
            // With pod-level resources, the request of the whole pod would make it share.
            let is_alone = pod.containers.len() == 1 && pod.budget.is_none();
            is_alone && !containers.is_empty() && pod.containers[0].cpu_limit >= 1000
        };
        let all: Vec<usize> = (0..self.pods.len()).filter(is_resizable).collect();
        let Some(index) = self.rng.choice(all) else { return Ok(()) };
        let running = self.pods[index].clone();
        let name = &running.pod.containers[0].name;
        let milli = self.size() * 1000;
        match self.surely(|kubelet| kubelet.resize(&running, name, milli)) {
            Ok(resized) => self.pods[index].pod = resized,
            Err(_) => self.storm.witness.observed().summary.refused += 1,
        }
        Ok(())
    }

    fn remove(&mut self, pod: &RunningPod) -> Result<()> {
        for container in &pod.containers {
            self.stop(container)?;
        }
        self.storm.witness.forget_pod(&pod.pod.name);
        self.surely(|kubelet| kubelet.remove_pod(pod))
    }

    /// Observed until it has ended: until then its CPUs are exclusive.
    fn stop(&mut self, container: &RunningContainer) -> Result<()> {
        let result = self.surely(|kubelet| kubelet.stop_container(&container.id));
        self.storm.witness.forget(&container.id);
        result
    }

    /// An idempotent call: repeated if the runtime was killed meanwhile.
    fn surely<T>(&mut self, call: impl Fn(&Kubelet) -> Result<T>) -> Result<T> {
        loop {
            self.reconnect()?;
            match call(&self.kubelet) {
                Err(_) if self.was_killed() => {}
                result => return result,
            }
        }
    }

    /// A call that is not idempotent. If the runtime was killed meanwhile, `undo` removes its
    /// result.
    fn once<T>(
        &mut self,
        call: impl FnOnce(&Kubelet) -> Result<T>,
        undo: impl Fn(&Kubelet) -> Result<()>,
    ) -> Result<T> {
        self.reconnect()?;
        let result = call(&self.kubelet);
        if result.is_err() && self.was_killed() {
            self.surely(undo)?;
        }
        result
    }

    fn was_killed(&self) -> bool {
        self.storm.turns.load(Ordering::SeqCst) != self.life
    }

    /// Waits until a killed runtime is back.
    fn reconnect(&mut self) -> Result<()> {
        if !self.was_killed() {
            return Ok(());
        }
        let life = loop {
            let turns = self.storm.turns.load(Ordering::SeqCst);
            if turns.is_multiple_of(2) {
                break turns;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.kubelet = Kubelet::connect(&self.storm.socket)?;
        self.life = life;
        Ok(())
    }
}
