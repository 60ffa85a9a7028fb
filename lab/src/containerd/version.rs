//! containerd versions.

/// A containerd version of the lab.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
pub enum Version {
    /// with NRI 0.6
    #[value(name = "1.7")]
    V1_7,
    /// with NRI 0.8
    #[value(name = "2.1")]
    V2_1,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_7 => "1.7",
            Self::V2_1 => "2.1",
        }
    }

    /// The Debian suite that has it.
    pub fn suite(self) -> &'static str {
        match self {
            Self::V1_7 => "trixie",
            Self::V2_1 => "forky",
        }
    }
}
