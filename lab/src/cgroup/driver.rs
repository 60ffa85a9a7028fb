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
    /// Directories.
    #[default]
    Cgroupfs,
    /// Units of systemd.
    Systemd,
}

impl Driver {
    /// As the kubelet's configuration names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}
