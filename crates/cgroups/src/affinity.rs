//! A thread's own affinity mask, a second filter beside the cpuset of its cgroup. A change ends at
//! the first thread that the kernel refuses.

use cpuset::CpuSet;
use kernel::Kernel;
use std::io;
use std::path::Path;

/// Lets all threads of a process run on `cpus` instead of an inherited mask.
pub fn widen(kernel: &dyn Kernel, processes: &Path, pid: u32, cpus: CpuSet) -> io::Result<()> {
    set(kernel, &processes.join(pid.to_string()).join("task"), cpus)
}

/// Keeps all threads of this process on `cpus`, where its cgroup cannot be written.
pub(super) fn confine_self(kernel: &dyn Kernel, cpus: CpuSet) -> io::Result<()> {
    set(kernel, Path::new("/proc/self/task"), cpus)
}

fn set(kernel: &dyn Kernel, tasks: &Path, cpus: CpuSet) -> io::Result<()> {
    let entries = kernel.entries(tasks)?;
    for thread in entries.iter().filter_map(|(name, _)| name.parse().ok()) {
        kernel.set_affinity(thread, cpus)?;
    }
    Ok(())
}
