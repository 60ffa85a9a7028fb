//! How the time of a write to the cgroup of a class depends on the number of containers below it.
//! With `exclusivity: groups`, each exclusive container costs such writes, and the kernel visits
//! every task below.
//!
//! An emulated VM cannot run a thousand containers. The kernel visits cgroups and tasks, so these
//! are created without containers, in the places that a kubelet and a runtime give them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cgroups::Hierarchy;
use cpuset::{CgroupPath, CpuSet};

use super::{ClassWrite, IN_A_POD};
use crate::cgroup;
use crate::command::command;
use crate::files::write_value;
use crate::kernel::{self, CGROUPS};
use crate::process;

/// Containers below the class, ascending.
const CONTAINERS: [usize; 4] = [1, 10, 100, 1000];
/// Stands for the cgroup of a class.
const CLASS: &str = "measured-class";
/// Writes per number of containers.
const WRITES: usize = 21;
/// CPUs that alternate between exclusive and shared.
const TAKEN: usize = 2;

/// Removes its cgroups at the end.
pub(crate) fn measure() -> Result<Vec<ClassWrite>> {
    let mut class = Class::new()?;
    let mut costs = Vec::new();
    for containers in CONTAINERS {
        while class.containers < containers {
            class.add_container()?;
        }
        let millis = class.median_write()?;
        costs.push(ClassWrite { containers, tasks: class.tasks.len(), millis });
    }
    class.remove()?;
    Ok(costs)
}

struct Class {
    /// The plugin's own code for writes.
    hierarchy: Hierarchy,
    path: CgroupPath,
    online: CpuSet,
    containers: usize,
    /// One in each leaf cgroup.
    tasks: Vec<Child>,
    cgroups: Vec<PathBuf>,
}

impl Class {
    fn new() -> Result<Self> {
        let hierarchy = Hierarchy::open(Path::new(CGROUPS)).context("no cgroup v2 cpusets")?;
        let path = CgroupPath::new(CLASS).context("invalid name of the class")?;
        let mut class = Self {
            hierarchy,
            path,
            online: kernel::cpus("online")?,
            containers: 0,
            tasks: Vec::new(),
            cgroups: Vec::new(),
        };
        class.add_parent(CLASS)?;
        Ok(class)
    }

    fn add_container(&mut self) -> Result<()> {
        let pod = format!("{CLASS}/pod{}", self.containers / IN_A_POD);
        if self.containers.is_multiple_of(IN_A_POD) {
            self.add_parent(&pod)?;
            self.add_task(&format!("{pod}/sandbox"))?;
        }
        let container = self.add_task(&format!("{pod}/c{}", self.containers))?;
        // As the runtime does for the plugin: all CPUs, once.
        write_value(&container.join("cpuset.cpus"), &self.online.to_string())?;
        self.containers += 1;
        Ok(())
    }

    /// A cgroup with child cgroups.
    fn add_parent(&mut self, name: &str) -> Result<()> {
        let cgroup = cgroup::add(name)?;
        write_value(&cgroup.join("cgroup.subtree_control"), "+cpuset")?;
        self.cgroups.push(cgroup);
        Ok(())
    }

    fn add_task(&mut self, name: &str) -> Result<PathBuf> {
        let cgroup = cgroup::add(name)?;
        self.cgroups.push(cgroup.clone());
        let task = command("sleep", ["infinity"]).spawn().context("cannot start a process")?;
        write_value(&cgroup.join("cgroup.procs"), &task.id().to_string())?;
        self.tasks.push(task);
        Ok(cgroup)
    }

    fn median_write(&self) -> Result<f64> {
        let rest = self.online.iter().skip(TAKEN).flat_map(CpuSet::of).collect();
        let mut times = Vec::new();
        // Each write changes the value: the kernel skips one that does not.
        for cpus in [rest, self.online].into_iter().cycle().take(WRITES) {
            let list = cpus.to_string();
            let start = Instant::now();
            self.hierarchy.write(&self.path, "cpuset.cpus", &list)?;
            times.push(start.elapsed());
            let last = self.tasks.last().context("the class is empty")?;
            let allowed = process::allowed(last.id())?;
            ensure!(allowed == cpus, "a task may run on {allowed}, its class has {cpus}");
        }
        times.sort_unstable();
        Ok(times[WRITES / 2].as_secs_f64() * 1000.0)
    }

    fn remove(mut self) -> Result<()> {
        for task in &mut self.tasks {
            task.kill().and_then(|()| task.wait()).context("cannot end a process")?;
        }
        for cgroup in self.cgroups.iter().rev() {
            fs::remove_dir(cgroup)
                .with_context(|| format!("cannot remove the cgroup {}", cgroup.display()))?;
        }
        Ok(())
    }
}
