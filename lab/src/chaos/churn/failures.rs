//! Containers that fail: some can never run, others run again after several failures in a row.

use anyhow::{Result, ensure};

use super::{Worker, budget};
use crate::pod::Container;

/// More CPUs than any machine of the lab has.
const GREEDY: i64 = 1_000_000;
/// A missing program: the container is created and cannot start.
const NOWHERE: [&str; 1] = ["/nowhere"];

impl Worker<'_> {
    /// A container that can be created but not started.
    pub(super) fn start_what_fails(&mut self) -> Result<()> {
        let container = Container::guaranteed("fails", self.size() * 1000).running(NOWHERE);
        let Some(id) = self.create_in_some_pod(&container) else { return Ok(()) };
        // It must fail; if it does not, removing it ends it.
        let _ = self.kubelet.launch_container(&id);
        self.surely(|kubelet| kubelet.remove_container(&id))
    }

    /// Larger than any node: refused, or created as a shared container without the plugin.
    pub(super) fn ask_for_too_much(&mut self) -> Result<()> {
        match self.create_in_some_pod(&Container::guaranteed("greedy", GREEDY)) {
            Some(id) => self.surely(|kubelet| kubelet.remove_container(&id)),
            None => Ok(()),
        }
    }

    /// Creates a container that does not belong to its pod. Only in pods whose own containers all
    /// run: CPUs of an ended one may go to others of its pod, which would not move back. Not with
    /// the request of the whole pod: two such containers mark a pod with pod-level resources, in
    /// which all containers share.
    fn create_in_some_pod(&mut self, container: &Container) -> Option<String> {
        let complete: Vec<usize> = (0..self.pods.len())
            .filter(|index| {
                let pod = &self.pods[*index];
                pod.containers.len() == pod.pod.containers.len()
                    && budget(&pod.pod) != container.cpu_limit
                    && self.budgets.get(&pod.sandbox) != Some(&container.cpu_limit)
            })
            .collect();
        let index = self.rng.choice(complete)?;
        self.create_container(index, container)
    }

    /// An exclusive container ends and fails several times before it runs again, as with a broken
    /// image. Meanwhile its instances are removed in any order, including the one that ran.
    pub(super) fn relapse(&mut self) -> Result<()> {
        let Some((index, which)) = self.some_holder() else { return self.restart_a_container() };
        let name = self.pods[index].containers[which].name.clone();
        let spec = self.pods[index].pod.containers.iter().find(|c| c.name == name).cloned();
        let Some(container) = spec else { return Ok(()) };
        self.storm.counts().relapsed += 1;
        self.end_container(index, which)?;
        let broken = container.running(NOWHERE);
        for _ in 0..self.rng.u8(2..=4) {
            if let Some(id) = self.create_container(index, &broken) {
                let launched = self.kubelet.launch_container(&id);
                self.retire(index, &name, id);
                ensure!(launched.is_err(), "a missing program was started");
            }
            self.tidy()?;
        }
        self.start_missing(index)
    }

    /// A running container with exclusive CPUs, as the indexes of its pod and itself.
    fn some_holder(&mut self) -> Option<(usize, usize)> {
        let mut holders = Vec::new();
        for (index, pod) in self.pods.iter().enumerate() {
            for (which, container) in pod.containers.iter().enumerate() {
                if self.storm.witness.has_held(&pod.pod.name, &container.name) {
                    holders.push((index, which));
                }
            }
        }
        self.rng.choice(holders)
    }
}
