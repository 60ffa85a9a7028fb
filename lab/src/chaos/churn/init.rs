//! Pods with an init container. It ends by itself before the pod's own container is made, which is
//! placed on its CPUs. What that one does not need of them is lent to others as long as the pod
//! lives.

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

use super::Worker;
use crate::chaos::storm::Storm;
use crate::chaos::story::short;
use crate::pod::{Container, Pod};
use crate::process;

/// Generous: the runtime notices the end of a process within a moment.
const EXIT: Duration = Duration::from_secs(30);
/// The name of all of them.
const INIT: &str = "init";

impl Worker<'_> {
    /// Starts such a pod. Where its init container is refused there is no pod: what a kubelet would
    /// do later is not tried.
    pub(super) fn start_pod_with_init(&mut self, name: &str) -> Result<()> {
        let [init, own] = [INIT, "c0"].map(|name| Container::guaranteed(name, self.size() * 1000));
        let budget = init.cpu_limit.max(own.cpu_limit);
        self.start_sandbox(Pod::new(name, [own]).within(budget))?;
        let index = self.pods.len() - 1;
        self.start_container(index, &init)?;
        if self.pods[index].containers.is_empty() {
            let pod = self.pods.remove(index);
            return self.remove(&pod);
        }
        self.let_init_end(index)?;
        Storm::count(&self.storm.initialised);
        self.start_missing(index)
    }

    /// The process ends by itself, and the runtime reports it.
    fn let_init_end(&mut self, index: usize) -> Result<()> {
        let init = self.pods[index].containers.remove(0);
        let pod = self.pods[index].pod.name.clone();
        self.storm.witness.hear(&pod, INIT, &format!("{} ends by itself", short(&init.id)));
        process::signal(init.pid, Signal::SIGKILL);
        let start = Instant::now();
        while !self.surely(|kubelet| kubelet.has_exited(&init.id))? {
            ensure!(
                start.elapsed() < EXIT,
                "the runtime does not say that an init container has exited"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        self.storm.witness.forget(&init.id);
        self.retire(index, INIT, init.id);
        Ok(())
    }
}
