//! Where on the node the plugin's pod is.

use std::path::PathBuf;

use crate::cgroup::Driver;

/// The node's directories and cgroup driver, for a DaemonSet's pod.
#[derive(Debug, Clone)]
pub struct Place {
    /// Stands for the node's root directory in `hostPath` volumes.
    pub root: PathBuf,
    /// The kubelet's directory: volumes and logs.
    pub directory: PathBuf,
    pub driver: Driver,
}
