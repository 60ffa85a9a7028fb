//! Writes a machine's files as Linux shows them in sysfs.

use cpuset::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology::{CoreKind, Cpu, Facts};

/// Files by their path below `/sys`. A path that ends in `/` is a directory.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The size of every uncore cache that [`files`] writes.
pub(crate) const CACHE_BYTES: u64 = 32 << 20;

/// The memory of every node that [`files`] writes.
pub(crate) const NODE_BYTES: u64 = 16 << 30;

/// How many huge pages of 2 MiB [`files`] writes for a node.
pub(crate) fn huge_pages(node: usize) -> u64 {
    512 + node as u64
}

/// The files that Linux shows on this machine: offline CPUs have no topology and caches, but keep
/// the link to their node.
pub(crate) fn files(facts: &Facts) -> Files {
    let mut files = Files::new();
    let mut put = |path: String, text: String| files.insert(path, format!("{text}\n").into_bytes());
    let system = "devices/system";
    let online = set(facts.cpus.iter().map(|cpu| cpu.id));
    let offline = set(facts.offline.iter().map(|cpu| cpu.id));
    for (name, cpus) in
        [("online", online), ("present", online | offline), ("isolated", facts.isolated)]
    {
        put(format!("{system}/cpu/{name}"), cpus.to_string());
    }
    // A kernel built for more CPUs lists these as well; the reader must ignore them.
    put(format!("{system}/cpu/offline"), format!("{offline},4096-8191"));
    for cpu in &facts.cpus {
        let dir = format!("{system}/cpu/cpu{}", cpu.id);
        let with = |same: &dyn Fn(&Cpu) -> bool| {
            set(facts.cpus.iter().filter(|other| same(other)).map(|other| other.id)).to_string()
        };
        let core = with(&|other| other.core == cpu.core);
        put(format!("{dir}/topology/physical_package_id"), cpu.socket.to_string());
        put(
            format!("{dir}/topology/die_id"),
            cpu.die.map_or("-1".to_owned(), |die| die.to_string()),
        );
        // Core ids are not unique in the machine, as on real hardware.
        put(format!("{dir}/topology/core_id"), (cpu.core % 4).to_string());
        put(format!("{dir}/topology/core_cpus_list"), core.clone());
        put(format!("{dir}/topology/package_cpus_list"), with(&|other| other.socket == cpu.socket));
        let uncore = with(&|other| other.uncore == cpu.uncore);
        let uncore_size = format!("{}K", CACHE_BYTES >> 10);
        let caches = [
            (1, "Data", "32K", &core),
            (1, "Instruction", "32K", &core),
            (2, "Unified", "1024K", &core),
            (3, "Unified", &uncore_size, &uncore),
        ];
        for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
            let dir = format!("{dir}/cache/index{index}");
            put(format!("{dir}/level"), level.to_string());
            put(format!("{dir}/type"), kind.to_owned());
            put(format!("{dir}/size"), size.to_owned());
            put(format!("{dir}/shared_cpu_list"), shared.clone());
        }
        put(format!("{dir}/node{}/", cpu.numa), String::new());
    }
    for cpu in &facts.offline {
        let dir = format!("{system}/cpu/cpu{}", cpu.id);
        put(format!("{dir}/online"), "0".to_owned());
        if let Some(numa) = cpu.numa {
            put(format!("{dir}/node{numa}/"), String::new());
        }
    }
    for node in &facts.nodes {
        let dir = format!("{system}/node/node{}", node.id);
        let cpus = set(facts.cpus.iter().filter(|cpu| cpu.numa == node.id).map(|cpu| cpu.id));
        put(format!("{dir}/cpulist"), cpus.to_string());
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        put(format!("{dir}/distance"), distances.join(" "));
        put(
            format!("{dir}/meminfo"),
            format!(
                "Node {0} MemTotal:  {1} kB\nNode {0} MemFree:  1 kB",
                node.id,
                NODE_BYTES >> 10
            ),
        );
        for (kilobytes, pages) in [(2048, huge_pages(node.id)), (1 << 20, 0)] {
            put(
                format!("{dir}/hugepages/hugepages-{kilobytes}kB/nr_hugepages"),
                format!("{pages}\n"),
            );
        }
    }
    for (unit, kind) in [("cpu_core", CoreKind::Performance), ("cpu_atom", CoreKind::Efficient)] {
        let cpus = set(facts.cpus.iter().filter(|cpu| cpu.kind == Some(kind)).map(|cpu| cpu.id));
        if !cpus.is_empty() {
            put(format!("devices/{unit}/cpus"), cpus.to_string());
        }
    }
    files
}

/// An empty directory for a tree of files, in memory if possible: thousands of small files are slow
/// on disks.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Writes the files below `root`.
pub(crate) fn write(root: &Path, files: &Files) {
    for (path, bytes) in files {
        let at = root.join(path);
        if path.ends_with('/') {
            fs::create_dir_all(&at).unwrap();
        } else {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, bytes).unwrap();
        }
    }
}

fn set(cpus: impl Iterator<Item = usize>) -> CpuSet {
    cpus.map(|cpu| CpuSet::of(cpu).unwrap()).collect()
}
