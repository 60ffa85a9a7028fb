//! Results in a file.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Writes results, an object a line.
pub(super) fn write<T: Serialize>(path: &Path, results: impl IntoIterator<Item = T>) -> Result<()> {
    let lines: Result<Vec<String>, _> =
        results.into_iter().map(|result| serde_json::to_string(&result)).collect();
    let text = lines.context("cannot write down the results")?.join("\n") + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
