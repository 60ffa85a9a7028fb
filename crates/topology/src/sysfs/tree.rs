//! [`SysfsTree`]: small files under a sysfs directory, and [`ReadError`]: why there is no machine
//! in one.

use cpuset::CpuSet;
use kernel::Kernel;
use std::io;
use std::path::{Path, PathBuf};

/// The most bytes of a file. The kernel's files are shorter.
const LONGEST: usize = 64 * 1024;

/// A sysfs directory. Paths are relative to it.
#[derive(Debug)]
pub(super) struct SysfsTree<'a> {
    kernel: &'a dyn Kernel,
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "no machine in {root}: neither {root}/devices/system/cpu nor {root}/sys/devices/system/cpu exists; \
         expected /sys, a copy of it, or a directory with such a copy in sys",
        root = root.display()
    )]
    NoMachine { root: PathBuf },
    #[error("cannot read {}: {source}; this user needs read permission", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "no online CPU in {}: neither its file online nor a directory cpuN names one; \
         is this a complete copy of /sys?",
        path.display()
    )]
    NoCpus { path: PathBuf },
    /// More CPUs than a [`CpuSet`] holds.
    #[error("too many CPUs in {}: {what}; a build with a larger MAX_CPUS is needed", path.display())]
    TooLarge { path: PathBuf, what: String },
}

/// The result of reading a value from one or several files.
#[derive(Debug)]
pub(super) struct Lookup<T> {
    pub(super) value: Option<T>,
    /// The first file that exists but cannot be used, and why.
    pub(super) trouble: Option<String>,
}

impl<T> Lookup<T> {
    fn nothing() -> Lookup<T> {
        Lookup { value: None, trouble: None }
    }
}

/// The format of a CPU set.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    /// `0-3,8`
    List,
    /// `00000000,0000010f`
    Mask,
}

impl<'a> SysfsTree<'a> {
    pub(super) fn at(kernel: &'a dyn Kernel, root: PathBuf) -> SysfsTree<'a> {
        SysfsTree { kernel, root }
    }

    /// The tree at `root`, or at `root/sys` in a copy of a whole machine.
    pub(super) fn find(kernel: &'a dyn Kernel, root: &Path) -> Result<SysfsTree<'a>, ReadError> {
        for candidate in [root.to_owned(), root.join("sys")] {
            let path = candidate.join("devices/system/cpu");
            match kernel.entries(&path) {
                Ok(_) => return Ok(SysfsTree::at(kernel, candidate)),
                Err(error) if is_absence(&error) => {}
                Err(source) => return Err(ReadError::Unreadable { path, source }),
            }
        }
        Err(ReadError::NoMachine { root: root.to_owned() })
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file without surrounding white space.
    pub(super) fn text(&self, path: &str) -> Lookup<String> {
        match self.read(&self.path(path)) {
            Ok(text) => Lookup { value: Some(text.trim().to_owned()), trouble: None },
            Err(error) if is_absence(&error) => Lookup::nothing(),
            Err(error) => Lookup { value: None, trouble: Some(format!("{path}: {error}")) },
        }
    }

    /// The text of a file, parsed. An error of `parse` becomes trouble.
    pub(super) fn parsed<T>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Lookup<T> {
        let Lookup { value, trouble } = self.text(path);
        match value.as_deref().map(parse) {
            None => Lookup { value: None, trouble },
            Some(Ok(value)) => Lookup { value: Some(value), trouble },
            Some(Err(why)) => Lookup { value: None, trouble: Some(format!("{path}: {why}")) },
        }
    }

    pub(super) fn number(&self, path: &str) -> Lookup<usize> {
        self.parsed(path, |text| match text.parse() {
            Ok(number) => Ok(number),
            Err(_) if text == "-1" => Err("-1 (unknown)".to_owned()),
            Err(_) => Err(format!("{text:?} is not a number")),
        })
    }

    /// A CPU set from the first usable one of `files` in directory `dir`.
    pub(super) fn cpus(&self, dir: &str, files: &[(&str, Format)]) -> Lookup<CpuSet> {
        let mut trouble = None;
        for (file, format) in files {
            let lookup = self.parsed(&format!("{dir}/{file}"), |text| {
                let set = match format {
                    Format::List => text.parse(),
                    Format::Mask => CpuSet::from_mask(text),
                };
                set.map_err(|error| error.to_string())
            });
            trouble = trouble.or(lookup.trouble);
            if let Some(value) = lookup.value {
                return Lookup { value: Some(value), trouble };
            }
        }
        Lookup { value: None, trouble }
    }

    /// The numbers `N` of the entries `<prefix>N` of directory `dir`, ascending.
    pub(super) fn numbered(&self, dir: &str, prefix: &str) -> Lookup<Vec<usize>> {
        self.numbered_between(dir, prefix, "")
    }

    /// As [`numbered`](SysfsTree::numbered), for names that end in `suffix`.
    pub(super) fn numbered_between(
        &self,
        dir: &str,
        prefix: &str,
        suffix: &str,
    ) -> Lookup<Vec<usize>> {
        let entries = match self.kernel.entries(&self.path(dir)) {
            Ok(entries) => entries,
            Err(error) if is_absence(&error) => return Lookup::nothing(),
            Err(error) => {
                return Lookup { value: None, trouble: Some(format!("{dir}: {error}")) };
            }
        };
        let mut numbers: Vec<usize> = entries
            .filter_map(|(name, _)| {
                let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
                // `parse` alone would accept a sign.
                let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
                if is_number { digits.parse().ok() } else { None }
            })
            .collect();
        numbers.sort_unstable();
        // A copy may have both `cpu01` and `cpu1`.
        numbers.dedup();
        Lookup { value: Some(numbers), trouble: None }
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let bytes = self.kernel.read(path)?;
        if LONGEST < bytes.len() {
            let why = "longer than any file of its kind";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not text (invalid UTF-8)"))
    }
}

/// Whether the file does not exist, as opposed to one that cannot be read.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
