//! [`Kernel`]: the calls by which the plugin reads and changes the node: cgroup files, processes,
//! threads' affinities, and the machine in sysfs.
//!
//! The trait is low on purpose: what a file says is parsed, written values are read back, and
//! errors are mapped above it, so that all of this runs on a simulated kernel as it does on Linux.
//!
//! ```
//! use kernel::{Kernel, Linux};
//! use std::path::Path;
//!
//! let online = Linux.read(Path::new("/sys/devices/system/cpu/online"))?;
//! assert!(!online.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Nothing here decides: it is the one place that asks the node, and knows no product.

use cpuset::CpuSet;
use std::fmt::Debug;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// More than any file of the kernel has, such as the list of all threads of a node.
const LONGEST: u64 = 16 << 20;

/// Errors are those of the kernel, with its error number.
pub trait Kernel: Debug + Send + Sync {
    /// The content of a regular file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Replaces the text of a file that exists.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Whether the file could be written: this also asks the mount and security modules.
    fn check_writable(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, and whether each is a directory itself.
    fn entries(&self, path: &Path) -> io::Result<Vec<(String, bool)>>;

    /// The number of a directory. Another one of the same name has another number.
    fn number(&self, path: &Path) -> io::Result<u64>;

    /// Sets where a thread may run within its cgroup's CPUs (sched_setaffinity(2)).
    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()>;

    /// The path without links in it. Devices in sysfs are links.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// The number of this process, as the cgroup files show it.
    fn own_process(&self) -> u32;
}

/// The kernel that this program runs on.
#[derive(Debug)]
pub struct Linux;

impl Kernel for Linux {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // A copy of a machine may have anything in place of a file: a FIFO would block, and a
        // terminal would become this process's own.
        let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOCTTY;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if LONGEST < bytes.len() as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Without `create`: outside of the kernel's file system that would make a file.
        let mut open = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        open.write_all(text.as_bytes())
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(path).map(drop)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)?.flatten() {
            // The kernel's and all runtimes' names are UTF-8.
            if let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) {
                entries.push((name, kind.is_dir()));
            }
        }
        Ok(entries)
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.ino())
    }

    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()> {
        use nix::sched;
        let mut mask = sched::CpuSet::new();
        for cpu in cpus.iter().filter(|&cpu| cpu < sched::CpuSet::count()) {
            mask.set(cpu)?;
        }
        let thread = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(sched::sched_setaffinity(nix::unistd::Pid::from_raw(thread), &mask)?)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn own_process(&self) -> u32 {
        std::process::id()
    }
}
