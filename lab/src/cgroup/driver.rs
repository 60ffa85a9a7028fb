//! How pods' cgroups are made and named.

/// The kubelet's `cgroupDriver`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
pub enum Driver {
    /// cgroup directories
    #[default]
    Cgroupfs,
    /// systemd units
    Systemd,
}

impl Driver {
    /// As in the kubelet's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}
