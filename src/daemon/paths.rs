//! [`Paths`] of the daemon, and why it may not start.

use crate::checkpoint::StateError;
use crate::config::{ConfigError, NodeIdentity};
use crate::topology::{TopologyError, sysfs};
use std::path::PathBuf;

/// The daemon's files, and its node.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The node.
    pub node: NodeIdentity,
    /// The configuration file; `None` if the runtime hands the configuration over.
    pub config: Option<PathBuf>,
    /// The directory of the state file.
    pub state_dir: PathBuf,
    /// Usually `/sys`.
    pub sysfs_root: PathBuf,
    /// Usually `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// Usually `/proc`.
    pub proc_root: PathBuf,
}

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] sysfs::ReadError),
    /// What the machine says of itself.
    #[error("the machine in {0} cannot be understood: {1}")]
    Facts(PathBuf, TopologyError),
}
