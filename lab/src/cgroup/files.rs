//! The file system of the cgroups.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(crate) const ROOT: &str = "/sys/fs/cgroup";

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}
