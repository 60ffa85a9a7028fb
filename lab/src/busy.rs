//! Processes that are always busy, and where they ran: `probe spin`, in a pod or outside of all
//! pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use cpuset::CpuSet;
use nix::sys::signal::Signal;

use crate::{cgroup, command, process};

/// Mount point of the reports in containers.
pub(crate) const OUT: &str = "/out";

/// An always busy process, in a pod or in its own cgroup on the host.
#[derive(Debug)]
pub struct Busy {
    /// The pod, or the cgroup on the host.
    pub name: String,
    pub pid: u32,
    /// Written by `probe spin`.
    record: PathBuf,
    /// None for a process in a container, which ends with its container.
    child: Option<Child>,
}

impl Busy {
    /// Waits until the process has run.
    pub fn in_pod(name: &str, pid: u32, record: PathBuf) -> Result<Self> {
        Self { name: name.to_owned(), pid, record, child: None }.begun()
    }

    fn begun(self) -> Result<Self> {
        let has_run = || times(&self.record).iter().any(|time| *time > 0);
        command::poll(Duration::from_secs(60), || Ok(has_run().then_some(())))?
            .with_context(|| format!("the busy process {} does not run", self.name))?;
        Ok(self)
    }

    /// Starts a process outside of all pods, in its own cgroup, like a host service. Waits until it
    /// has run.
    pub fn on_host(name: &str, record: PathBuf) -> Result<Self> {
        let probe = std::env::current_exe()
            .context("cannot find the path of this program")?
            .with_file_name("probe");
        let group = cgroup::add(&format!("system.slice/{name}"))?;
        // The shell enters the cgroup before it becomes the probe.
        let child = command::command(
            "sh",
            ["-c", "echo $$ > \"$0\"/cgroup.procs; exec \"$1\" spin \"$2\""],
        )
        .arg(&group)
        .arg(&probe)
        .arg(&record)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a busy process")?;
        Self { name: name.to_owned(), pid: child.id(), record, child: Some(child) }.begun()
    }

    /// When it last ran on a CPU, in CLOCK_MONOTONIC's nanoseconds; 0 for never.
    pub fn last_run(&self, cpu: usize) -> u64 {
        times(&self.record).get(cpu).copied().unwrap_or(0)
    }

    /// The CPUs it runs on during `window`.
    pub fn runs_on(&self, window: Duration) -> CpuSet {
        let before = times(&self.record);
        std::thread::sleep(window);
        let ran = times(&self.record);
        let ran = ran
            .iter()
            .enumerate()
            .filter(|(cpu, time)| before.get(*cpu) != Some(*time) && **time > 0);
        ran.filter_map(|(cpu, _)| CpuSet::of(cpu).ok()).collect()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = process::end(child, Signal::SIGKILL, Duration::from_secs(5));
        }
    }
}

fn times(record: &Path) -> Vec<u64> {
    let bytes = fs::read(record).unwrap_or_default();
    bytes
        .chunks_exact(8)
        .filter_map(|chunk| chunk.try_into().ok())
        .map(u64::from_ne_bytes)
        .collect()
}
