//! What the daemon is started with, and why it may not start.

use crate::checkpoint::StateError;
use crate::config::{ConfigError, NodeIdentity};
use crate::topology::{TopologyError, sysfs};
use std::path::PathBuf;

/// Where the daemon finds and keeps things, and on which node it is.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The node.
    pub node: NodeIdentity,
    /// The configuration file; `None` if the runtime hands the configuration over.
    pub config: Option<PathBuf>,
    /// The directory of the state file.
    pub state_dir: PathBuf,
    /// Where the machine is read from, `/sys` as a rule.
    pub sysfs_root: PathBuf,
    /// Where control groups are, `/sys/fs/cgroup` as a rule.
    pub cgroup_root: PathBuf,
    /// Where processes are, `/proc` as a rule.
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
