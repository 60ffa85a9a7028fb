//! What the host sends to a guest and receives from it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cgroup::Driver;
use crate::containerd::Version;
use crate::task::Task;

/// Software of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, serde::Serialize, serde::Deserialize)]
pub struct Software {
    /// containerd version
    #[arg(long = "runtime", value_enum, default_value_t = Version::V2_1)]
    pub version: Version,
    /// OCI runtime
    #[arg(long, value_enum, default_value_t = Oci::Runc)]
    pub oci: Oci,
    /// cgroup driver; with systemd, systemd is the init process
    #[arg(long, value_enum, default_value_t = Driver::Cgroupfs)]
    pub driver: Driver,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
pub enum Oci {
    /// containerd's default
    Runc,
    /// Smaller and faster
    Crun,
}

impl From<Version> for Software {
    fn from(version: Version) -> Self {
        Self { version, oci: Oci::Runc, driver: Driver::Cgroupfs }
    }
}

/// The guest's root has containerd 1.7 here and the distribution's 2.1 in /usr/bin.
pub(crate) const CONTAINERD_1_7: &str = "/opt/containerd-1.7";

pub(crate) fn programs(version: Version) -> &'static str {
    match version {
        Version::V1_7 => CONTAINERD_1_7,
        Version::V2_1 => "/usr/bin",
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub software: Software,
    pub offline: Vec<usize>,
    /// Each starts on an empty node.
    pub tasks: Vec<Task>,
    /// The plugin's configuration if a shell follows.
    pub shell: Option<String>,
}

/// A message from the guest, one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// containerd is ready.
    Booted {
        /// Seconds since the kernel began, by the guest's clock.
        uptime: f64,
    },
    Progress(String),
    /// The result of a task; the next one follows.
    Done(Value),
    /// A task failed; the next one follows.
    Failed(String),
    /// The shell is ready.
    Prompt,
    /// The guest cannot continue. Last message.
    Broken(String),
}
