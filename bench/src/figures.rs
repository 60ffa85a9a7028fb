//! Figures: instructions by case, in a file and compared.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// By which share of itself a count may grow. One program varies by some thousandths, with the
/// order of memory.
const TOLERANCE: f64 = 0.05;

/// Instructions by case, in the order of the cases, and the compiler that made the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) compiler: String,
    pub(super) counts: Vec<(String, u64)>,
}

impl Figures {
    /// Reads what [`Figures::write`] wrote; none, if there is no such file.
    ///
    /// # Errors
    /// If it cannot be read, or a line is not a case and a count.
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
            let bad = || format!("{}: {line:?} is no case and a count", file.display());
            figures.counts.push(count.ok_or_else(|| io::Error::other(bad()))?);
        }
        Ok(figures)
    }

    /// Writes a line for the compiler, and one a case.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let head = format!("# {}\n", self.compiler);
        let lines = self.counts.iter().map(|(name, count)| format!("{name:<38} {count:>8}\n"));
        fs::write(file, head + &lines.collect::<String>())
    }

    /// What has changed since `kept`, case by case.
    pub(super) fn compare(&self, kept: &Figures) -> Vec<Change> {
        let count = |figures: &Figures, name: &str| {
            figures.counts.iter().find(|(other, _)| other == name).map(|(_, count)| *count)
        };
        let gone = kept.counts.iter().filter(|(name, _)| count(self, name).is_none());
        let names = self.counts.iter().chain(gone).map(|(name, _)| name);
        names
            .map(|name| Change {
                name: name.clone(),
                before: count(kept, name),
                now: count(self, name),
            })
            .collect()
    }
}

/// A case before and now; `None` where it did not or does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) before: Option<u64>,
    pub(super) now: Option<u64>,
}

impl Change {
    /// By which share of itself the count has grown.
    fn growth(&self) -> Option<f64> {
        let now = self.now? as f64;
        let before = self.before? as f64;
        Some((now - before) / before)
    }

    /// Whether the case was and is there, and does not take much more.
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
