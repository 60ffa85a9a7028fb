//! [`SimulateError`].

use crate::cli::machine::MachineError;
use crate::config::ConfigError;
use crate::simulate::WorkloadError;
use std::io;
use std::path::PathBuf;

/// Why nothing can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The arguments do not go together.
    #[error("{0}")]
    Arguments(&'static str),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be read or written.
    #[error("cannot {0} {1}: {2}")]
    File(&'static str, PathBuf, io::Error),
    /// The workload.
    #[error("{0}: {1}")]
    Workload(PathBuf, WorkloadError),
    /// The output cannot be written.
    #[error("cannot write what was found: {0}")]
    Write(#[from] io::Error),
}
