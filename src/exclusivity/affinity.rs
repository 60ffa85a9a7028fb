//! A thread's own affinity mask, a second filter beside the cpuset of its cgroup. A change ends at
//! the first thread that the kernel refuses.

use crate::cpuset::CpuSet;
use nix::sched::{self, sched_setaffinity};
use nix::unistd::Pid;
use std::path::Path;
use std::{fs, io};

/// Lets all threads of a process run on `cpus` instead of an inherited mask.
pub fn widen(processes: &Path, pid: u32, cpus: CpuSet) -> io::Result<()> {
    set(&processes.join(pid.to_string()).join("task"), cpus)
}

/// Keeps all threads of this process on `cpus`, where its cgroup cannot be written.
pub(super) fn confine_self(cpus: CpuSet) -> io::Result<()> {
    set(Path::new("/proc/self/task"), cpus)
}

fn set(tasks: &Path, cpus: CpuSet) -> io::Result<()> {
    let mut mask = sched::CpuSet::new();
    for cpu in cpus.iter().filter(|&cpu| cpu < sched::CpuSet::count()) {
        mask.set(cpu)?;
    }
    for task in fs::read_dir(tasks)? {
        let name = task?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw);
        if let Some(id) = id {
            sched_setaffinity(id, &mask)?;
        }
    }
    Ok(())
}
