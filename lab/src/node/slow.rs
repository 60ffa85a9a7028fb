//! A container whose start takes as long as a test needs: the runtime has prepared it and waits for
//! the shim.

use std::fs;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;

use super::Node;
use crate::command::poll;
use crate::kubelet::RunningPod;
use crate::pod::Pod;
use crate::process;

/// Time for the runtime to begin the start.
const BEGINS: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct SlowStart {
    pod: RunningPod,
    container: String,
    shim: Stopped,
    start: JoinHandle<Result<()>>,
}

/// Stopped (SIGSTOP) until it is dropped.
#[derive(Debug)]
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        process::signal(pid, Signal::SIGSTOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        process::signal(self.0, Signal::SIGCONT);
    }
}

impl Node {
    /// Makes the runtime begin to start the only container of a new pod, until
    /// [`finish`](Self::finish).
    pub fn begin(&mut self, pod: &Pod) -> Result<SlowStart> {
        let pod = Pod { driver: self.driver, ..pod.clone() };
        let [container] = &pod.containers[..] else {
            return Err(anyhow!("the pod must have exactly one container"));
        };
        let sandbox = self.kubelet.run_sandbox(&pod)?;
        self.attempts += 1;
        let id = self.kubelet.create_container(&pod, container, &sandbox, self.attempts)?;
        let shim = Stopped::new(shim(&sandbox)?);
        let kubelet = self.another_kubelet()?;
        let started = id.clone();
        let start = thread::spawn(move || kubelet.launch_container(&started));
        let read = self.containerd.bundle(&id).join("config.json");
        poll(BEGINS, || Ok(read.exists().then_some(())))?
            .with_context(|| format!("the runtime does not begin to start {}", pod.name))?;
        let pod = RunningPod { pod, sandbox, containers: Vec::new() };
        Ok(SlowStart { pod, container: id, shim, start })
    }

    /// Lets the runtime complete the start.
    pub fn finish(&mut self, slow: SlowStart) -> Result<()> {
        let SlowStart { mut pod, container, shim, start } = slow;
        drop(shim);
        start.join().map_err(|_| anyhow!("a thread of the lab panicked"))??;
        let name = &pod.pod.containers[0].name;
        pod.containers.push(self.kubelet.started(&container, name)?);
        self.pods.push(pod);
        Ok(())
    }
}

/// The shim of a sandbox.
fn shim(sandbox: &str) -> Result<u32> {
    let is_its = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.first().is_some_and(|program| program.contains("containerd-shim"))
            && words.windows(2).any(|pair| pair[0] == "-id" && pair[1] == sandbox)
    };
    process::all().into_iter().find(is_its).context("the sandbox has no shim")
}
