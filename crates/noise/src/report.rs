//! [`NoiseReport`]: the report of an [`Observation`], for programs and for people.
//!
//! Names come from `/proc`, where processes choose theirs: they have no control characters here, and a
//! bounded length.

use crate::difference::{
    Amount, Cause, CpuTally, InForce, Kind, Observation, PartitionInForce, owner_of,
};
use crate::sample::{MOST_CGROUPS, MOST_OF_CGROUP, MOST_THREADS, Visibility};
use cpuset::{CpuSet, PartitionType};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::time::Duration;
use wording::{count, printable, shortened};

/// The version of the format. It changes when a field is removed or changes its meaning, not when one
/// is added.
pub const VERSION: u32 = 1;

/// The most characters of a name.
const LONGEST_NAME: usize = 64;
/// The most characters of a chip or a cgroup.
const LONGEST_DETAIL: usize = 160;
/// The most lines of a container in a text.
const MOST_LINES: usize = 40;
/// 10 ms of another thread weigh as much as this many interrupts or switches of 5 microseconds.
const TICK_WEIGHT: u64 = 2000;
const MILLISECONDS_PER_TICK: u64 = 10;
/// How a terminal begins red text, and ends it.
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// What ran or fired on exclusive CPUs besides their containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoiseReport {
    /// Of the form of this report; `noise` writes the same.
    pub version: u32,
    /// From the first sample to the last.
    pub seconds: f64,
    /// How many samples were compared.
    pub samples: usize,
    pub visibility: Visibility,
    /// How many threads a sample has read.
    pub threads_read: usize,
    /// How many it has not read, as there are more than [`MOST_THREADS`], than [`MOST_OF_CGROUP`] in one cgroup, or
    /// than those of [`MOST_CGROUPS`]: they are not observed.
    pub threads_unread: usize,
    /// How long the last sample took, at the least priority; `null` if nobody has measured it.
    pub sample_milliseconds: Option<u64>,
    /// Why no interrupts are visible; `null` if they are.
    pub interrupts_error: Option<String>,
    /// In the order in which the owners were given.
    pub containers: Vec<ContainerNoise>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerNoise {
    /// Namespace, pod and container; or the pod, of an own pool.
    pub name: String,
    pub cpus: CpuSet,
    /// Ascending by CPU.
    pub by_cpu: Vec<CpuNoise>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuNoise {
    /// Its number.
    pub cpu: usize,
    /// What the findings mean.
    pub verdict: Verdict,
    /// The heaviest first; threads of other containers before all else.
    pub findings: Vec<Finding>,
    /// The tick, interrupts from other CPUs, and per-CPU kernel threads; the heaviest first.
    pub expected: Vec<Finding>,
    /// How often one of the owner's threads that were seen on this CPU had to make way for another
    /// thread, of the owner or not. `null` if threads are not visible.
    pub involuntary_context_switches: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is nothing but what is expected.
    Quiet,
    /// Nothing unexpected is visible, but some threads or interrupts are not.
    QuietAsFarAsVisible,
    Noisy,
    /// The CPU was offline, or there is one sample only.
    Unobserved,
}

/// A source of noise on one CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    pub kind: Kind,
    /// Of an interrupt: its number; of a thread: its process. `null` for others.
    pub number: Option<u32>,
    /// Of the device, softirq, row of `/proc/interrupts`, or thread.
    pub name: String,
    /// The chip of an interrupt, the container or cgroup of a thread, or empty.
    pub detail: String,
    /// Interrupts, softirqs, or context switches of threads. A thread that was seen on several CPUs
    /// counts for each.
    pub count: u64,
    /// CPU time of threads, in steps of 10 ms; `null` for others.
    pub milliseconds: Option<u64>,
    /// The number of threads with this name in the process; `null` for others.
    pub threads: Option<usize>,
    /// `null` if nothing can be done.
    pub advice: Option<Advice>,
}

/// What to do about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    ReportDefect,
    ObserveAgain,
    KernelExclusivity,
    NoPartition,
    IsolatedPartition,
    BootIsolation,
    InterruptsAway,
    NotAway,
    KernelManaged,
    FollowsInterrupts,
    OwnTraffic,
    Watchdog,
    Hardware,
    BootParameters,
}

impl Advice {
    pub fn text(self) -> &'static str {
        match self {
            Advice::ReportDefect => {
                "exclusive CPUs have no other container: compare nri-cpu-manager status, and report this as a defect"
            }
            Advice::ObserveAgain => "ran here before its CPUs changed: observe again",
            Advice::KernelExclusivity => "exclusivity: kernel keeps all processes of the host off",
            Advice::NoPartition => {
                "has no cpuset partition, so processes of the host may run here: nri-cpu-manager explain names the reason"
            }
            Advice::IsolatedPartition => {
                "cpusetPartition: isolated (before Linux 7.0, kswapd and kcompactd lose their NUMA node), \
                 or boot with isolcpus= or nohz_full="
            }
            Advice::BootIsolation => "boot with isolcpus= or nohz_full=",
            Advice::InterruptsAway => "interrupts: away moves them to other CPUs",
            Advice::NotAway => {
                "should be on other CPUs: nri-cpu-manager status has the interrupts that could not be moved, and why"
            }
            Advice::KernelManaged => {
                "kernel-managed: cannot be moved, and only fires for I/O that was started on this CPU"
            }
            Advice::FollowsInterrupts => {
                "runs after device interrupts (interrupts: away moves these), or for I/O of the container itself"
            }
            Advice::OwnTraffic => "runs for I/O of the container itself",
            Advice::Watchdog => "performance counters: end perf, or boot with nmi_watchdog=0",
            Advice::Hardware => "raised by the hardware or firmware: see the kernel's log",
            Advice::BootParameters => "boot with nohz_full= and rcu_nocbs= for fewer of these",
        }
    }

    fn of(cause: &Cause, unmovable: &BTreeSet<u32>, in_force: InForce) -> Option<Advice> {
        let interrupt = match cause.kind {
            // The thread of interrupt 41 is called irq/41-nvme0q3.
            Kind::InterruptThread => {
                let number = cause.name.trim_start_matches("irq/").split('-').next();
                number.and_then(|number| number.parse().ok())
            }
            _ => cause.number,
        };
        match cause.kind {
            Kind::OtherContainer => Some(Advice::ReportDefect),
            Kind::FormerContainer => Some(Advice::ObserveAgain),
            Kind::HostProcess => Some(match in_force.partition {
                PartitionInForce::Unused => Advice::KernelExclusivity,
                PartitionInForce::Missing => Advice::NoPartition,
                // The kernel lets no process outside a partition run on its CPUs.
                PartitionInForce::Of(_) => Advice::ObserveAgain,
            }),
            Kind::KernelThread => Some(match in_force.partition {
                PartitionInForce::Unused | PartitionInForce::Of(PartitionType::Root) => {
                    Advice::IsolatedPartition
                }
                PartitionInForce::Missing | PartitionInForce::Of(PartitionType::Isolated) => {
                    Advice::BootIsolation
                }
            }),
            Kind::DeviceInterrupt | Kind::InterruptThread => {
                if interrupt.is_some_and(|number| unmovable.contains(&number)) {
                    Some(Advice::KernelManaged)
                } else if in_force.interrupts_away {
                    Some(Advice::NotAway)
                } else {
                    Some(Advice::InterruptsAway)
                }
            }
            Kind::Softirq if in_force.interrupts_away => Some(Advice::OwnTraffic),
            Kind::Softirq => Some(Advice::FollowsInterrupts),
            Kind::OtherInterrupt if ["NMI", "PMI"].contains(&cause.name.as_str()) => {
                Some(Advice::Watchdog)
            }
            Kind::OtherInterrupt => Some(Advice::Hardware),
            Kind::Tick | Kind::TickSoftirq | Kind::PerCpuThread => Some(Advice::BootParameters),
            Kind::SystemInterrupt => None,
        }
    }
}

impl Observation {
    /// The report. `elapsed` is the time from the first sample to the last, and `unmovable` has the
    /// interrupts whose affinity the kernel refused to change.
    pub fn noise(&self, elapsed: Duration, unmovable: &BTreeSet<u32>) -> NoiseReport {
        let mut reported = CpuSet::EMPTY;
        let mut containers = Vec::new();
        for owner in &self.owners {
            let cpus = owner.cpus - reported;
            reported |= cpus;
            let tallies = self.tallies.iter().filter(|(cpu, _)| cpus.contains(**cpu));
            let by_cpu = tallies.map(|(cpu, tally)| self.noise_of(*cpu, tally, unmovable));
            containers.push(ContainerNoise {
                name: clean(&owner.name, LONGEST_DETAIL),
                cpus,
                by_cpu: by_cpu.collect(),
            });
        }
        NoiseReport {
            version: VERSION,
            seconds: elapsed.as_secs_f64(),
            samples: self.pairs + 1,
            visibility: self.visibility,
            threads_read: self.threads_read,
            threads_unread: self.threads_unread,
            sample_milliseconds: None,
            interrupts_error: self.interrupts_error.as_ref().map(|why| clean(why, LONGEST_DETAIL)),
            containers,
        }
    }

    fn noise_of(&self, cpu: usize, tally: &CpuTally, unmovable: &BTreeSet<u32>) -> CpuNoise {
        let in_force =
            owner_of(&self.owners, cpu).map_or_else(InForce::default, |owner| owner.in_force);
        let all = tally.causes.iter();
        let mut all: Vec<Finding> =
            all.map(|(cause, amount)| Finding::of(cause, amount, unmovable, in_force)).collect();
        // Stable: causes are in order.
        all.sort_by_key(Finding::rank);
        let (expected, findings): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|finding| finding.kind.is_expected());
        let sees_all = self.visibility == Visibility::Host
            && self.threads_unread == 0
            && self.interrupts_error.is_none();
        let verdict = if !findings.is_empty() {
            Verdict::Noisy
        } else if !tally.is_observed {
            Verdict::Unobserved
        } else if sees_all {
            Verdict::Quiet
        } else {
            Verdict::QuietAsFarAsVisible
        };
        let involuntary_context_switches = match self.visibility {
            Visibility::InterruptsOnly => None,
            Visibility::Processes | Visibility::Host => Some(tally.involuntary),
        };
        CpuNoise { cpu, verdict, findings, expected, involuntary_context_switches }
    }
}

impl Finding {
    fn of(cause: &Cause, amount: &Amount, unmovable: &BTreeSet<u32>, in_force: InForce) -> Finding {
        let is_thread = cause.kind.is_thread();
        Finding {
            kind: cause.kind,
            number: cause.number,
            name: clean(&cause.name, LONGEST_NAME),
            detail: clean(&cause.detail, LONGEST_DETAIL),
            count: amount.count,
            milliseconds: if is_thread {
                Some(amount.ticks.saturating_mul(MILLISECONDS_PER_TICK))
            } else {
                None
            },
            threads: if is_thread { Some(amount.threads.len()) } else { None },
            advice: Advice::of(cause, unmovable, in_force),
        }
    }

    /// The place in a list: threads of other containers first, then the heaviest.
    fn rank(&self) -> (bool, Reverse<u64>) {
        let ticks = self.milliseconds.unwrap_or_default() / MILLISECONDS_PER_TICK;
        let weight = ticks.saturating_mul(TICK_WEIGHT).saturating_add(self.count);
        (self.kind != Kind::OtherContainer, Reverse(weight))
    }

    /// The name with number and detail.
    fn full_name(&self) -> String {
        let mut name = self.name.clone();
        if let Some(number) = self.number {
            let word = if self.kind.is_thread() { "pid" } else { "IRQ" };
            name = format!("{word} {number} {name}");
        }
        if let Some(threads) = self.threads
            && threads > 1
        {
            name = format!("{name} ({threads} threads)");
        }
        if self.detail.is_empty() { name } else { format!("{name}, {}", self.detail) }
    }
}

fn clean(text: &str, longest: usize) -> String {
    shortened(&printable(text), longest)
}

impl fmt::Display for Finding {
    /// `device interrupt IRQ 30 nvme0q3, PCI-MSI: 812 times`, or for a thread
    /// `host process pid 801 cron, /system.slice: 12 times, 40 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind.name(), self.full_name(), count(self.count, "time"))?;
        match self.milliseconds {
            Some(milliseconds) => write!(f, ", {milliseconds} ms"),
            None => Ok(()),
        }
    }
}

impl NoiseReport {
    /// The CPUs with this verdict.
    pub fn with_verdict(&self, verdict: Verdict) -> CpuSet {
        self.containers.iter().map(|container| container.with_verdict(verdict)).collect()
    }

    /// Leaves out what is expected, which no setting of the plugin changes.
    #[must_use]
    pub fn without_expected(mut self) -> NoiseReport {
        let by_cpu = self.containers.iter_mut().flat_map(|container| &mut container.by_cpu);
        by_cpu.for_each(|one| one.expected.clear());
        self
    }

    /// Leaves out the names of containers, processes and cgroups.
    #[must_use]
    pub fn without_names(mut self) -> NoiseReport {
        for container in &mut self.containers {
            container.name.clear();
            let by_cpu = container.by_cpu.iter_mut();
            for one in by_cpu.flat_map(|one| one.findings.iter_mut().chain(&mut one.expected)) {
                if one.kind.is_thread() {
                    one.name.clear();
                    one.detail.clear();
                    one.number = None;
                }
            }
        }
        self
    }

    /// What is not visible, and what to do, a line each.
    pub fn hidden(&self) -> Vec<String> {
        let threads = match self.visibility {
            Visibility::Host => None,
            Visibility::Processes => {
                Some("no kernel threads visible, only processes of this pid namespace")
            }
            Visibility::InterruptsOnly => {
                Some("not visible without the host's pid namespace (overlay host-pid)")
            }
        };
        let interrupts = self.interrupts_error.as_ref().map(|error| {
            format!("interrupts: not visible: {error} (the kubelet masks this file in containers: overlay quiet)")
        });
        let unread = if self.threads_unread == 0 {
            None
        } else {
            Some(format!(
                "{} not observed: a sample reads {MOST_OF_CGROUP} of one cgroup, and {MOST_THREADS} of {MOST_CGROUPS} cgroups in all",
                count(self.threads_unread as u64, "thread")
            ))
        };
        let threads = threads.map(|threads| format!("threads: {threads}"));
        threads.into_iter().chain(unread).chain(interrupts).collect()
    }

    /// For people. With `colour`, the lines of noisy CPUs are red.
    pub fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, colour);
        text
    }

    fn write(&self, f: &mut String, colour: bool) -> fmt::Result {
        writeln!(
            f,
            "noise on exclusive CPUs in {:.1} s, {}",
            self.seconds,
            count(self.samples as u64, "sample")
        )?;
        for line in self.hidden() {
            writeln!(f, "{line}")?;
        }
        if self.containers.is_empty() {
            writeln!(f, "no container has exclusive CPUs")?;
        }
        for container in &self.containers {
            writeln!(f)?;
            container.write(f, colour)?;
        }
        self.write_advice(f)
    }

    fn write_advice(&self, f: &mut String) -> fmt::Result {
        let mut kinds: BTreeMap<Advice, BTreeSet<&str>> = BTreeMap::new();
        let mut has_threads = false;
        let by_cpu = self.containers.iter().flat_map(|container| &container.by_cpu);
        for finding in by_cpu.flat_map(|one| one.findings.iter().chain(&one.expected)) {
            has_threads |= finding.kind.is_thread();
            if let Some(advice) = finding.advice {
                kinds.entry(advice).or_default().insert(finding.kind.name());
            }
        }
        if has_threads {
            writeln!(
                f,
                "\nThreads are listed where they were seen last in a sample: /proc does not say on which CPU \
                 they spent their time."
            )?;
        }
        if !kinds.is_empty() {
            writeln!(f, "\nadvice:")?;
        }
        for (advice, kinds) in kinds {
            let kinds: Vec<&str> = kinds.into_iter().collect();
            writeln!(f, "  {}: {}", kinds.join(", "), advice.text())?;
        }
        Ok(())
    }
}

impl ContainerNoise {
    /// The CPUs with this verdict.
    pub fn with_verdict(&self, verdict: Verdict) -> CpuSet {
        let with = self.by_cpu.iter().filter(|one| one.verdict == verdict);
        // The numbers come from a set.
        with.filter_map(|one| CpuSet::of(one.cpu).ok()).collect()
    }

    /// The findings of all CPUs, each with its CPU: threads of other containers first, then the heaviest.
    pub fn heaviest(&self) -> Vec<(usize, &Finding)> {
        let by_cpu = self.by_cpu.iter();
        let findings = by_cpu.flat_map(|one| one.findings.iter().map(|found| (one.cpu, found)));
        let mut findings: Vec<(usize, &Finding)> = findings.collect();
        findings.sort_by_key(|(_, found)| found.rank());
        findings
    }

    fn write(&self, f: &mut String, colour: bool) -> fmt::Result {
        writeln!(f, "{}, {}", self.name, wording::cpus(self.cpus))?;
        for (verdict, label) in [
            (Verdict::Quiet, "quiet"),
            (Verdict::QuietAsFarAsVisible, "quiet as far as visible"),
            (Verdict::Noisy, "noisy"),
            (Verdict::Unobserved, "not observed (offline, or one sample only)"),
        ] {
            let cpus = self.with_verdict(verdict);
            if cpus.is_empty() {
                continue;
            }
            let line = format!("{label}: {}", wording::cpus(cpus));
            if colour && verdict == Verdict::Noisy {
                writeln!(f, "  {RED}{line}{PLAIN}")?;
            } else {
                writeln!(f, "  {line}")?;
            }
        }
        let involuntary: u64 = self
            .by_cpu
            .iter()
            .filter_map(|one| one.involuntary_context_switches)
            .fold(0, u64::saturating_add);
        if involuntary > 0 {
            writeln!(f, "  involuntary context switches of its own threads: {involuntary}")?;
        }
        self.write_findings(f)?;
        self.write_expected(f)
    }

    fn write_findings(&self, f: &mut String) -> fmt::Result {
        let findings =
            || self.by_cpu.iter().flat_map(|one| one.findings.iter().map(|found| (one.cpu, found)));
        let total = findings().count();
        if total == 0 {
            return Ok(());
        }
        let mut rows = vec![["seen on", "source", "count", "time", "name"].map(str::to_owned)];
        for (cpu, finding) in findings().take(MOST_LINES) {
            let time = finding.milliseconds.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
            rows.push([
                format!("CPU {cpu}"),
                finding.kind.name().to_owned(),
                finding.count.to_string(),
                time,
                finding.full_name(),
            ]);
        }
        write_table(f, &rows)?;
        if total > MOST_LINES {
            writeln!(f, "  and {} more (as JSON: all)", total - MOST_LINES)?;
        }
        Ok(())
    }

    /// One line for all CPUs: sums by source, and the number of threads.
    fn write_expected(&self, f: &mut String) -> fmt::Result {
        let mut sums: BTreeMap<(Kind, &str), u64> = BTreeMap::new();
        let mut threads = BTreeSet::new();
        for finding in self.by_cpu.iter().flat_map(|one| &one.expected) {
            if finding.kind == Kind::PerCpuThread {
                threads.insert(finding.number);
            } else {
                let sum = sums.entry((finding.kind, &finding.name)).or_default();
                *sum = sum.saturating_add(finding.count);
            }
        }
        let mut parts: Vec<String> =
            sums.into_iter().map(|((_, name), sum)| format!("{name} {sum}")).collect();
        if !threads.is_empty() {
            parts.push(count(threads.len() as u64, "per-CPU kernel thread"));
        }
        if parts.is_empty() {
            return Ok(());
        }
        writeln!(f, "  expected: {}", parts.join(", "))
    }
}

/// Columns as wide as their longest cell; the last one has no end.
fn write_table(f: &mut String, rows: &[[String; 5]]) -> fmt::Result {
    let mut widths = [0; 5];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(f, "  {}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
