//! Which rules a kernel follows, found by a few writes: versions do not say, because Linux and Debian
//! change stable series.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cgroups::KernelRules;

use crate::files::{make_directory, read_value, write_value};
use crate::kernel::CGROUPS;

/// Makes partitions of CPUs 1 and 2 in cgroups that it removes again.
pub(super) fn probe() -> Result<KernelRules> {
    let top = Path::new(CGROUPS).join("rules");
    let pod = top.join("pod");
    let (leaf, sibling) = (pod.join("leaf"), pod.join("sibling"));
    let write = |group: &Path, file: &str, value: &str| write_value(&group.join(file), value);
    let partition = || read_value(&leaf.join("cpuset.cpus.partition"));
    for group in [&top, &pod, &leaf, &sibling] {
        delegate(group.parent().context("a cgroup without parent")?)?;
        make_directory(group)?;
    }
    for group in [&top, &pod, &leaf] {
        write(group, "cpuset.cpus.exclusive", "1-2")?;
    }
    write(&sibling, "cpuset.cpus", "0-3")?;
    write(&leaf, "cpuset.cpus.partition", "root")?;
    let siblings_keep_cpus = partition()? == "root";
    if !siblings_keep_cpus {
        write(&sibling, "cpuset.cpus", "0,3")?;
        write(&leaf, "cpuset.cpus.partition", "root")?;
    }
    if partition()? != "root" {
        bail!("the kernel made no partition: {}", partition()?);
    }
    write(&pod, "cpuset.cpus.exclusive", "1")?;
    let follows = partition()? == "root";
    write(&leaf, "cpuset.cpus.partition", "member")?;
    for group in [&sibling, &leaf, &pod, &top] {
        fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))?;
    }
    match (siblings_keep_cpus, follows) {
        (false, false) => Ok(KernelRules::PartitionsEnd),
        (false, true) => Ok(KernelRules::PartitionsFollow),
        (true, true) => Ok(KernelRules::SiblingsKeepCpus),
        (true, false) => bail!("unknown rules: siblings keep CPUs, partitions do not follow"),
    }
}

pub(super) fn delegate(path: &Path) -> Result<()> {
    write_value(&path.join("cgroup.subtree_control"), "+cpuset")
}
