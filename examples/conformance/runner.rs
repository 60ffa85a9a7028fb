//! Runs vector files: one JSON object a line, plain or gzipped, each with the kubelet's answer in
//! it.

mod hints;
pub(crate) mod merge;
pub(crate) mod options;
mod sequence;
pub(crate) mod simulated;
mod take;
pub(crate) mod topologies;

use nri_cpu_manager::topology::Topology;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Machines by name.
pub(crate) type Machines = BTreeMap<String, Topology>;

/// What came of one vector.
pub(crate) enum Outcome {
    /// The kubelet's answer.
    Passed,
    /// The kubelet is wrong here, and ours is legal.
    Excepted,
    /// Neither; the vector and both answers in words.
    Failed(String),
}

/// What came of one file.
pub(crate) struct Report {
    /// The file's name.
    pub(crate) file: String,
    /// Vectors answered as the kubelet does.
    pub(crate) passed: usize,
    /// Vectors the kubelet answers wrongly and we legally.
    pub(crate) excepted: usize,
    /// The others, in full.
    pub(crate) failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { file, passed, excepted, failures } = self;
        write!(f, "{file} passed {passed} failed {} excepted {excepted}", failures.len())
    }
}

/// Reads the machines of a directory.
///
/// # Errors
/// If there are none, or their file cannot be read or is not of its form.
pub(crate) fn machines(dir: &Path) -> io::Result<(Machines, Report)> {
    let file = find(dir, "topologies")
        .ok_or_else(|| io::Error::other(format!("{}: no topologies.jsonl[.gz]", dir.display())))?;
    let mut machines = Machines::new();
    let report = each(&file, |machine| topologies::check(machine, &mut machines))?;
    Ok((machines, report))
}

/// Reads the machines of a directory, then runs all its vector files.
///
/// # Errors
/// If a file cannot be read or is not of its form, or the machines are missing.
pub(crate) fn run(dir: &Path) -> io::Result<Vec<Report>> {
    let (machines, report) = machines(dir)?;
    let mut reports = vec![report];
    if let Some(file) = find(dir, "take") {
        reports.push(each(&file, |vector| take::check(vector, &machines))?);
    }
    if let Some(file) = find(dir, "hints") {
        reports.push(each(&file, |vector| hints::check(vector, &machines))?);
    }
    if let Some(file) = find(dir, "merge") {
        reports.push(each(&file, merge::check)?);
    }
    if let Some(file) = find(dir, "sequence") {
        reports.push(each(&file, |vector| sequence::check(vector, &machines))?);
    }
    if let Some(file) = find(dir, "options") {
        reports.push(each(&file, |vector| options::check(vector, &machines))?);
    }
    Ok(reports)
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let plain = dir.join(format!("{name}.jsonl"));
    let gzipped = dir.join(format!("{name}.jsonl.gz"));
    [plain, gzipped].into_iter().find(|path| path.is_file())
}

/// Runs `check` on every line of a file.
fn each<V: DeserializeOwned>(
    path: &Path,
    mut check: impl FnMut(V) -> Outcome,
) -> io::Result<Report> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut report = Report { file, passed: 0, excepted: 0, failures: Vec::new() };
    for (number, line) in open(path)?.lines().enumerate() {
        let vector = serde_json::from_str(&line?).map_err(|error| {
            io::Error::other(format!("{} line {}: {error}", path.display(), number + 1))
        })?;
        match check(vector) {
            Outcome::Passed => report.passed += 1,
            Outcome::Excepted => report.excepted += 1,
            Outcome::Failed(failure) => report.failures.push(failure),
        }
    }
    Ok(report)
}

pub(crate) fn open(path: &Path) -> io::Result<impl BufRead + use<>> {
    let file = File::open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let read: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(flate2::read::GzDecoder::new(file)),
        false => Box::new(file),
    };
    Ok(BufReader::new(read))
}
