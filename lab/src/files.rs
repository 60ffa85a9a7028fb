//! Files, with the path in every error.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Without surrounding white space: for files of the kernel.
pub(crate) fn read_value(path: &Path) -> Result<String> {
    Ok(read(path)?.trim().to_owned())
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Names the value in the error, because the kernel refuses some. An empty one is a line: without a
/// byte to write there is no call, and the kernel keeps what it has.
pub(crate) fn write_value(path: &Path, value: &str) -> Result<()> {
    fs::write(path, if value.is_empty() { "\n" } else { value })
        .with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Also creates missing parents.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}
