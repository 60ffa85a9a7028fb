//! [`Isolation`]: what this kernel keeps away from isolated cpuset partitions, as far as it can be read
//! back.
//!
//! All kernels switch load balancing off there, and since Linux 6.7 the kernel keeps unbound workqueues off
//! them. Before Linux 7.0, each change of such a partition overwrites the affinity of unbound kernel
//! threads with one mask for all of them; since then they follow the housekeeping CPUs, which isolated
//! partitions change, and keep their own NUMA nodes.

use cpuset::CpuSet;
use kernel::Kernel;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Relative to `/sys`.
const WORKQUEUES: &str = "devices/virtual/workqueue";

/// Where to read.
#[derive(Debug, Clone)]
pub struct IsolationFiles {
    /// Usually `/sys/fs/cgroup`.
    pub cgroups: PathBuf,
    /// Usually `/sys`.
    pub sys: PathBuf,
    /// Usually `/proc`.
    pub proc: PathBuf,
}

/// What the kernel says. A file that cannot be read is `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Isolation {
    /// `cpuset.cpus.isolated` of the root cgroup.
    pub isolated: Option<CpuSet>,
    /// Where unbound workqueues run.
    pub workqueues: Option<CpuSet>,
    /// The CPUs that the kernel itself keeps unbound workqueues off.
    pub workqueues_isolated: Option<CpuSet>,
    /// Whether unbound kernel threads follow the housekeeping CPUs; `null` if the version is unknown.
    pub follows_housekeeping: Option<bool>,
}

impl IsolationFiles {
    pub fn read(&self, kernel: &dyn Kernel) -> Isolation {
        let workqueues = self.sys.join(WORKQUEUES);
        let mask = |file: &str| {
            let text = kernel.text(&workqueues.join(file)).ok()?;
            CpuSet::from_mask(&text).ok()
        };
        let isolated = kernel.text(&self.cgroups.join("cpuset.cpus.isolated")).ok();
        let release = kernel.text(&self.proc.join("sys/kernel/osrelease")).ok();
        Isolation {
            isolated: isolated.and_then(|list| list.parse().ok()),
            workqueues: mask("cpumask"),
            workqueues_isolated: mask("cpumask_isolated"),
            follows_housekeeping: release
                .and_then(|release| major(&release))
                .map(|major| major >= 7),
        }
    }
}

impl Isolation {
    /// A sentence for each fact.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        let isolated = self.isolated.unwrap_or_default();
        facts.push(match self.isolated {
            None => "this kernel does not say which CPUs are isolated".to_owned(),
            Some(_) => {
                format!("isolated: {} (no load balancing)", wording::or_none(isolated))
            }
        });
        if let Some(workqueues) = self.workqueues {
            let on = workqueues & isolated;
            facts.push(if !on.is_empty() {
                format!("unbound kernel workers may still run on {}", wording::cpus(on))
            } else if self.workqueues_isolated.is_some() {
                "the kernel keeps unbound kernel workers off them".to_owned()
            } else {
                "unbound kernel workers are kept off them by the cpumask of workqueues".to_owned()
            });
        }
        facts.extend(self.follows_housekeeping.map(|follows| {
            let text = if follows {
                "unbound kernel threads stay off them, and on their own NUMA nodes"
            } else {
                "before Linux 7.0, each change of an isolated partition overwrites the affinity of unbound kernel \
                 threads: kswapd and kcompactd lose their NUMA nodes"
            };
            text.to_owned()
        }));
        facts
    }
}

/// The first number of a release such as `6.12.30-generic`.
fn major(release: &str) -> Option<u32> {
    release.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Linux;
    use std::fs;

    fn files(release: &str, isolated: &str, cpumask: &str) -> (tempfile::TempDir, IsolationFiles) {
        let root = tempfile::tempdir().unwrap();
        let [cgroups, sys, proc] = ["cgroup", "sys", "proc"].map(|name| root.path().join(name));
        for (path, text) in [
            (cgroups.join("cpuset.cpus.isolated"), isolated),
            (sys.join(WORKQUEUES).join("cpumask"), cpumask),
            (sys.join(WORKQUEUES).join("cpumask_isolated"), "0"),
            (proc.join("sys/kernel/osrelease"), release),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        (root, IsolationFiles { cgroups, sys, proc })
    }

    #[test]
    fn facts_depend_on_the_version_and_on_what_reads_back() {
        let (_root, old) = files("6.12.30-generic", "2-3", "f3");
        let facts = old.read(&Linux).facts();
        assert_eq!(facts[0], "isolated: 2-3 (no load balancing)");
        assert_eq!(facts[1], "the kernel keeps unbound kernel workers off them");
        assert!(facts[2].contains("kswapd"), "{facts:?}");
        let (_root, new) = files("7.0.1", "2-3", "f7");
        let facts = new.read(&Linux).facts();
        assert_eq!(facts[1], "unbound kernel workers may still run on CPU 2");
        assert!(facts[2].starts_with("unbound kernel threads stay off them"), "{facts:?}");
    }

    #[test]
    fn missing_files_are_unknown() {
        let nowhere = PathBuf::from("/nowhere");
        let files =
            IsolationFiles { cgroups: nowhere.clone(), sys: nowhere.clone(), proc: nowhere };
        let isolation = files.read(&Linux);
        assert_eq!(isolation, Isolation::default());
        assert_eq!(isolation.facts(), ["this kernel does not say which CPUs are isolated"]);
    }
}
