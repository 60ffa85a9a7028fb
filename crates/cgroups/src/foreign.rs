//! Cpuset partitions of other programs, such as an administrator's cgroup or a systemd unit with
//! `CPUSetPartition=`. No other cgroup can run on their CPUs. This file only reads.
//!
//! A partition counts as this program's, or as left by it, if it is
//! * below the kubelet's cgroups (`kubepods`), where partitions come and go within milliseconds.
//!   Another program's partition there, such as that of a CRI-O hook, is a container that the caller
//!   knows;
//! * elsewhere, in a cgroup named after a container that has exclusive CPUs, or had them before a
//!   restart.
//!
//! CPUs that the kernel still holds for a removed cgroup are in no cgroup, so no partition has them.

use super::hierarchy::{CgroupVersion, EFFECTIVE, EXCLUSIVE_EFFECTIVE, Hierarchy};
use super::names::{is_named_after, is_of_pods};
use cpuset::{CgroupPath, CpuSet};
use std::collections::BTreeMap;

/// The topmost cgroups that are valid partitions of other programs, with their CPUs.
pub type ForeignPartitions = BTreeMap<CgroupPath, CpuSet>;

/// Finds the partitions of other programs. `expected` are the online CPUs that are in no partition of
/// this program: if the root cgroup has them all, this reads one file and none of `ids`. `ids` are the
/// runtime's ids of containers that may have a partition of this program.
pub fn foreign_partitions(
    on: &Hierarchy,
    expected: CpuSet,
    ids: impl Iterator<Item = String>,
) -> ForeignPartitions {
    let mut found = ForeignPartitions::new();
    if on.version() == CgroupVersion::V1 {
        return found;
    }
    let free = on.free();
    // The root always has CPUs: if it shows none, its file could not be read.
    if free.is_empty() || (expected - free).is_empty() {
        return found;
    }
    let ours: Vec<String> = ids.collect();
    for top in on.tops() {
        collect(on, top, &ours, &mut found);
    }
    found
}

fn collect(on: &Hierarchy, group: CgroupPath, ours: &[String], found: &mut ForeignPartitions) {
    if is_of_pods(&group) || ours.iter().any(|id| is_named_after(&group, id)) {
        return;
    }
    let files = on.partition(&group);
    if files.state.is_valid() {
        let cpus = cpus_of(on, &group);
        if !cpus.is_empty() {
            found.insert(group, cpus);
        }
        return;
    }
    // A partition below an ordinary cgroup gets its CPUs from the cgroup's exclusive ones.
    if !files.exclusive.is_empty() {
        for child in on.children(&group) {
            collect(on, child, ours, found);
        }
    }
}

/// All CPUs of a partition, including those of partitions in it.
fn cpus_of(on: &Hierarchy, group: &CgroupPath) -> CpuSet {
    on.cpus(group, EXCLUSIVE_EFFECTIVE).unwrap_or_else(|_| {
        // Linux before 6.7 has only `cpuset.cpus.effective`, without the CPUs of partitions in it.
        let inner = on.children(group).into_iter();
        let inner = inner.filter(|child| on.partition(child).state.is_valid());
        let inner: CpuSet = inner.map(|child| cpus_of(on, &child)).collect();
        on.cpus(group, EFFECTIVE).unwrap_or_default() | inner
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests make a copy of the kernel's files")]
mod tests {
    use super::super::hierarchy::{EXCLUSIVE, PARTITION};
    use super::*;
    use std::fs;
    use std::path::Path;

    const ID: &str = "c1";

    /// A cgroup with exclusive CPUs and this state.
    fn group(root: &Path, path: &str, cpus: &str, state: &str) {
        fs::create_dir_all(root.join(path)).unwrap();
        for (file, text) in [(EXCLUSIVE, cpus), (EXCLUSIVE_EFFECTIVE, cpus), (PARTITION, state)] {
            fs::write(root.join(path).join(file), format!("{text}\n")).unwrap();
        }
    }

    fn found(root: &Path) -> Vec<String> {
        let on = Hierarchy::open(root).unwrap();
        let found = foreign_partitions(&on, "0-15".parse().unwrap(), [ID.to_owned()].into_iter());
        found.iter().map(|(group, cpus)| format!("{group} {cpus}")).collect()
    }

    fn root(effective: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        fs::write(root.path().join(EFFECTIVE), format!("{effective}\n")).unwrap();
        root
    }

    #[test]
    fn a_partition_outside_kubepods_is_foreign_unless_its_name_is_a_containers_id() {
        let root = root("0-1");
        let at = root.path();
        group(at, "admin", "4-5", "root");
        group(at, "admin/inner", "5", "isolated");
        group(at, "system.slice", "6-7", "member");
        group(at, "system.slice/rt.service", "6-7", "isolated");
        group(at, "broken", "8", "root invalid (Cpu list in cpuset.cpus not exclusive)");
        group(at, "plain", "", "member");
        // Not read: the kernel makes no partition below a cgroup without exclusive CPUs.
        group(at, "plain/deep", "9", "root");
        group(at, "kubepods", "10-11", "member");
        group(at, "kubepods/pod1/left", "10", "root");
        group(at, "kubelet.slice", "12", "member");
        group(at, "kubelet.slice/kubelet-kubepods.slice/x", "12", "root");
        group(at, "elsewhere", "2-3,13", "member");
        group(at, &format!("elsewhere/{ID}"), "2", "root");
        group(at, &format!("elsewhere/crio-{ID}.scope"), "3", "root");
        group(at, "elsewhere/other", "13", "root");
        assert_eq!(found(at), ["admin 4-5", "elsewhere/other 13", "system.slice/rt.service 6-7"]);
    }

    #[test]
    fn no_cgroup_is_read_while_the_root_has_all_cpus() {
        let root = root("0-15");
        group(root.path(), "admin", "4-5", "root");
        assert_eq!(found(root.path()), [""; 0]);
        // Nor if the root's file cannot be read.
        fs::remove_file(root.path().join(EFFECTIVE)).unwrap();
        assert_eq!(found(root.path()), [""; 0]);
    }

    #[test]
    fn cpus_of_a_removed_cgroup_are_in_no_foreign_partition() {
        let root = root("0-3,6-15");
        group(root.path(), "admin", "", "member");
        assert_eq!(found(root.path()), [""; 0]);
    }

    #[test]
    fn partitions_are_found_without_the_file_of_effective_exclusive_cpus() {
        let root = root("0-3,8-15");
        for (path, effective) in [("admin", "4-5"), ("admin/inner", "6-7"), ("admin/plain", "4-5")]
        {
            fs::create_dir_all(root.path().join(path)).unwrap();
            fs::write(root.path().join(path).join(EFFECTIVE), format!("{effective}\n")).unwrap();
            let state = if path == "admin/plain" { "member" } else { "root" };
            fs::write(root.path().join(path).join(PARTITION), format!("{state}\n")).unwrap();
        }
        assert_eq!(found(root.path()), ["admin 4-7"]);
    }
}
