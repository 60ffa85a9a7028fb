//! [`NoiseFiles`]: the files from which [`noise`] is read on a node, in a container or not.

use cpuset::CpuSet;
use kernel::Kernel;
use noise::{Roots, Sample, SampleError};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct NoiseFiles {
    roots: Roots,
    /// With a directory for each interrupt.
    irq: PathBuf,
}

impl NoiseFiles {
    /// `proc` is usually `/proc`. `host` is where the host's `/proc/interrupts` may be mounted into a
    /// container; without it, that of `proc` is used.
    pub fn new(proc: &Path, host: Option<&Path>) -> NoiseFiles {
        let mounted = host.map(|host| host.join("interrupts")).filter(|file| file.exists());
        let roots = Roots {
            interrupts: mounted.unwrap_or_else(|| proc.join("interrupts")),
            softirqs: proc.join("softirqs"),
            processes: proc.to_owned(),
            cgroup_namespace: None,
        };
        NoiseFiles { roots, irq: proc.join("irq") }
    }

    pub fn sample(&self, kernel: &dyn Kernel, cpus: CpuSet) -> Result<Sample, SampleError> {
        Sample::take(kernel, &self.roots, cpus)
    }

    /// Interrupts that the kernel manages itself: their affinity has no mode for writing. Kernels that
    /// only fail the write (EIO) are not recognised, as trying it would change the node.
    pub fn unmovable(&self) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::new();
        for entry in fs::read_dir(&self.irq).into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let file = fs::metadata(entry.path().join("smp_affinity_list"));
            if let (Some(number), Ok(file)) = (number, file)
                && file.permissions().mode() & 0o222 == 0
            {
                numbers.insert(number);
            }
        }
        numbers
    }
}
