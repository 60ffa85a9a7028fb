//! The CPUs that threads may run on.

use std::fs;

use anyhow::{Context, Result};
use cpuset::CpuSet;
use nix::unistd::Pid;

/// Of the calling thread. The kernel also applies the cgroup's CPUs.
pub(crate) fn set(cpus: CpuSet) -> Result<()> {
    let mut mask = nix::sched::CpuSet::new();
    for cpu in cpus.iter() {
        mask.set(cpu).with_context(|| format!("CPU {cpu} has too high a number"))?;
    }
    nix::sched::sched_setaffinity(Pid::from_raw(0), &mask)
        .with_context(|| format!("cannot run on CPUs {cpus}"))
}

/// Of a process, from `/proc`; 0 is this one.
pub(crate) fn of(process: u32) -> Result<CpuSet> {
    let name = if process == 0 { "self".to_owned() } else { process.to_string() };
    let status = fs::read_to_string(format!("/proc/{name}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.context("the kernel does not report allowed CPUs")?.parse()?)
}
