//! [`Kernel`]: the calls by which the plugin reads and changes the node: cgroup files, processes,
//! affinities of threads, and the machine in sysfs.
//!
//! The trait has a low level on purpose: its callers parse files, read written values back and interpret
//! errors, so all of this runs on a simulated kernel as it does on Linux.
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
//! Nothing here decides anything.

use cpuset::CpuSet;
use nix::sys::signal;
use nix::unistd::Pid;
use std::fmt::Debug;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// No file of the kernel is longer, not even the list of all threads of a node. In bytes.
const LONGEST: u64 = 16 << 20;

/// The names in a directory, and whether each is a directory: read one by one, as others choose how many there are.
pub type Entries = Box<dyn Iterator<Item = (String, bool)>>;

/// Errors have the kernel's error number.
pub trait Kernel: Debug + Send + Sync {
    /// The content of a regular file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The text of a regular file, without white space at its ends.
    fn text(&self, path: &Path) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }

    /// Replaces the text of a file that exists.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Opens a file for writing, which also checks the mount and security modules.
    fn check_writable(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory.
    fn entries(&self, path: &Path) -> io::Result<Entries>;

    /// The inode number of a directory. A new directory with the same path gets another one.
    fn number(&self, path: &Path) -> io::Result<u64>;

    /// Sets on which of its cgroup's CPUs a thread may run (sched_setaffinity(2)); 0 is the calling one.
    fn set_affinity(&self, thread: u32, cpus: CpuSet) -> io::Result<()>;

    /// The path without symbolic links, which sysfs has for devices.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// The id of this process in its pid namespace, as cgroup files show it.
    fn own_process(&self) -> u32;
}

/// A file in which a program records what it has changed in the kernel, so that a crash loses nothing.
pub trait RecordFile: Debug + Send + Sync {
    /// Used in messages only.
    fn path(&self) -> &Path;

    /// Reads what [`RecordFile::replace`] wrote last.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if nothing was written yet.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Replaces the content atomically. It need not survive a crash of the machine, after which the
    /// kernel has nothing of the changes either.
    fn replace(&self, content: &[u8]) -> io::Result<()>;

    /// Afterwards nothing is written, also if nothing was.
    fn remove(&self) -> io::Result<()>;
}

/// The kernel that this program runs on.
#[derive(Debug)]
pub struct Linux;

impl Kernel for Linux {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // A copy of a machine may have anything in place of a file: a FIFO would block, and a terminal
        // would become the controlling terminal of this process.
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
        // Without `create`, which would make files outside the kernel's file systems.
        let mut open = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        open.write_all(text.as_bytes())
    }

    fn check_writable(&self, path: &Path) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(path).map(drop)
    }

    fn entries(&self, path: &Path) -> io::Result<Entries> {
        // Names that the kernel and runtimes choose are UTF-8.
        let entries = fs::read_dir(path)?.flatten().filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, entry.file_type().ok()?.is_dir()))
        });
        Ok(Box::new(entries))
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
        Ok(sched::sched_setaffinity(Pid::from_raw(thread), &mask)?)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn own_process(&self) -> u32 {
        std::process::id()
    }
}

/// For programs with processes and cgroups of their own: no simulation has these.
impl Linux {
    /// Makes a directory: in a file system of cgroups, a cgroup. No error if it exists.
    pub fn make_directory(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes an empty directory: in a file system of cgroups, a cgroup without processes and children.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    /// Locks a file or directory until the result is dropped, or this process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is locked.
    pub fn lock(&self, path: &Path) -> io::Result<OwnedFd> {
        let file = fs::File::open(path)?;
        file.try_lock()?;
        Ok(file.into())
    }

    /// Ends a process.
    pub fn kill(&self, process: u32) -> io::Result<()> {
        Ok(signal::kill(pid(process)?, signal::Signal::SIGKILL)?)
    }

    /// Ends the processes of a group, which has the id of its first process.
    pub fn kill_group(&self, group: u32) -> io::Result<()> {
        Ok(signal::killpg(pid(group)?, signal::Signal::SIGKILL)?)
    }
}

/// An id that the kernel does not take for several processes, as it does 0 and negative ones.
fn pid(id: u32) -> io::Result<Pid> {
    match i32::try_from(id) {
        Ok(id @ 1..) => Ok(Pid::from_raw(id)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
