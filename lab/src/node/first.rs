//! What a container's first process reads as its first act, among busy pods.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cpuset::CpuSet;

use super::Node;
use crate::busy::{Busy, OUT};
use crate::command::poll;
use crate::files;
use crate::pod::{Container, Pod};

/// Pods of a crowd that start at the same time.
const TOGETHER: usize = 10;
/// Generous: emulated CPUs on which everything is busy are slow.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct FirstInstruction {
    /// Where it may run, in the kernel's list format.
    pub own: String,
    /// Busy threads that it looked at.
    pub threads: usize,
    /// What could meet it, or it others, on CPUs that one of them has for itself; in words.
    pub met: Vec<String>,
}

impl FirstInstruction {
    /// Nothing met on exclusive CPUs, and it saw at least so many busy threads.
    pub fn check(&self, busy: usize) -> Result<()> {
        let is_good = self.met.is_empty() && !self.own.is_empty() && self.threads >= busy;
        ensure!(is_good, "{self:?}");
        Ok(())
    }
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
            records.push(self.report_of(&pod.name)?);
            pods.push(self.probing(&pod, "spin", [format!("{OUT}/go")])?);
        }
        for some in pods.chunks(TOGETHER) {
            self.run_together(some)?;
        }
        files::write(&go, "")?;
        for (pod, record) in pods.iter().zip(records) {
            let index = self.index(&pod.name)?;
            let pid =
                self.pods[index].containers.first().context("a pod of the crowd does not run")?.pid;
            self.busy.push(Busy::in_pod(&pod.name, pid, record)?);
        }
        Ok(())
    }

    /// As [`probe_first`](Self::probe_first), with the overlaps. `exclusive` gives the CPUs
    /// assigned to a pod's container.
    pub fn run_first(
        &mut self,
        pod: &Pod,
        exclusive: impl Fn(&str) -> Result<Option<CpuSet>>,
    ) -> Result<FirstInstruction> {
        let ProbeReport { own, threads, .. } = self.probe_first(pod)?;
        let mut met = Vec::new();
        if let Some(claimed) = exclusive(&pod.name)? {
            if claimed != own {
                met.push(format!("it may run on {own}, claimed: {claimed}"));
            }
            let there = threads.iter().filter(|(_, cpus)| !cpus.is_disjoint(&claimed));
            met.extend(there.map(|(thread, cpus)| format!("{thread} may run on {cpus}")));
        }
        for other in self.pods.iter().filter(|other| other.pod.name != pod.name) {
            let taken = exclusive(&other.pod.name)?.unwrap_or_default();
            if !taken.is_disjoint(&own) {
                met.push(format!("it may run on {own}, of which {} has {taken}", other.pod.name));
            }
        }
        Ok(FirstInstruction { own: own.to_string(), threads: threads.len(), met })
    }

    /// Starts a pod whose container `main` reads, as its first act, where it and all busy processes
    /// may run.
    pub fn probe_first(&mut self, pod: &Pod) -> Result<ProbeReport> {
        let report = self.report_of(&pod.name)?;
        let busy = self.busy.iter().map(|busy| busy.pid.to_string());
        let pod = self.probing(pod, "first", busy)?.with_host_pid();
        let mut started = self.run(&pod);
        let start = Instant::now();
        // Like a kubelet: with all CPUs busy, the plugin may answer too late.
        while started.is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_secs(1));
            started = self.retry(&pod.name);
        }
        started?;
        ProbeReport::wait_for(&report)
    }

    /// The pod with the probe as its container `main`, reporting to a file.
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
pub struct ProbeReport {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub start: u64,
    pub own: CpuSet,
    /// Names of threads of other processes, and where they may run.
    pub threads: Vec<(String, CpuSet)>,
}

impl ProbeReport {
    fn wait_for(path: &Path) -> Result<Self> {
        poll(PATIENCE, || Ok(path.exists().then_some(())))?
            .with_context(|| format!("no report {}", path.display()))?;
        let text = files::read(path)?;
        let mut report = Self { start: 0, own: CpuSet::EMPTY, threads: Vec::new() };
        text.lines().try_for_each(|line| {
            report.add(line).with_context(|| format!("unexpected line from the probe: {line:?}"))
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
            _ => bail!("unknown record"),
        }
        Ok(())
    }
}
