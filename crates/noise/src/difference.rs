//! [`Observation`]: what grew on watched CPUs from one sample to the next, and whose it is.
//!
//! Pure: samples come as arguments. Interrupts and softirqs grew on the CPU of their column. A thread
//! whose time or switches grew counts for the CPU that it ran on last in either sample; more samples make
//! the steps between them smaller, and this more certain.

use crate::sample::{Row, Sample, Table, Thread, ThreadId, Usage, Visibility};
use cpuset::{CgroupPath, CpuSet, PartitionType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Interrupt controllers whose interrupts belong to one CPU and cannot be moved.
const LOCAL_CHIPS: [&str; 2] = ["RISC-V INTC", "xen-percpu"];
/// Arm's interrupt controllers number interrupts of a CPU (SGI and PPI) below this, shared ones from it.
const FIRST_SHARED_ON_ARM: u32 = 32;
/// Rows of `/proc/interrupts` for timers of a CPU.
const TICK_ROWS: [&str; 3] = ["LOC", "HVS", "BCT"];
/// Rows for what CPUs and hypervisors tell a CPU: wake-ups, function calls, TLB shootdowns, IRQ work,
/// doorbells, polls of machine checks, events of virtual machines.
const SYSTEM_ROWS: [&str; 13] =
    ["RES", "CAL", "TLB", "IWI", "RTR", "SPU", "HYP", "HRE", "DBL", "MCP", "PIN", "NPI", "PIW"];
/// Softirqs that the tick raises.
const TICK_SOFTIRQS: [&str; 4] = ["TIMER", "SCHED", "HRTIMER", "RCU"];

/// The source of noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A thread of a container that does not own the CPU: exclusive CPUs exist to prevent this.
    OtherContainer,
    /// A thread of another container that may not run here any more: it has not run since its CPUs
    /// changed, or since it joined the container, and the kernel shows where it was before.
    FormerContainer,
    /// A process outside Kubernetes' cgroups.
    HostProcess,
    /// A kernel thread that is not bound to one CPU: a worker (`kworker/u8:2`), `kswapd0`.
    KernelThread,
    DeviceInterrupt,
    /// The thread of a device's interrupt, `irq/41-nvme0q3`.
    InterruptThread,
    /// Softirqs of devices: `NET_RX`, `BLOCK`.
    Softirq,
    /// An interrupt that is neither of a device nor among the expected ones: `NMI`, `PMI`, `TRM`.
    OtherInterrupt,
    /// The local timer. It also counts timers of the owner.
    Tick,
    /// Softirqs that come with the tick.
    TickSoftirq,
    /// Interrupts from other CPUs and the hypervisor: `RES`, `CAL`, `TLB`.
    SystemInterrupt,
    /// A kernel thread that is bound to this CPU: `ksoftirqd/3`, `migration/3`, `kworker/3:1`.
    PerCpuThread,
}

impl Kind {
    /// Whether a CPU with nothing else is quiet.
    pub fn is_expected(self) -> bool {
        matches!(self, Kind::Tick | Kind::TickSoftirq | Kind::SystemInterrupt | Kind::PerCpuThread)
    }

    pub fn is_thread(self) -> bool {
        matches!(
            self,
            Kind::OtherContainer
                | Kind::FormerContainer
                | Kind::HostProcess
                | Kind::KernelThread
                | Kind::InterruptThread
                | Kind::PerCpuThread
        )
    }

    /// As in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::OtherContainer => "other_container",
            Kind::FormerContainer => "former_container",
            Kind::HostProcess => "host_process",
            Kind::KernelThread => "kernel_thread",
            Kind::DeviceInterrupt => "device_interrupt",
            Kind::InterruptThread => "interrupt_thread",
            Kind::Softirq => "softirq",
            Kind::OtherInterrupt => "other_interrupt",
            Kind::Tick => "tick",
            Kind::TickSoftirq => "tick_softirq",
            Kind::SystemInterrupt => "system_interrupt",
            Kind::PerCpuThread => "per_cpu_thread",
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OtherContainer => "other container",
            Kind::FormerContainer => "former container",
            Kind::HostProcess => "host process",
            Kind::KernelThread => "kernel thread",
            Kind::DeviceInterrupt => "device interrupt",
            Kind::InterruptThread => "interrupt thread",
            Kind::Softirq => "softirq",
            Kind::OtherInterrupt => "other interrupt",
            Kind::Tick => "tick",
            Kind::TickSoftirq => "softirq of the tick",
            Kind::SystemInterrupt => "system interrupt",
            Kind::PerCpuThread => "per-CPU kernel thread",
        }
    }
}

/// A container with exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// In the report: `namespace/pod/container`.
    pub name: String,
    /// Threads in it and below are the owner's. For the own pool of a pod, this is the pod's cgroup.
    pub cgroup: CgroupPath,
    /// No CPU may have two owners; if one has, it counts for the first.
    pub cpus: CpuSet,
    pub in_force: InForce,
}

/// The settings that hold for an owner's CPUs: no advice names one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InForce {
    pub partition: PartitionInForce,
    /// Whether device interrupts are kept off (`interrupts: away` or `housekeeping`).
    pub interrupts_away: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionInForce {
    /// The node has no partitions for containers.
    #[default]
    Unused,
    /// Other containers of the node have one. This owner's CPUs cannot have one, or the kernel refused it.
    Missing,
    Of(PartitionType),
}

impl Owner {
    /// Whether both are the same container, perhaps with other CPUs. One that was created again has
    /// another cgroup.
    pub fn is_same(&self, other: &Owner) -> bool {
        self.name == other.name && self.cgroup == other.cgroup
    }
}

/// A source on one CPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cause {
    pub(crate) kind: Kind,
    /// Of an interrupt; the process of a thread, or a kernel thread's own id.
    pub(crate) number: Option<u32>,
    pub(crate) name: String,
    /// The chip of an interrupt, or the cgroup of a thread.
    pub(crate) detail: String,
}

/// How much a source grew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    /// Interrupts, softirqs, or context switches.
    pub(crate) count: u64,
    /// Units of 10 ms.
    pub(crate) ticks: u64,
    /// Threads of a process with this name.
    pub(crate) threads: BTreeSet<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CpuTally {
    /// Whether two consecutive samples had this CPU. An offline one has no column.
    pub(crate) is_observed: bool,
    pub(crate) causes: BTreeMap<Cause, Amount>,
    /// Involuntary context switches of the owner's threads.
    pub(crate) involuntary: u64,
}

/// What grew on the CPUs of owners, added up over pairs of samples.
#[derive(Debug, Clone)]
pub struct Observation {
    pub(crate) owners: Vec<Owner>,
    pub(crate) pairs: usize,
    /// The least of all samples.
    pub(crate) visibility: Visibility,
    /// The most threads that a sample has read, and that one has not.
    pub(crate) threads_read: usize,
    pub(crate) threads_unread: usize,
    /// Why a sample has no interrupts.
    pub(crate) interrupts_error: Option<String>,
    pub(crate) tallies: BTreeMap<usize, CpuTally>,
}

impl Observation {
    pub fn new(owners: Vec<Owner>) -> Observation {
        let cpus = owners.iter().map(|owner| owner.cpus).collect::<CpuSet>();
        Observation {
            owners,
            pairs: 0,
            visibility: Visibility::Host,
            threads_read: 0,
            threads_unread: 0,
            interrupts_error: None,
            tallies: cpus.iter().map(|cpu| (cpu, CpuTally::default())).collect(),
        }
    }

    /// Adds what grew from one sample to the next, both of the owners' CPUs. The owners must have had
    /// these CPUs at both.
    pub fn add(&mut self, earlier: &Sample, later: &Sample) {
        self.pairs += 1;
        self.visibility = self.visibility.min(earlier.visibility).min(later.visibility);
        for sample in [earlier, later] {
            self.threads_read =
                self.threads_read.max(sample.threads.len() + sample.elsewhere.len());
            self.threads_unread = self.threads_unread.max(sample.unread);
            if let Err(why) = &sample.interrupts {
                self.interrupts_error = Some(why.clone());
            }
        }
        // Softirqs have a column for each CPU, online or not.
        let tables = match (&earlier.interrupts, &later.interrupts) {
            (Ok(earlier), Ok(later)) => (earlier, later),
            _ => (&earlier.softirqs, &later.softirqs),
        };
        for cpu in tables.0.cpus.iter().filter(|cpu| tables.1.cpus.contains(cpu)) {
            if let Some(tally) = self.tallies.get_mut(cpu) {
                tally.is_observed = true;
            }
        }
        for Growth { cpu, what } in difference(&self.owners, earlier, later) {
            if let Some(tally) = self.tallies.get_mut(&cpu) {
                tally.add(what);
            }
        }
    }

    /// Adds another observation, on the CPUs that have the same owner in both.
    pub fn merge(&mut self, other: &Observation) {
        self.pairs += other.pairs;
        self.visibility = self.visibility.min(other.visibility);
        self.threads_read = self.threads_read.max(other.threads_read);
        self.threads_unread = self.threads_unread.max(other.threads_unread);
        self.interrupts_error = other.interrupts_error.clone().or(self.interrupts_error.take());
        for (cpu, from) in &other.tallies {
            if let Some(owner) = owner_of(&self.owners, *cpu)
                && let Some(other) = owner_of(&other.owners, *cpu)
                && owner.is_same(other)
                && let Some(tally) = self.tallies.get_mut(cpu)
            {
                tally.merge(from);
            }
        }
    }
}

impl CpuTally {
    fn add(&mut self, what: What) {
        match what {
            What::Involuntary(count) => {
                self.involuntary = self.involuntary.saturating_add(count);
            }
            What::Foreign { cause, count, ticks, thread } => {
                let threads = thread.into_iter().collect();
                self.causes.entry(cause).or_default().add(&Amount { count, ticks, threads });
            }
        }
    }

    fn merge(&mut self, from: &CpuTally) {
        self.is_observed |= from.is_observed;
        self.involuntary = self.involuntary.saturating_add(from.involuntary);
        for (cause, amount) in &from.causes {
            self.causes.entry(cause.clone()).or_default().add(amount);
        }
    }
}

impl Amount {
    fn add(&mut self, other: &Amount) {
        self.count = self.count.saturating_add(other.count);
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.threads.extend(&other.threads);
    }
}

pub(crate) fn owner_of(owners: &[Owner], cpu: usize) -> Option<&Owner> {
    owners.iter().find(|owner| owner.cpus.contains(cpu))
}

/// What grew on a CPU between two samples.
#[derive(Debug, PartialEq, Eq)]
struct Growth {
    cpu: usize,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// Involuntary context switches of the owner's thread.
    Involuntary(u64),
    Foreign {
        cause: Cause,
        count: u64,
        ticks: u64,
        thread: Option<u32>,
    },
}

fn difference(owners: &[Owner], earlier: &Sample, later: &Sample) -> Vec<Growth> {
    let mut all = Vec::new();
    if let (Ok(earlier), Ok(later)) = (&earlier.interrupts, &later.interrupts) {
        all.extend(table_growth(earlier, later, interrupt));
    }
    all.extend(table_growth(&earlier.softirqs, &later.softirqs, softirq));
    // A thread that one of the samples could not see is no new one.
    if earlier.visibility == later.visibility {
        all.extend(thread_growth(owners, earlier, later));
    }
    all
}

fn table_growth(earlier: &Table, later: &Table, cause: fn(&str, &Row) -> Cause) -> Vec<Growth> {
    // Columns are matched by their CPUs: they change when a CPU goes offline.
    let mut columns = Vec::new();
    for (column, &cpu) in later.cpus.iter().enumerate() {
        if let Some(before) = earlier.cpus.iter().position(|&one| one == cpu) {
            columns.push((cpu, before, column));
        }
    }
    let mut growth = Vec::new();
    for (label, row) in &later.rows {
        // A new row counts from 0: the number got a device since the earlier sample.
        let before = earlier.rows.get(label);
        let mut found: Option<Cause> = None;
        for &(cpu, earlier_column, column) in &columns {
            let start = before.map_or(0, |row| row.counts[earlier_column]);
            let count = grown(start, row.counts[column]);
            if count > 0 {
                let cause = found.get_or_insert_with(|| cause(label, row)).clone();
                growth.push(Growth {
                    cpu,
                    what: What::Foreign { cause, count, ticks: 0, thread: None },
                });
            }
        }
    }
    growth
}

/// The growth of a counter. The kernel keeps 32 bits, and starts at 0 for a new device under an old number:
/// a fall by more than half of the range is a wrap-around, any other a new device.
fn grown(earlier: u64, later: u64) -> u64 {
    if let Some(growth) = later.checked_sub(earlier) {
        return growth;
    }
    let (Ok(start), Ok(end)) = (u32::try_from(earlier), u32::try_from(later)) else { return later };
    let wrapped = end.wrapping_sub(start);
    if wrapped < 1 << 31 { wrapped.into() } else { later }
}

fn interrupt(label: &str, row: &Row) -> Cause {
    let number: Option<u32> = label.parse().ok();
    let Some(number) = number else {
        let kind = if TICK_ROWS.contains(&label) {
            Kind::Tick
        } else if SYSTEM_ROWS.contains(&label) || label.starts_with("IPI") {
            Kind::SystemInterrupt
        } else {
            Kind::OtherInterrupt
        };
        let detail = row.description.clone();
        return Cause { kind, number: None, name: label.to_owned(), detail };
    };
    let Device { chip, hardware, name } = Device::parse(&row.description);
    let hardware_number: Option<u32> = hardware.parse().ok();
    let is_local = LOCAL_CHIPS.contains(&chip.as_str())
        || (chip.starts_with("GIC") && hardware_number.is_some_and(|n| n < FIRST_SHARED_ON_ARM));
    let kind = if !is_local {
        Kind::DeviceInterrupt
    } else if name.contains("timer") {
        Kind::Tick
    } else if hardware == "-ipi" || name.starts_with("IPI") {
        Kind::SystemInterrupt
    } else {
        Kind::OtherInterrupt
    };
    Cause { kind, number: Some(number), name, detail: chip }
}

/// The description of a numbered interrupt: `PCI-MSIX-0000:00:05.0   1-edge      virtio4-input`, or on
/// other architectures `GICv3  27 Level     arch_timer`.
#[derive(Debug, PartialEq, Eq)]
struct Device {
    chip: String,
    /// The number within the chip, on x86 with the type.
    hardware: String,
    /// The handlers, separated by commas; empty without one.
    name: String,
}

impl Device {
    fn parse(description: &str) -> Device {
        let words: Vec<&str> = description.split_whitespace().collect();
        let is_number = |word: &&str| word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        // Chips have names of one or two words.
        let number = (1..=2).find(|&at| words.get(at).is_some_and(is_number));
        let (chip, rest) = words.split_at(number.unwrap_or(1).min(words.len()));
        let (hardware, rest) = match (number, rest) {
            (Some(_), [hardware, rest @ ..]) => (*hardware, rest),
            _ => ("", rest),
        };
        let name = match rest {
            [trigger, name @ ..] if trigger.starts_with("Level") || trigger.starts_with("Edge") => {
                name
            }
            _ => rest,
        };
        Device { chip: chip.join(" "), hardware: hardware.to_owned(), name: name.join(" ") }
    }
}

fn softirq(label: &str, _: &Row) -> Cause {
    let kind = if TICK_SOFTIRQS.contains(&label) { Kind::TickSoftirq } else { Kind::Softirq };
    Cause { kind, number: None, name: label.to_owned(), detail: String::new() }
}

fn thread_growth(owners: &[Owner], earlier: &Sample, later: &Sample) -> Vec<Growth> {
    let mut growth = Vec::new();
    for (id, thread) in &later.threads {
        let before = earlier.threads.get(id);
        // A thread that the earlier sample did not have has started since.
        let start = before
            .map(|before| before.usage)
            .or_else(|| earlier.elsewhere.get(id).copied())
            .unwrap_or_default();
        let Some(ran) = Ran::between(start, thread.usage) else { continue };
        growth.extend(growth_on(owners, *id, thread, thread.last_cpu, ran));
        if let Some(before) = before
            && before.last_cpu != thread.last_cpu
            && (before.allowed.contains(before.last_cpu)
                || thread.allowed.contains(before.last_cpu))
        {
            growth.extend(seen_before(owners, *id, before, ran));
        }
    }
    // Threads that have left the watched CPUs, and may not return to them.
    for (id, usage) in &later.elsewhere {
        if let Some(before) = earlier.threads.get(id)
            && before.allowed.contains(before.last_cpu)
            && let Some(ran) = Ran::between(before.usage, *usage)
        {
            growth.extend(seen_before(owners, *id, before, ran));
        }
    }
    growth
}

/// What a thread did between two samples.
#[derive(Debug, Clone, Copy)]
struct Ran {
    ticks: u64,
    switches: u64,
    involuntary: u64,
}

impl Ran {
    /// `None` if the thread did not run.
    fn between(earlier: Usage, later: Usage) -> Option<Ran> {
        let involuntary = later.involuntary.saturating_sub(earlier.involuntary);
        let voluntary = later.voluntary.saturating_sub(earlier.voluntary);
        let ran = Ran {
            ticks: later.ticks.saturating_sub(earlier.ticks),
            switches: voluntary.saturating_add(involuntary),
            involuntary,
        };
        if ran.ticks == 0 && ran.switches == 0 { None } else { Some(ran) }
    }
}

/// For the CPU on which a thread was before it went to another. The owner's involuntary switches count
/// once, for the other.
fn seen_before(owners: &[Owner], id: ThreadId, before: &Thread, ran: Ran) -> Option<Growth> {
    let growth = growth_on(owners, id, before, before.last_cpu, ran)?;
    match growth.what {
        What::Involuntary(_) => None,
        What::Foreign { .. } => Some(growth),
    }
}

/// `None` on CPUs without an owner.
fn growth_on(
    owners: &[Owner],
    id: ThreadId,
    thread: &Thread,
    cpu: usize,
    ran: Ran,
) -> Option<Growth> {
    let owner = owner_of(owners, cpu)?;
    if !thread.is_kernel && thread.cgroup.is_in(&owner.cgroup) {
        return Some(Growth { cpu, what: What::Involuntary(ran.involuntary) });
    }
    let cause = Cause {
        kind: thread_kind(owners, thread, cpu),
        number: Some(thread.process),
        name: thread.name.to_string(),
        detail: if thread.is_kernel { String::new() } else { cgroup_name(owners, thread) },
    };
    let what =
        What::Foreign { cause, count: ran.switches, ticks: ran.ticks, thread: Some(id.thread) };
    Some(Growth { cpu, what })
}

fn thread_kind(owners: &[Owner], thread: &Thread, cpu: usize) -> Kind {
    if thread.is_kernel {
        // Such a thread is bound to the CPU of its interrupt, but follows the interrupt.
        if thread.name.starts_with("irq/") {
            return Kind::InterruptThread;
        }
        let is_bound = thread.allowed.len() == 1 && thread.allowed.contains(cpu);
        return if is_bound { Kind::PerCpuThread } else { Kind::KernelThread };
    }
    let is_owners = owners.iter().any(|owner| thread.cgroup.is_in(&owner.cgroup));
    if !is_owners && !thread.cgroup.parts().any(is_of_a_pod) {
        Kind::HostProcess
    } else if thread.allowed.contains(cpu) {
        Kind::OtherContainer
    } else {
        Kind::FormerContainer
    }
}

/// Whether a part of a cgroup's path is Kubernetes' own: `kubepods`, with the systemd driver
/// `kubepods-burstable.slice`; where a path has only its end, a pod (`podUID`) or a container's scope.
fn is_of_a_pod(part: &str) -> bool {
    let is_slice = part.ends_with(".slice") && part.contains("kubepods");
    let is_pod = part.strip_prefix("pod").is_some_and(|uid| uid.len() == 36);
    let is_scope = part.ends_with(".scope")
        && (part.starts_with("cri-containerd-") || part.starts_with("crio-"));
    part == "kubepods" || is_slice || is_pod || is_scope
}

/// The container's name if it has exclusive CPUs, otherwise the cgroup.
fn cgroup_name(owners: &[Owner], thread: &Thread) -> String {
    match owners.iter().find(|owner| thread.cgroup.is_in(&owner.cgroup)) {
        Some(owner) => owner.name.clone(),
        None => format!("/{}", thread.cgroup.path),
    }
}

#[cfg(test)]
mod tests;
