//! Runs vector files, plain or gzipped: a JSON object on each line, with the kubelet's answer.

mod hints;
mod memory;
mod memory_config;
mod memory_sequence;
pub(crate) mod merge;
pub(crate) mod options;
mod sequence;
pub(crate) mod simulated;
mod take;
pub(crate) mod topologies;

use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
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
    /// The vector is of kubelet 1.36. Kubelet 1.37 answers otherwise; this answer is legal.
    Newer,
    /// The kubelet split a core that it must give out whole, counted cores of average size, or left a
    /// pod with CPUs of its ended containers; this answer is legal, or a refusal.
    Ours,
    /// Neither, with the vector and both answers.
    Failed(String),
}

/// The results of one file.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) excepted: usize,
    pub(crate) newer: usize,
    pub(crate) ours: usize,
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
        let Report { file, passed, excepted, newer, ours, failures, tally } = self;
        write!(f, "{file} passed {passed} failed {} excepted {excepted}", failures.len())?;
        write!(f, " (1.37 answers otherwise {newer}, ours {ours})")?;
        tally.0.iter().try_for_each(|(what, count)| write!(f, "\n  {what}: {count}"))
    }
}

/// Vectors of kubelet 1.36 that kubelet 1.37 answers otherwise.
pub(crate) struct Newer {
    /// File and id.
    vectors: BTreeSet<(&'static str, &'static str)>,
}

impl Newer {
    fn read() -> Newer {
        let lines = include_str!("../../tests/conformance/newer.txt").lines();
        let vectors = lines.filter(|line| !line.starts_with('#')).filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        });
        Newer { vectors: vectors.collect() }
    }

    fn has(&self, file: &str, id: &str) -> bool {
        self.vectors.contains(&(file, id))
    }
}

/// Reads the machines of a directory.
pub(crate) fn machines(dir: &Path) -> io::Result<(Machines, Vec<Report>)> {
    let mut machines = Machines::new();
    let mut reports = Vec::new();
    for file in ["topologies", "topologies37"].iter().filter_map(|name| find(dir, name)) {
        reports.push(each(&file, |machine| topologies::check(machine, &mut machines))?);
    }
    if reports.is_empty() {
        return Err(io::Error::other(format!("{}: no topologies.jsonl[.gz]", dir.display())));
    }
    Ok((machines, reports))
}

/// Reads the machines of a directory, then runs its vector files; those that are missing are
/// skipped.
pub(crate) fn run(dir: &Path) -> io::Result<Vec<Report>> {
    let (machines, mut reports) = machines(dir)?;
    let newer = Newer::read();
    for file in ["take", "take37"].iter().filter_map(|name| find(dir, name)) {
        reports.push(each(&file, |vector| take::check(vector, &machines, &newer))?);
    }
    if let Some(file) = find(dir, "hints") {
        reports.push(each(&file, |vector| hints::check(vector, &machines))?);
    }
    if let Some(file) = find(dir, "merge") {
        reports.push(each(&file, merge::check)?);
    }
    for file in ["sequence", "sequence37"].iter().filter_map(|name| find(dir, name)) {
        let mut tally = Tally::default();
        let check = |vector| sequence::check(vector, &machines, &newer, &mut tally);
        let report = each(&file, check)?;
        reports.push(Report { tally, ..report });
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
        if let Some(file) = find(dir, "memory-config") {
            reports.push(each(&file, |vector| memory_config::check(vector, &machines))?);
        }
    }
    for more in ["", "-more"] {
        let machines = find(dir, &format!("memory-machines{more}"));
        let sequence = find(dir, &format!("memory-sequence{more}"));
        if let (Some(machines), Some(sequence)) = (machines, sequence) {
            reports.extend(memory_sequences(&machines, &sequence)?);
        }
    }
    Ok(reports)
}

/// Runs a file of sequences on a file of machines, which is reported if it cannot be read.
fn memory_sequences(machines: &Path, sequence: &Path) -> io::Result<Vec<Report>> {
    let mut memory = memory::MemoryMachines::new();
    let mut cpus = memory_sequence::CpuMachines::new();
    let read = [
        each(machines, |machine| memory::read(machine, &mut memory))?,
        each(machines, |machine| memory_sequence::read(machine, &mut cpus))?,
    ];
    let mut reports: Vec<Report> =
        read.into_iter().filter(|report| !report.failures.is_empty()).collect();
    let mut tally = Tally::default();
    let check = |vector| memory_sequence::check(vector, &cpus, &memory, &mut tally);
    let report = each(sequence, check)?;
    reports.push(Report { tally, ..report });
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
    let mut report = Report { file, ..Report::default() };
    for (number, line) in open(path)?.lines().enumerate() {
        let vector = serde_json::from_str(&line?).map_err(|error| {
            io::Error::other(format!("{} line {}: {error}", path.display(), number + 1))
        })?;
        match check(vector) {
            Outcome::Passed => report.passed += 1,
            Outcome::Excepted => report.excepted += 1,
            Outcome::Newer => report.newer += 1,
            Outcome::Ours => report.ours += 1,
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
