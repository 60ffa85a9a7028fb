//! What this machine is, as far as it matters for latencies, and how its CPU time is spent.

use std::path::Path;

use anyhow::{Context, Result};
use cgroups::CgroupVersion;
use cpuset::CpuSet;
use kernel::{Kernel, Linux};
use serde::Serialize;

use crate::tree::Cpus;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) model: String,
    pub(crate) cpus: usize,
    pub(crate) smt: bool,
    pub(crate) kernel: String,
    pub(crate) cgroup: &'static str,
    pub(crate) platform: Platform,
    /// None if the kernel does not control frequencies.
    pub(crate) governor: Option<String>,
    pub(crate) clock: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Platform {
    /// No sign of a hypervisor.
    Hardware,
    Virtual,
    /// Instructions are translated by software.
    Emulated,
}

impl Machine {
    pub(crate) fn read(version: CgroupVersion, cpus: CpuSet) -> Machine {
        let clocks = Path::new("/sys/devices/system/clocksource/clocksource0");
        let cpuinfo = text(Path::new("/proc/cpuinfo"));
        let field = |name: &str| {
            let line =
                cpuinfo.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let model = field("model name").unwrap_or_default();
        let flags = field("flags").unwrap_or_default();
        let platform = platform(
            &model,
            flags.split(' ').any(|flag| flag == "hypervisor"),
            &text(Path::new("/sys/class/dmi/id/sys_vendor")),
            &text(&clocks.join("available_clocksource")),
        );
        let first = cpus.first().unwrap_or_default();
        let cpu = Path::new("/sys/devices/system/cpu").join(format!("cpu{first}"));
        let governor = text(&cpu.join("cpufreq/scaling_governor"));
        Machine {
            model,
            cpus: cpus.len(),
            smt: siblings(first).len() > 1,
            kernel: text(Path::new("/proc/sys/kernel/osrelease")),
            cgroup: match version {
                CgroupVersion::V1 => "v1",
                CgroupVersion::V2 => "v2",
            },
            platform,
            governor: if governor.is_empty() { None } else { Some(governor) },
            clock: text(&clocks.join("current_clocksource")),
        }
    }
}

fn platform(model: &str, hypervisor: bool, vendor: &str, clocks: &str) -> Platform {
    let qemu = model.contains("QEMU") || vendor.contains("QEMU");
    // KVM offers its clock to every guest.
    if model.contains("TCG") || qemu && !clocks.contains("kvm-clock") {
        return Platform::Emulated;
    }
    if hypervisor || qemu { Platform::Virtual } else { Platform::Hardware }
}

/// The CPUs of a CPU's core; only itself if the kernel does not say.
fn siblings(cpu: usize) -> CpuSet {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let own = CpuSet::of(cpu).unwrap_or_default();
    text(Path::new(&file)).parse().unwrap_or(own) | own
}

/// Chooses CPUs for the measured program: two, on the last core if it has two threads, else the last two;
/// one if others would get none. The first CPU has most of the interrupts.
pub(crate) fn choose(usable: CpuSet) -> Result<Cpus> {
    let isolated = text(Path::new("/sys/devices/system/cpu/isolated")).parse().unwrap_or_default();
    choose_from(usable - isolated, siblings)
}

fn choose_from(all: CpuSet, siblings: impl Fn(usize) -> CpuSet) -> Result<Cpus> {
    let last = all.iter().last().context("there are no CPUs to measure on")?;
    anyhow::ensure!(all.len() > 1, "there is only CPU {last}: neighbours need another one");
    let mut exclusive = CpuSet::of(last)?;
    if all.len() > 2 {
        let core = (siblings(last) & all) - exclusive;
        let other = core.iter().last().or((all - exclusive).iter().last());
        exclusive |= CpuSet::of(other.context("there are no CPUs to measure on")?)?;
    }
    Ok(Cpus { all, exclusive })
}

/// How the machine's CPU time was spent since its start, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) busy: u64,
    /// Taken by the hypervisor while a CPU had work.
    pub(crate) stolen: u64,
    pub(crate) total: u64,
    /// Online CPUs.
    pub(crate) cpus: usize,
}

impl Spent {
    pub(crate) fn now() -> Result<Spent> {
        let stat = Linux.text(Path::new("/proc/stat")).context("cannot read /proc/stat")?;
        parse(&stat).context("/proc/stat has another format")
    }

    pub(crate) fn since(self, start: Spent) -> Spent {
        Spent {
            busy: self.busy.saturating_sub(start.busy),
            stolen: self.stolen.saturating_sub(start.stolen),
            total: self.total.saturating_sub(start.total).max(1),
            cpus: self.cpus,
        }
    }
}

fn parse(stat: &str) -> Option<Spent> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = fields[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    Some(Spent { busy, stolen, total: busy + idle + iowait + stolen, cpus })
}

/// CPU time of a process, in ticks.
pub(crate) fn ticks(process: u32) -> Result<u64> {
    let stat = Linux.text(Path::new(&format!("/proc/{process}/stat")))?;
    ticks_of(&stat).context("/proc/PID/stat has another format")
}

fn ticks_of(stat: &str) -> Option<u64> {
    // The program's name, in parentheses, can have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some(user + system)
}

/// Empty if the file cannot be read: each fact that it may have is optional.
fn text(file: &Path) -> String {
    Linux.text(file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_and_virtual_machines_are_told_apart() {
        for (model, hypervisor, vendor, clocks, expected) in [
            ("AMD EPYC 9654", false, "Dell Inc.", "tsc hpet acpi_pm", Platform::Hardware),
            ("AMD EPYC", true, "", "kvm-clock tsc", Platform::Virtual),
            ("Intel Xeon", true, "QEMU", "kvm-clock tsc", Platform::Virtual),
            ("QEMU Virtual CPU version 2.5+", true, "QEMU", "kvm-clock tsc", Platform::Virtual),
            ("Intel Xeon Processor (Skylake)", true, "QEMU", "tsc hpet", Platform::Emulated),
            ("QEMU TCG CPU version 2.5+", true, "", "tsc", Platform::Emulated),
        ] {
            assert_eq!(platform(model, hypervisor, vendor, clocks), expected, "{model}");
        }
    }

    #[test]
    fn the_measured_program_gets_a_core_or_the_last_cpus() {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let single = |cpu| CpuSet::of(cpu).unwrap();
        let paired = |cpu: usize| single(cpu) | single((cpu + 4) % 8);
        let chosen = |all: &str| choose_from(set(all), single).unwrap().exclusive;
        assert_eq!(chosen("0-1"), set("1"));
        assert_eq!(chosen("0-2"), set("1-2"));
        assert_eq!(choose_from(set("0-7"), paired).unwrap().exclusive, set("3,7"));
        assert_eq!(choose_from(set("0-2,4-7"), paired).unwrap().exclusive, set("6-7"));
        assert!(choose_from(set("3"), single).is_err());
    }

    #[test]
    fn cpu_times_are_read_from_proc() {
        let spent = parse("cpu  10 1 5 70 4 2 3 5 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n").unwrap();
        assert_eq!(spent, Spent { busy: 21, stolen: 5, total: 100, cpus: 1 });
        assert_eq!(parse("cpu  1 2\n"), None);
        assert_eq!(ticks_of("7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 0 0 20"), Some(42));
        assert!(Spent::now().unwrap().total > 0);
    }
}
