//! Pods with an init container. It ends by itself before the pod's own container is created, which
//! gets its CPUs. Unneeded CPUs are lent to others until the pod ends.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use std::time::Duration;

use super::Worker;
use crate::chaos::history::short;
use crate::command::poll;
use crate::pod::{Container, Pod};
use crate::process;

/// Generous: the runtime notices the end of a process within a moment.
const EXIT: Duration = Duration::from_secs(30);
/// The name of all of them.
const INIT: &str = "init";

impl Worker<'_> {
    /// If the init container is refused, the pod is removed: retries are not simulated.
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
        self.storm.counts().initialised += 1;
        self.start_missing(index)
    }

    /// The process ends by itself, and the runtime reports it.
    fn let_init_end(&mut self, index: usize) -> Result<()> {
        let init = self.pods[index].containers.remove(0);
        let pod = self.pods[index].pod.name.clone();
        self.storm.witness.record(&pod, INIT, &format!("{} ended by itself", short(&init.id)));
        process::signal(init.pid, Signal::SIGKILL);
        poll(EXIT, || self.surely(|kubelet| kubelet.exit_code(&init.id)))?
            .context("the runtime does not report the exit of an init container")?;
        self.storm.witness.forget(&init.id);
        self.retire(index, INIT, init.id);
        Ok(())
    }
}
