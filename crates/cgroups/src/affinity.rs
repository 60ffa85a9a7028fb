//! Affinity masks of threads: a thread runs on the CPUs that both its mask and the cpuset of its cgroup
//! allow. A change stops at the first thread for which the kernel refuses it.

use cpuset::CpuSet;
use kernel::Kernel;
use std::io;
use std::path::Path;

/// Lets all threads of a process run on `cpus` instead of the mask that they have inherited.
pub fn widen(kernel: &dyn Kernel, processes: &Path, pid: u32, cpus: CpuSet) -> io::Result<()> {
    set(kernel, &processes.join(pid.to_string()).join("task"), cpus)
}

/// Keeps all threads of this process on `cpus`, where its cgroup cannot be written.
pub(super) fn confine_self(kernel: &dyn Kernel, cpus: CpuSet) -> io::Result<()> {
    set(kernel, Path::new("/proc/self/task"), cpus)
}

fn set(kernel: &dyn Kernel, tasks: &Path, cpus: CpuSet) -> io::Result<()> {
    for thread in kernel.entries(tasks)?.filter_map(|(name, _)| name.parse().ok()) {
        kernel.set_affinity(thread, cpus)?;
    }
    Ok(())
}
