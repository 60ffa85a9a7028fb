//! In-place resizes of running containers.

use anyhow::Result;

use super::{Worker, reason, whole_cpus};
use crate::pod::{Container, Qos};

impl Worker<'_> {
    /// A container with whole CPUs gets more, or fewer. A refusal is taken back at once.
    pub(super) fn resize_a_container(&mut self) -> Result<()> {
        let Some((index, container)) = self.some_resizable() else { return Ok(()) };
        let (Some(before), Ok(after)) = (whole_cpus(&container), usize::try_from(self.size()))
        else {
            return Ok(());
        };
        if before == after || self.is_all_of_the_pod(index, after) {
            return Ok(());
        }
        let running = self.pods[index].clone();
        let (pod, name) = (&running.pod.name, &container.name);
        let witness = &self.storm.witness;
        // Before the call: it can be carried out at any moment from now on.
        witness.requests(pod, name, after);
        let milli = crate::scenario::milli(after);
        match self.surely(|kubelet| kubelet.resize(&running, name, milli)) {
            Ok(resized) => {
                self.pods[index].pod = resized;
                witness.record(pod, name, &format!("asks for {after} in place of {before}"));
            }
            Err(error) => {
                self.storm.counts().refused += 1;
                witness.requests(pod, name, before);
                let why = reason(&error);
                witness.record(pod, name, &format!("keeps {before} in place of {after} ({why})"));
            }
        }
        Ok(())
    }

    fn some_resizable(&mut self) -> Option<(usize, Container)> {
        let mut found = Vec::new();
        for (index, running) in self.pods.iter().enumerate() {
            let runs = |container: &&Container| {
                running.containers.iter().any(|one| one.name == container.name)
            };
            if running.pod.qos() == Qos::Guaranteed {
                let whole = running.pod.containers.iter().filter(|c| whole_cpus(c).is_some());
                found.extend(whole.filter(runs).map(|container| (index, container.clone())));
            }
        }
        self.rng.choice(found)
    }

    /// Two containers with the request of the whole pod mark a pod with pod-level resources, in
    /// which all containers share. The pod's init container may be one.
    fn is_all_of_the_pod(&self, index: usize, cpus: usize) -> bool {
        let running = &self.pods[index];
        let milli = crate::scenario::milli(cpus);
        match running.pod.budget {
            Some(budget) => milli >= budget,
            None if running.pod.containers.len() == 1 => false,
            None => self.budgets.get(&running.sandbox) == Some(&milli),
        }
    }
}
