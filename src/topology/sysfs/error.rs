//! [`ReadError`]: why there is no machine.

use crate::cpuset::PastLimit;
use std::io;
use std::path::PathBuf;

/// Why there is no machine to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither the directory nor `sys` in it looks like `/sys`.
    #[error(
        "no machine under {root}: there is no directory devices/system/cpu in it, nor in {root}/sys; \
         name a directory that stands for /sys, or a copy of a machine's files that has sys in it",
        root = root.display()
    )]
    NoMachine {
        /// The directory from the user.
        root: PathBuf,
    },
    /// A directory cannot be read.
    #[error(
        "cannot read {path}: {source}; it must be readable for the user this runs as",
        path = path.display()
    )]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The files name no online CPU.
    #[error(
        "no online CPU in {path}: neither its file online nor directories cpuN name one; \
         is the directory a complete copy of /sys?",
        path = path.display()
    )]
    NoCpus {
        /// The directory that should name CPUs.
        path: PathBuf,
    },
    /// The machine has more CPUs than can be handled.
    #[error(
        "{path} is too large a machine: {what}; run this on a machine with fewer CPUs or raise \
         MAX_CPUS in a build of your own",
        path = path.display()
    )]
    TooLarge {
        /// The directory or file that names the CPU.
        path: PathBuf,
        /// The number at fault and the limit.
        what: String,
    },
}

impl ReadError {
    pub(super) fn too_large(path: PathBuf, limit: PastLimit) -> ReadError {
        ReadError::TooLarge { path, what: limit.to_string() }
    }
}
