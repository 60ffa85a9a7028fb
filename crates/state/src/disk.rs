//! [`Storage`]: files of the state directory that are not synced, and [`Disk`]: all writes into it.
//!
//! A file system can stop for seconds or for ever: a snapshot freezes it, a path to it is lost. A
//! thread that writes then cannot be interrupted. So one thread does all writes, in order, and
//! everything else waits for it for a bounded time only.

use crate::files;
use crate::worker::{NoThread, Worker};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::sync::watch;

/// How long to wait for a write: runtimes wait for an answer for two seconds by default, and answers
/// that are later than 60 % of that count as late.
const PATIENCE: Duration = Duration::from_secs(1);

/// A file that is not complete yet. All writes are made one after the other.
const DRAFT: &str = ".draft";

/// The calls by which the plugin keeps files that need not outlive the machine. All of them block.
pub trait Storage: fmt::Debug + Send + Sync {
    /// The content of a regular file of at most `limit` bytes.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// Replaces a file by renaming another one over it: a program reads all or nothing of a value.
    fn replace(&self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()>;

    /// Removes a file, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory, and those above it, unless it is there.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Replaces files of a directory in this order, and makes it if it is not there.
    ///
    /// # Errors
    /// Some files may have been replaced by then.
    fn fill_directory(
        &self,
        path: &Path,
        directory_mode: u32,
        file_mode: u32,
        files: &[(&'static str, String)],
    ) -> io::Result<()> {
        self.create_directory(path, directory_mode)?;
        for (name, content) in files {
            self.replace(&path.join(name), file_mode, content.as_bytes())?;
        }
        Ok(())
    }

    /// The names in a directory.
    fn entries(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Removes a directory with all that is in it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
}

/// The only thread that writes into the state directory. Clones share it.
#[derive(Debug, Clone)]
pub struct Disk {
    thread: Worker,
    progress: Arc<watch::Sender<WriteProgress>>,
}

#[derive(Debug, Default)]
struct WriteProgress {
    asked: u64,
    done: u64,
    /// When the write began that has exceeded [`PATIENCE`].
    stalled_since: Option<Instant>,
}

/// A write that has not ended. It may still succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    pub runs_for: Duration,
}

impl Disk {
    pub fn start() -> Result<Disk, NoThread> {
        Ok(Disk { thread: Worker::start("disk")?, progress: Arc::default() })
    }

    /// Does `write` after all earlier writes, and waits for its end. While an earlier one is stalled,
    /// it does not even try. Blocks.
    ///
    /// # Errors
    /// If the write was not tried, or has not ended: it goes on, and later writes come after it.
    pub fn run<T: Send + 'static>(
        &self,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stalled> {
        if let Some(stalled) = self.stalled() {
            return Err(stalled);
        }
        let began = Instant::now();
        let (done, result) = mpsc::sync_channel(1);
        let progress = Arc::clone(&self.progress);
        let job = move || {
            // The caller may have stopped to wait.
            let _ = done.send(write());
            progress.send_modify(|progress| {
                progress.done += 1;
                progress.stalled_since = None;
            });
        };
        let mut number = 0;
        self.progress.send_modify(|progress| {
            if self.thread.give(job) {
                progress.asked += 1;
                number = progress.asked;
            }
        });
        if let Ok(result) = result.recv_timeout(PATIENCE) {
            return Ok(result);
        }
        self.progress.send_modify(|progress| {
            if progress.done < number {
                progress.stalled_since = Some(began);
            }
        });
        // The write may have ended after the timeout.
        result.try_recv().map_err(|_| Stalled { runs_for: began.elapsed() })
    }

    /// The present write, if it has exceeded [`PATIENCE`].
    pub fn stalled(&self) -> Option<Stalled> {
        let since = self.progress.borrow().stalled_since?;
        Some(Stalled { runs_for: since.elapsed() })
    }
}

/// The calls themselves, on the thread that makes them.
#[derive(Debug)]
struct Direct;

impl Storage for Direct {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        files::read_regular(path, limit)
    }

    fn replace(&self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        files::replace(path, &path.with_file_name(DRAFT), mode, content)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        files::remove(path)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(path)?.flatten();
        Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

impl Storage for Disk {
    /// Without the thread: a read that is slow at the start is worth the wait.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        Direct.read(path, limit)
    }

    fn replace(&self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let path = path.to_owned();
        let content = content.to_owned();
        self.run(move || Direct.replace(&path, mode, &content))?
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.run(move || Direct.remove(&path))?
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let path = path.to_owned();
        self.run(move || Direct.create_directory(&path, mode))?
    }

    /// As one write: nothing waits for each of the files.
    fn fill_directory(
        &self,
        path: &Path,
        directory_mode: u32,
        file_mode: u32,
        files: &[(&'static str, String)],
    ) -> io::Result<()> {
        let path = path.to_owned();
        let files = files.to_owned();
        self.run(move || Direct.fill_directory(&path, directory_mode, file_mode, &files))?
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<String>> {
        let path = path.to_owned();
        self.run(move || Direct.entries(&path))?
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.run(move || Direct.remove_directory(&path))?
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk has not finished a write for {:.1} s", self.runs_for.as_secs_f64())
    }
}

impl From<Stalled> for io::Error {
    fn from(stalled: Stalled) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, stalled.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_types, reason = "what a thread has written")]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn directories_are_filled_listed_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let disk = Disk::start().unwrap();
        let path = root.path().join("a/b");
        for value in ["1", "2"] {
            let files = [("one", value.to_owned()), ("two", value.to_owned())];
            disk.fill_directory(&path, 0o755, 0o444, &files).unwrap();
            assert_eq!(disk.read(&path.join("two"), 1).unwrap(), value.as_bytes());
        }
        let mut names = disk.entries(&path).unwrap();
        names.sort();
        assert_eq!(names, ["one", "two"]);
        disk.remove_directory(&root.path().join("a")).unwrap();
        assert_eq!(disk.entries(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let there = root.path().join("file");
        disk.replace(&there, 0o600, b"text").unwrap();
        assert_eq!(disk.read(&there, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_stalled_write_delays_no_caller_and_later_writes_come_after_it() {
        let disk = Disk::start().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let write = |what: &'static str| {
            let written = Arc::clone(&written);
            move || written.lock().unwrap().push(what)
        };
        disk.run(write("first")).unwrap();
        assert_eq!(disk.stalled(), None);

        let (thaw, frozen) = mpsc::channel::<()>();
        let last = write("stalled");
        let stalled = disk.run(move || {
            frozen.recv().unwrap();
            last();
        });
        assert!(stalled.unwrap_err().runs_for >= PATIENCE);
        // This one is not even tried: its content would be outdated when the disk responds.
        disk.run(write("not tried")).unwrap_err();
        assert!(disk.stalled().is_some());
        let refused = disk.replace(Path::new("/nowhere/file"), 0o600, b"").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);

        thaw.send(()).unwrap();
        while disk.stalled().is_some() {
            std::thread::yield_now();
        }
        disk.run(write("later")).unwrap();
        assert_eq!(*written.lock().unwrap(), ["first", "stalled", "later"]);
    }
}
