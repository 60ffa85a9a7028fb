//! What runs on a virtual server, and where its root image has it.

use crate::cgroup::Driver;
use crate::containerd::Version;

/// What runs on a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, serde::Serialize, serde::Deserialize)]
pub struct Software {
    /// Which generation of containerd.
    #[arg(long = "runtime", value_enum, default_value_t = Version::V2_1)]
    pub version: Version,
    /// What runs its containers.
    #[arg(long, value_enum, default_value_t = Oci::Runc)]
    pub oci: Oci,
    /// How cgroups are made. With systemd's it is the first process, as on most nodes.
    #[arg(long, value_enum, default_value_t = Driver::Cgroupfs)]
    pub driver: Driver,
}

/// An OCI runtime.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
pub enum Oci {
    /// containerd's usual one.
    Runc,
    /// A smaller and faster one.
    Crun,
}

impl From<Version> for Software {
    fn from(version: Version) -> Self {
        Self { version, oci: Oci::Runc, driver: Driver::Cgroupfs }
    }
}

/// In the guest's root: containerd 1.7 beside the 2.1 of its distribution.
pub(crate) const CONTAINERD_1_7: &str = "/opt/containerd-1.7";

/// The directory of containerd's programs in the guest's root.
pub(crate) fn programs(version: Version) -> &'static str {
    match version {
        Version::V1_7 => CONTAINERD_1_7,
        Version::V2_1 => "/usr/bin",
    }
}
