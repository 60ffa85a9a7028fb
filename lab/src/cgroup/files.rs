//! The file system of the cgroups.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(crate) const ROOT: &str = "/sys/fs/cgroup";

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}
