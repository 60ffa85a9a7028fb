//! Calls to a runtime that may be killed meanwhile. A lost call may have been carried out: a
//! kubelet lists what exists and continues from that; here the result of a lost call is removed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use super::{Worker, budget};
use crate::cri::wire;
use crate::kubelet::{Kubelet, RunningContainer};
use crate::pod::{Container, Pod};

impl Worker<'_> {
    /// An idempotent call: repeated if the runtime was killed meanwhile.
    pub(super) fn surely<T>(&mut self, call: impl Fn(&Kubelet) -> Result<T>) -> Result<T> {
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

    pub(super) fn run_sandbox(
        &mut self,
        pod: &Pod,
        config: wire::PodSandboxConfig,
    ) -> Result<String> {
        let before: Vec<String> = self
            .dead
            .iter()
            .filter(|dead| dead.pod.uid == pod.uid)
            .map(|dead| dead.sandbox.clone())
            .collect();
        let undo = |kubelet: &Kubelet| {
            let all = kubelet.sandboxes_of(pod)?;
            all.iter().filter(|one| !before.contains(one)).try_for_each(|one| {
                kubelet.stop_sandbox(one)?;
                kubelet.remove_sandbox(one)
            })
        };
        let sandbox = self.once(|kubelet| kubelet.run_sandbox_as(pod, config), undo)?;
        self.budgets.insert(sandbox.clone(), budget(pod));
        Ok(sandbox)
    }

    pub(super) fn create(
        &mut self,
        pod: &Pod,
        container: &Container,
        sandbox: &str,
    ) -> Result<String> {
        let attempt = self.attempts;
        let before = self.surely(|kubelet| kubelet.containers_in(sandbox))?;
        let undo = |kubelet: &Kubelet| {
            let all = kubelet.containers_in(sandbox)?;
            let mut new = all.iter().filter(|one| !before.contains(one));
            new.try_for_each(|one| kubelet.remove_container(one))
        };
        self.once(|kubelet| kubelet.create_container(pod, container, sandbox, attempt), undo)
    }

    pub(super) fn launch(&mut self, id: &str, name: &str) -> Result<RunningContainer> {
        self.once(|kubelet| kubelet.start_container(id, name), |kubelet| kubelet.stop_container(id))
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
