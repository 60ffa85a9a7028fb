//! How one containerd is set up.

use std::path::PathBuf;

use super::version::Version;
use crate::cgroup::Driver;

/// Where one containerd lives and how it is set up.
#[derive(Debug, Clone)]
pub struct ContainerdSetup {
    /// Version of the programs, which determines the configuration format.
    pub version: Version,
    /// Directory with `containerd`, `containerd-shim-runc-v2` and `ctr`.
    pub programs: PathBuf,
    pub runc: PathBuf,
    /// Images and snapshots. Removed at the end.
    pub data: PathBuf,
    /// Sockets and state; a short path, because the names of sockets are limited. Removed at the
    /// end.
    pub run: PathBuf,
    /// Stands for the node's root directory: `/` in a virtual machine, a directory in `run` on the
    /// host. NRI's socket and plugins and containerd's configuration are at their default paths
    /// below it.
    pub root: PathBuf,
    /// `overlayfs`, or `native` where overlays cannot be stacked.
    pub snapshotter: &'static str,
    /// cgroup driver.
    pub driver: Driver,
    /// For machines that cannot lower OOM scores (without CAP_SYS_RESOURCE).
    pub restrict_oom_score: bool,
}
