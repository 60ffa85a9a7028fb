//! [`Paths`]: the daemon's files, and why it cannot start with them.

use config::{ConfigError, NodeIdentity, PodResources};
use exclusivity::{NoiseFiles, quiet_roots};
use quiet::Roots;
use state::checkpoint::StateError;
use std::path::PathBuf;
use topology::{TopologyError, sysfs};
#[derive(Debug, Clone)]
pub struct Paths {
    pub node: NodeIdentity,
    /// The configuration file; `None` if the runtime hands the configuration over.
    pub config: Option<PathBuf>,
    /// The directory of the state file.
    pub state_dir: PathBuf,
    /// Where podresources are served if the configuration does not say where.
    pub pod_resources: Option<PodResources>,
    /// Usually `/sys`.
    pub sysfs_root: PathBuf,
    /// Usually `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// Usually `/proc`.
    pub proc_root: PathBuf,
    /// In a container: where the host's `/proc/irq`, `/sys` and `/run` are mounted, each below its path on
    /// the host. A container's own are read-only.
    pub host_root: Option<PathBuf>,
}

impl Paths {
    /// The files of interrupts and latency knobs.
    pub fn quiet_roots(&self) -> Roots {
        quiet_roots(self.host_root.as_deref(), &self.proc_root, &self.sysfs_root)
    }

    /// The files that say what runs or fires on which CPUs.
    pub(super) fn noise_files(&self) -> NoiseFiles {
        let host = self.host_root.as_ref().map(|host| host.join("proc"));
        NoiseFiles::new(&self.proc_root, host.as_deref())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Machine(#[from] sysfs::ReadError),
    #[error("the machine in {0} cannot be understood: {1}")]
    Facts(PathBuf, TopologyError),
}
