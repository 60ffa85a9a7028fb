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
