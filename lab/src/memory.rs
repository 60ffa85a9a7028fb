//! The NUMA nodes that a process's memory may be on, and those that it is on.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use cpuset::{CpuSet, NodeSet};

use crate::{cgroup, files};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMemory {
    /// `cpuset.mems` of its cgroup; empty if nothing was written.
    pub allowed: NodeSet,
    /// Anonymous memory by node, in bytes: no page cache, no program.
    pub anonymous: BTreeMap<usize, u64>,
}

impl ProcessMemory {
    pub fn of(pid: u32) -> Result<Self> {
        let path = cgroup::of_process(pid, "cpuset")?.join("cpuset.mems");
        let allowed = nodes(&files::read_value(&path)?)
            .with_context(|| format!("unexpected {}", path.display()))?;
        let maps = files::read(Path::new(&format!("/proc/{pid}/numa_maps")))?;
        let anonymous = anonymous(&maps)
            .with_context(|| format!("unexpected numa_maps of process {pid}: {maps}"))?;
        Ok(Self { allowed, anonymous })
    }

    /// Anonymous memory in bytes.
    pub fn total(&self) -> u64 {
        self.anonymous.values().sum()
    }

    /// The nodes with anonymous memory.
    pub fn used(&self) -> NodeSet {
        self.anonymous.keys().copied().collect()
    }
}

/// Node lists have the format of CPU lists.
fn nodes(list: &str) -> Result<NodeSet> {
    let list: CpuSet = list.parse()?;
    Ok(list.iter().collect())
}

/// The sums of `N0=16 N2=4 kernelpagesize_kB=4` over all mappings without a file. `None` if a line
/// is not like that.
///
/// Source: the kernel's `Documentation/filesystems/proc.rst`.
fn anonymous(maps: &str) -> Option<BTreeMap<usize, u64>> {
    let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
    for line in maps.lines() {
        let has = |name: &str| line.split(' ').any(|word| word.starts_with(name));
        if !has("anon=") || has("file=") {
            continue;
        }
        let fields: Vec<(&str, &str)> =
            line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let (_, kib) = fields.iter().find(|(name, _)| *name == "kernelpagesize_kB")?;
        let page: u64 = kib.parse::<u64>().ok()? * 1024;
        for (name, pages) in fields {
            let Some(node) = name.strip_prefix('N').and_then(|node| node.parse::<usize>().ok())
            else {
                continue;
            };
            *bytes.entry(node).or_default() += pages.parse::<u64>().ok()? * page;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_memory_counts() {
        let maps = "\
00400000 default file=/bin/probe mapped=3 mapmax=2 active=0 N1=3 kernelpagesize_kB=4
00600000 default file=/bin/probe anon=1 dirty=1 N1=1 kernelpagesize_kB=4
01c00000 default heap anon=2 dirty=2 active=0 N0=2 kernelpagesize_kB=4
7f0000000000 default anon=1025 dirty=1025 active=0 N0=1024 N2=1 kernelpagesize_kB=4
7fff00000000 default stack anon=3 dirty=3 N2=3 kernelpagesize_kB=4
7fff10000000 default
";
        let expected = BTreeMap::from([(0_usize, 1026 * 4096_u64), (2, 4 * 4096)]);
        assert_eq!(anonymous(maps), Some(expected));
        assert_eq!(anonymous("7f0000000000 default anon=1 N0=1\n"), None);
        assert_eq!(nodes("0,2-3").unwrap(), NodeSet::from_iter([0, 2, 3]));
        assert_eq!(nodes("").unwrap(), NodeSet::EMPTY);
    }
}
