//! How one containerd is set up.

use std::path::PathBuf;

use super::version::Version;
use crate::cgroup::Driver;

/// Where one containerd lives and how it is set up.
#[derive(Debug, Clone)]
pub struct Setup {
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
    /// What stands for the node's root directory: `/` itself in a virtual server, on a machine that
    /// is not ours alone a directory in `run`. NRI's socket and plugins, and containerd's
    /// configuration, are at their usual places below it.
    pub root: PathBuf,
    /// `overlayfs`, or `native` where overlays cannot be stacked.
    pub snapshotter: &'static str,
    /// cgroup driver.
    pub driver: Driver,
    /// Whether this machine may not lower OOM scores (a container or virtual machine without
    /// CAP_SYS_RESOURCE).
    pub restrict_oom_score: bool,
}
