//! A process's own affinity mask, a second filter beside the cpuset of its group.

use crate::cpuset::CpuSet;
use nix::sched::{self, sched_setaffinity};
use nix::unistd::Pid;
use std::path::Path;
use std::{fs, io};

/// Lets all threads of a process run on `cpus`, as far as its group may; for a mask that it
/// inherited.
///
/// # Errors
/// What the kernel said for the first thread that it did not work for.
pub(super) fn widen(processes: &Path, pid: u32, cpus: CpuSet) -> io::Result<()> {
    let mut mask = sched::CpuSet::new();
    for cpu in cpus.iter().filter(|&cpu| cpu < sched::CpuSet::count()) {
        mask.set(cpu)?;
    }
    for task in fs::read_dir(processes.join(pid.to_string()).join("task"))? {
        let name = task?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw);
        if let Some(id) = id {
            sched_setaffinity(id, &mask)?;
        }
    }
    Ok(())
}
