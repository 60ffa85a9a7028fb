//! What the kernel says about the machine and about itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
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

const NODES: &str = "/sys/devices/system/node";

/// Memory of a NUMA node in bytes, huge pages included.
pub(crate) fn memory_of_node(node: usize) -> Result<u64> {
    let path = Path::new(NODES).join(format!("node{node}/meminfo"));
    let text = files::read(&path)?;
    let kib = text.lines().find_map(|line| {
        let (_, rest) = line.split_once("MemTotal:")?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.map(|kib| kib * 1024).with_context(|| format!("no MemTotal in {}", path.display()))
}

/// Sizes of huge pages in bytes, ascending.
pub(crate) fn huge_page_sizes() -> Vec<u64> {
    let entries = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let size = |name: &str| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
        Some(kib * 1024)
    };
    let mut sizes: Vec<u64> =
        entries.filter_map(|entry| size(entry.file_name().to_str()?)).collect();
    sizes.sort_unstable();
    sizes
}

/// A NUMA node's pool of huge pages of 2 MiB.
fn huge_pages(node: usize) -> PathBuf {
    Path::new(NODES).join(format!("node{node}/hugepages/hugepages-2048kB"))
}

/// The kernel makes fewer pages, without an error, if the node's memory is fragmented.
pub(crate) fn set_huge_pages(node: usize, pages: u64) -> Result<()> {
    let path = huge_pages(node).join("nr_hugepages");
    files::write_value(&path, &pages.to_string())?;
    let made = files::read_value(&path)?;
    ensure!(made == pages.to_string(), "node {node} has {made} huge pages, expected {pages}");
    Ok(())
}

/// How many huge pages of 2 MiB of a NUMA node no process uses.
pub(crate) fn free_huge_pages(node: usize) -> Result<u64> {
    let path = huge_pages(node).join("free_hugepages");
    let text = files::read_value(&path)?;
    text.parse().with_context(|| format!("unexpected {}: {text:?}", path.display()))
}
