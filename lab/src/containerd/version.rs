//! containerd versions.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::run;

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

    /// Runs a `containerd --version` and checks its version: Debian's suites move to newer ones.
    pub fn check(self, version: &mut Command) -> Result<()> {
        self.check_output(run(version)?.trim())
    }

    /// `version` looks like: containerd github.com/containerd/containerd/v2 2.1.4 commit
    fn check_output(self, words: &str) -> Result<()> {
        let number = words.split_whitespace().nth(2).unwrap_or_default();
        let rest = number.strip_prefix(self.name());
        if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
            return Ok(());
        }
        bail!(
            "expected containerd {}, and got {words:?}: Debian's {} has another version now. Use another suite in \
             lab/src/containerd/version.rs.",
            self.name(),
            self.suite()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn another_version_is_refused() {
        let check = |number: &str| {
            let words = format!("containerd github.com/containerd/containerd/v2 {number} 1b2c3");
            Version::V2_1.check_output(&words).is_ok()
        };
        assert!(["2.1.9+unknown", "2.1.4~ds1", "2.1"].into_iter().all(check));
        assert!(!["2.2.0", "2.10.3", "1.7.24~ds1", ""].into_iter().any(check));
    }
}
