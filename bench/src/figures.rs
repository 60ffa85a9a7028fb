//! Instruction counts by case: read, written and compared.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// The growth of a count that is acceptable, as a fraction. Counts of one program vary by some
/// thousandths, with the layout of memory.
const TOLERANCE: f64 = 0.05;

/// Instructions by case, in the order of the cases, and the compiler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) compiler: String,
    pub(super) counts: Vec<(String, u64)>,
}

impl Figures {
    /// Reads a file of [`Figures::write`]; a missing file has no figures.
    pub(super) fn read(file: &Path) -> io::Result<Figures> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Figures::default()),
            text => text?,
        };
        let mut figures = Figures::default();
        for line in text.lines() {
            if let Some(compiler) = line.strip_prefix('#') {
                figures.compiler = compiler.trim().to_owned();
                continue;
            }
            let count = line
                .split_once(char::is_whitespace)
                .and_then(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)));
            let Some(count) = count else {
                let error = format!("{}: {line:?} is not a case and a count", file.display());
                return Err(io::Error::other(error));
            };
            figures.counts.push(count);
        }
        Ok(figures)
    }

    /// Writes a line for the compiler, and one for each case.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let head = format!("# {}\n", self.compiler);
        let lines = self.counts.iter().map(|(name, count)| format!("{name:<38} {count:>8}\n"));
        fs::write(file, head + &lines.collect::<String>())
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(other, _)| other == name).map(|(_, count)| *count)
    }

    /// The changes since `saved`, by case.
    pub(super) fn compare(&self, saved: &Figures) -> Vec<Change> {
        let gone = saved.counts.iter().filter(|(name, _)| self.count(name).is_none());
        let names = self.counts.iter().chain(gone).map(|(name, _)| name);
        names
            .map(|name| Change {
                name: name.clone(),
                before: saved.count(name),
                now: self.count(name),
            })
            .collect()
    }
}

/// A case's count before and now; `None` where the case did not or does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) before: Option<u64>,
    pub(super) now: Option<u64>,
}

impl Change {
    /// The growth of the count as a fraction.
    fn growth(&self) -> Option<f64> {
        let now = self.now? as f64;
        let before = self.before? as f64;
        Some((now - before) / before)
    }

    /// Whether the case exists before and now, and has not grown beyond [`TOLERANCE`].
    pub(super) fn acceptable(&self) -> bool {
        self.growth().is_some_and(|growth| growth <= TOLERANCE)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<38} {:>8}", self.name, self.now.unwrap_or(0))?;
        match (self.growth(), self.before) {
            (Some(growth), _) => write!(f, "  {:+.1} %", 100.0 * growth)?,
            (None, None) => write!(f, "  new")?,
            (None, Some(_)) => write!(f, "  gone")?,
        }
        if self.acceptable() { Ok(()) } else { write!(f, "  <--") }
    }
}
