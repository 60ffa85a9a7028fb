//! The architectures that the plugin ships for, with the names that others use.

use std::fmt;

use anyhow::{Result, ensure};

/// Linux on an architecture. In files it has that one's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    #[value(name = "linux/amd64")]
    Amd64,
    #[value(name = "linux/arm64")]
    Arm64,
}

impl Platform {
    /// That of this build.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// OCI's and Debian's name of the architecture.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The kernel's and Rust's name of the architecture.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// An error unless this is an ELF program for the platform: an image with another one would
    /// fail only on the node.
    pub fn check(self, program: &[u8]) -> Result<()> {
        let expected: u16 = match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        };
        let found = program.get(18..20).map(|field| u16::from_le_bytes([field[0], field[1]]));
        ensure!(
            program.starts_with(b"\x7fELF") && found == Some(expected),
            "the program is not an ELF file for {self}"
        );
        Ok(())
    }
}

/// As in `--platform`: `linux/arm64`.
impl fmt::Display for Platform {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "linux/{}", self.architecture())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The start of a program's file.
    pub(crate) fn program(platform: Platform) -> Vec<u8> {
        let mut program = b"\x7fELF".to_vec();
        program.resize(64, 0);
        program[18] = match platform {
            Platform::Amd64 => 62,
            Platform::Arm64 => 183,
        };
        program
    }

    #[test]
    fn a_program_for_another_machine_is_refused() {
        let program = program(Platform::Arm64);
        Platform::Arm64.check(&program).unwrap();
        for (platform, program) in
            [(Platform::Amd64, &program[..]), (Platform::Arm64, &program[..10])]
        {
            assert!(platform.check(program).is_err());
        }
    }
}
