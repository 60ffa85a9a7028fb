//! Results of a full run so far, one boot at a time: it takes hours, and an interrupted run can
//! continue.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::table::{Row, Verdict};
use crate::containerd::Version;
use crate::{cache, command, files};

/// Results of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Boot {
    machine: String,
    version: Version,
    millis: u64,
    rows: Vec<Row>,
}

/// All boots so far, in a file.
#[derive(Debug)]
pub(super) struct FullRun {
    path: PathBuf,
    done: Vec<Boot>,
}

impl FullRun {
    /// The run of exactly these programs and machine files; with `resume`, includes the boots of an
    /// earlier one.
    pub(super) fn open(files: &[PathBuf], resume: bool) -> Result<Self> {
        let cannot = |path: &Path| format!("cannot read {}", path.display());
        let mut content = Vec::new();
        for file in files {
            content.extend(fs::read(file).with_context(|| cannot(file))?);
        }
        let name = format!("all-{}.jsonl", cache::fingerprint(&content));
        let path = cache::directory("results")?.join(name);
        let text = match fs::read_to_string(&path) {
            _ if !resume => String::new(),
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| cannot(&path)),
        };
        let lines = text.lines().filter(|line| !line.is_empty());
        let done: Result<Vec<Boot>, _> = lines.map(serde_json::from_str).collect();
        let done = done.with_context(|| format!("{}: remove it", cannot(&path)))?;
        Ok(Self { path, done })
    }

    /// Whether this machine is done.
    pub(super) fn has(&self, machine: &str, version: Version) -> bool {
        self.done.iter().any(|done| done.machine == machine && done.version == version)
    }

    /// A machine that did not boot is tried again by the next run.
    pub(super) fn add(
        &mut self,
        machine: &str,
        version: Version,
        rows: Vec<Row>,
        time: Duration,
    ) -> Result<()> {
        let millis = command::millis(time);
        self.done.push(Boot { machine: machine.to_owned(), version, millis, rows });
        let booted = |server: &&Boot| {
            !server.rows.iter().any(|row| matches!(row.verdict, Verdict::NotBooted(_)))
        };
        write_lines(&self.path, self.done.iter().filter(booted))
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.done.iter().flat_map(|server| server.rows.clone()).collect()
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.done.iter().map(|server| server.millis).sum())
    }
}

/// Writes results, an object a line.
pub(super) fn write_lines<T: Serialize>(
    path: &Path,
    results: impl IntoIterator<Item = T>,
) -> Result<()> {
    let lines: Result<Vec<String>, _> =
        results.into_iter().map(|result| serde_json::to_string(&result)).collect();
    files::write(path, lines.context("cannot encode the results")?.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_with_what_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["plugin", "machine"].map(|name| directory.path().join(name));
        let row = |verdict| Row {
            machine: "small".to_owned(),
            scenario: "churn".to_owned(),
            version: Version::V2_1,
            verdict,
            millis: 1500,
        };
        fs::write(&files[0], std::process::id().to_string()).unwrap();
        fs::write(&files[1], "").unwrap();
        let mut run = FullRun::open(&files, false).unwrap();
        let second = Duration::from_secs(1);
        run.add("small", Version::V2_1, vec![row(Verdict::Passed)], second).unwrap();
        run.add("small", Version::V1_7, vec![row(Verdict::NotBooted("no".into()))], second)
            .unwrap();
        assert_eq!((run.rows().len(), run.time()), (2, 2 * second));

        let again = FullRun::open(&files, true).unwrap();
        assert!(again.has("small", Version::V2_1) && !again.has("small", Version::V1_7));
        assert!(!again.has("large", Version::V2_1));
        assert_eq!((again.rows(), again.time()), (vec![row(Verdict::Passed)], second));
        assert!(!FullRun::open(&files, false).unwrap().has("small", Version::V2_1));
        fs::write(&files[1], "cores: 8").unwrap();
        assert!(!FullRun::open(&files, true).unwrap().has("small", Version::V2_1));
        fs::remove_file(again.path).unwrap();
    }
}
