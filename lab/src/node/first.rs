//! The first moment of a container: what its first process sees as its very first act, with others
//! always busy around it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nri_cpu_manager::cpuset::CpuSet;
use serde::{Deserialize, Serialize};

use super::Node;
use crate::busy::{Busy, OUT};
use crate::pod::{Container, Pod};

/// Pods of a crowd that start at the same time.
const TOGETHER: usize = 10;
/// Generous: emulated CPUs on which everything is busy are slow.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// Where it may run, in the kernel's list format.
    pub own: String,
    /// Busy threads that it looked at.
    pub threads: usize,
    /// What could meet it, or it others, on CPUs that one of them has for itself; in words.
    pub met: Vec<String>,
}

impl Node {
    /// Starts Burstable pods with one thread each, which become busy once all run.
    pub fn run_crowd(&mut self, number: usize) -> Result<()> {
        let reports = self.reports()?;
        let go = reports.join("go");
        crate::cache::remove(&go)?;
        let mut records = Vec::new();
        let mut pods = Vec::new();
        for index in 0..number {
            let pod = Pod::new(&format!("crowd-{index}"), [Container::burstable("main", 10)]);
            records.push(self.record(&pod.name)?);
            pods.push(self.probing(&pod, "spin", [format!("{OUT}/go")])?);
        }
        for some in pods.chunks(TOGETHER) {
            self.run_together(some)?;
        }
        fs::write(&go, "").with_context(|| format!("cannot write {}", go.display()))?;
        for (pod, record) in pods.iter().zip(records) {
            let index = self.index(&pod.name)?;
            let pid = self.pods[index].containers.first().context("it does not run")?.pid;
            self.busy.push(Busy::in_pod(&pod.name, pid, record)?);
        }
        Ok(())
    }

    /// Starts a pod whose container `main` looks around as its very first act. `exclusive` tells
    /// afterwards which CPUs the plugin has assigned to a pod's container.
    pub fn run_first(
        &mut self,
        pod: &Pod,
        exclusive: impl Fn(&str) -> Result<Option<CpuSet>>,
    ) -> Result<First> {
        let report = self.record(&pod.name)?;
        let busy = self.busy.iter().map(|busy| busy.pid.to_string());
        let pod = self.probing(pod, "first", busy)?.with_host_pid();
        let mut started = self.run(&pod);
        let start = Instant::now();
        // As a kubelet does: where all CPUs are busy a plugin may take too long for its answer.
        while started.is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_secs(1));
            started = self.retry(&pod.name);
        }
        started?;
        let Report { own, threads, .. } = Report::wait_for(&report)?;
        let mut met = Vec::new();
        if let Some(decided) = exclusive(&pod.name)? {
            if decided != own {
                met.push(format!("its CPUs are not its own yet: {own}"));
            }
            let there = threads.iter().filter(|(_, cpus)| !cpus.is_disjoint(&decided));
            met.extend(there.map(|(thread, cpus)| format!("{thread} may run on {cpus}")));
        }
        for other in self.pods.iter().filter(|other| other.pod.name != pod.name) {
            let taken = exclusive(&other.pod.name)?.unwrap_or_default();
            if !taken.is_disjoint(&own) {
                met.push(format!("it may run on {own}, {} has {taken}", other.pod.name));
            }
        }
        Ok(First { own: own.to_string(), threads: threads.len(), met })
    }

    /// The same pod, whose container `main` is the probe with this task, and with the file of its
    /// report.
    pub(super) fn probing(
        &self,
        pod: &Pod,
        task: &str,
        more: impl IntoIterator<Item = String>,
    ) -> Result<Pod> {
        let mut pod = pod.clone();
        let mut command = vec!["/bin/probe".into(), task.into(), format!("{OUT}/{}", pod.name)];
        command.extend(more);
        let reports = self.reports()?.display().to_string();
        for container in pod.containers.iter_mut().filter(|c| c.name == "main") {
            container.command.clone_from(&command);
            container.mounts.push((reports.clone(), OUT.to_owned()));
        }
        Ok(pod)
    }
}

/// Output of `probe first`.
#[derive(Debug)]
pub struct Report {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub start: u64,
    pub own: CpuSet,
    /// Names of threads of other processes, and where they may run.
    pub threads: Vec<(String, CpuSet)>,
}

impl Report {
    pub fn wait_for(path: &Path) -> Result<Self> {
        let start = Instant::now();
        while !path.exists() {
            if start.elapsed() > PATIENCE {
                bail!("there is no report {}", path.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut report = Self { start: 0, own: CpuSet::EMPTY, threads: Vec::new() };
        text.lines().try_for_each(|line| {
            report.add(line).with_context(|| format!("a strange line of the probe: {line:?}"))
        })?;
        Ok(report)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["start_ns", start] => self.start = start.parse()?,
            ["own", cpus] => self.own = cpus.parse()?,
            ["thread", pid, thread, cpus] => {
                self.threads.push((format!("thread {thread} of process {pid}"), cpus.parse()?));
            }
            _ => bail!("it says something else"),
        }
        Ok(())
    }
}
