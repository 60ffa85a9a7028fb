//! The CPUs that threads may run on.

use std::path::Path;

use anyhow::{Context, Result};
use cpuset::CpuSet;
use kernel::{Kernel, Linux};

/// Of the calling thread. The kernel also applies the cgroup's CPUs.
pub(crate) fn set(cpus: CpuSet) -> Result<()> {
    Linux.set_affinity(0, cpus).with_context(|| format!("cannot run on CPUs {cpus}"))
}

pub(crate) fn of(process: u32) -> Result<CpuSet> {
    let status = Linux.text(Path::new(&format!("/proc/{process}/status")))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.context("the kernel does not report allowed CPUs")?.parse()?)
}
