//! Where on the node the plugin's pod is.

use std::path::PathBuf;

use crate::cgroup::Driver;

/// The node, as far as a DaemonSet's pod touches it.
#[derive(Debug, Clone)]
pub struct Place {
    /// What stands for the node's root directory in `hostPath` volumes.
    pub root: PathBuf,
    /// The kubelet's own directory: volumes and logs.
    pub directory: PathBuf,
    /// How cgroups are made.
    pub driver: Driver,
}
