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
/// Emulated processors on which everything is busy take their time.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a container's first process saw.
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
    /// Starts so many Burstable pods, each with one thread. All become busy when the last one runs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_crowd(&mut self, number: usize) -> Result<()> {
        let reports = self.reports()?;
        let go = reports.join("go");
        crate::cache::remove(&go)?;
        let mut records = Vec::new();
        let mut pods = Vec::new();
        for index in 0..number {
            let name = format!("crowd-{index}");
            records.push(self.record(&name)?);
            let container = Container::burstable("main", 10)
                .running(["/bin/probe", "spin", &format!("{OUT}/{name}"), &format!("{OUT}/go")])
                .mounting(reports.display().to_string(), OUT);
            pods.push(Pod::new(&name, [container]));
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
    ///
    /// # Errors
    /// As [`run`](Self::run), or when it does not report.
    pub fn run_first(
        &mut self,
        pod: &Pod,
        exclusive: impl Fn(&str) -> Result<Option<CpuSet>>,
    ) -> Result<First> {
        let report = self.record(&pod.name)?;
        let mut pod = pod.clone().with_host_pid();
        for container in pod.containers.iter_mut().filter(|c| c.name == "main") {
            container.command =
                vec!["/bin/probe".into(), "first".into(), format!("{OUT}/{}", pod.name)];
            container.command.extend(self.busy.iter().map(|busy| busy.pid.to_string()));
            container.mounts.push((self.reports()?.display().to_string(), OUT.to_owned()));
        }
        let mut started = self.run(&pod);
        let start = Instant::now();
        // As a kubelet does: where all CPUs are busy a plugin may take too long for its answer.
        while started.is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_secs(1));
            started = self.retry(&pod.name);
        }
        started?;
        let mut first = First::default();
        let own = exclusive(&pod.name)?;
        for line in wait_for(&report)?.lines() {
            let parse = |list: &str| {
                list.parse::<CpuSet>().with_context(|| format!("a strange list: {line}"))
            };
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["own", list] => {
                    list.clone_into(&mut first.own);
                    if own.is_some_and(|own| Ok(own) != list.parse()) {
                        first.met.push(format!("its CPUs are not its own yet: {list}"));
                    }
                    for other in self.pods.iter().filter(|other| other.pod.name != pod.name) {
                        let taken = exclusive(&other.pod.name)?.unwrap_or_default();
                        if !taken.is_disjoint(&parse(list)?) {
                            let name = &other.pod.name;
                            first.met.push(format!("it may run on {list}, {name} has {taken}"));
                        }
                    }
                }
                ["thread", pid, _, list] => {
                    first.threads += 1;
                    if own.is_some_and(|own| parse(list).is_ok_and(|list| !list.is_disjoint(&own)))
                    {
                        first.met.push(format!("process {pid} may run on {list}"));
                    }
                }
                _ => {}
            }
        }
        Ok(first)
    }
}

fn wait_for(report: &Path) -> Result<String> {
    let start = Instant::now();
    while !report.exists() {
        if start.elapsed() > PATIENCE {
            bail!("there is no report {}", report.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))
}
