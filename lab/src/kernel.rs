//! What the kernel says about the machine and about itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cpuset::CpuSet;

use crate::files;

/// Mount point of the cgroup file system.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether the kernel has warned or oopsed since boot: its promises do not hold then.
///
/// Source: the kernel's `Documentation/admin-guide/tainted-kernels.rst`.
pub fn is_tainted() -> Result<bool> {
    const TAINTED: &str = "/proc/sys/kernel/tainted";
    const DIED: u64 = 1 << 7;
    const WARNED: u64 = 1 << 9;
    let text = files::read_value(Path::new(TAINTED))?;
    let flags: u64 = text.parse().with_context(|| format!("unexpected {TAINTED}: {text:?}"))?;
    Ok(flags & (DIED | WARNED) != 0)
}

/// The kernel's log.
pub fn log() -> String {
    let output = std::process::Command::new("dmesg").output();
    output.map_or_else(
        |error| format!("no kernel log: {error}"),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// The machine's CPUs that are `online`, `present` or `possible`.
pub fn cpus(which: &str) -> Result<CpuSet> {
    let path = format!("/sys/devices/system/cpu/{which}");
    let list = files::read_value(Path::new(&path))?;
    list.parse().with_context(|| format!("unexpected {path}: {list:?}"))
}

pub(crate) fn set_online(cpu: usize, online: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    files::write_value(Path::new(&path), if online { "1" } else { "0" })
}

/// In bytes: the kubelet's OOM scores depend on it.
pub(crate) fn memory() -> i64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    kib.map_or(1 << 30, |kib: i64| kib * 1024)
}
