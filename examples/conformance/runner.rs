//! Runs vector files, plain or gzipped: a JSON object on each line, with the kubelet's answer.

mod hints;
mod memory;
mod memory_config;
mod memory_sequence;
mod memory_state;
pub(crate) mod merge;
pub(crate) mod options;
mod sequence;
pub(crate) mod simulated;
mod take;
pub(crate) mod topologies;

use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use topology::Topology;

/// Machines by name.
pub(crate) type Machines = BTreeMap<String, Topology>;

/// The result of one vector.
pub(crate) enum Outcome {
    /// The answer is the kubelet's.
    Passed,
    /// The kubelet's answer is wrong, or more decides about it than what is here; this one is legal.
    Excepted,
    /// Neither, with the vector and both answers.
    Failed(String),
}

/// The results of one file.
pub(crate) struct Report {
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) excepted: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) tally: Tally,
}

/// Counts of what a file's vectors show besides their results.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    fn count(&mut self, what: String) {
        *self.0.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { file, passed, excepted, failures, tally } = self;
        write!(f, "{file} passed {passed} failed {} excepted {excepted}", failures.len())?;
        tally.0.iter().try_for_each(|(what, count)| write!(f, "\n  {what}: {count}"))
    }
}

/// Reads the machines of a directory.
pub(crate) fn machines(dir: &Path) -> io::Result<(Machines, Report)> {
    let file = find(dir, "topologies")
        .ok_or_else(|| io::Error::other(format!("{}: no topologies.jsonl[.gz]", dir.display())))?;
    let mut machines = Machines::new();
    let report = each(&file, |machine| topologies::check(machine, &mut machines))?;
    Ok((machines, report))
}

/// Reads the machines of a directory, then runs its vector files; those that are missing are
/// skipped.
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
    if let Some(file) = find(dir, "memory-machines") {
        let mut machines = memory::MemoryMachines::new();
        reports.push(each(&file, |machine| memory::read(machine, &mut machines))?);
        if let Some(file) = find(dir, "memory-hints") {
            reports.push(each(&file, |vector| memory::check(vector, &machines))?);
        }
        if let Some(sequence) = find(dir, "memory-sequence") {
            let mut cpus = memory_sequence::CpuMachines::new();
            let read = each(&file, |machine| memory_sequence::read(machine, &mut cpus))?;
            if !read.failures.is_empty() {
                reports.push(read);
            }
            let mut tally = Tally::default();
            let check = |vector| memory_sequence::check(vector, &cpus, &machines, &mut tally);
            let report = each(&sequence, check)?;
            reports.push(Report { tally, ..report });
        }
        if let Some(file) = find(dir, "memory-config") {
            reports.push(each(&file, |vector| memory_config::check(vector, &machines))?);
        }
    }
    if let Some(file) = find(dir, "memory-state") {
        reports.push(each(&file, memory_state::check)?);
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
    let mut report =
        Report { file, passed: 0, excepted: 0, failures: Vec::new(), tally: Tally::default() };
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
    let gzipped = path.extension().is_some_and(|extension| extension == "gz");
    let read: Box<dyn Read> =
        if gzipped { Box::new(flate2::read::GzDecoder::new(file)) } else { Box::new(file) };
    Ok(BufReader::new(read))
}
