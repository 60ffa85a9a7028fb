//! Directories with files that name a container's CPUs. The container has its directory mounted
//! read-only; nothing in it is ever read here.
//!
//! A file is replaced by a rename, so that a program never reads a part of a value, and sees each
//! change with inotify on the directory.

use ledger::ContainerId;
use ledger::environment::Description;
use state::disk::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Below the state directory.
const DIRECTORY: &str = "exposed";
/// Only the plugin writes; a container may run as any user.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;

/// The directories of all containers. They do not outlive the machine, so nothing is synced.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    root: PathBuf,
    storage: Arc<dyn Storage>,
}

/// What the files of a container say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// All CPUs that it may run on, now or in a moment, without `shared` ones.
    pub cpus: Description,
    /// CPUs that it uses together with others.
    pub shared: String,
    /// CPUs of `cpus` and `shared` that it is about to lose.
    pub leaving: String,
    /// CPUs of `cpus` on which interrupts may stay.
    pub housekeeping: String,
}

impl Directories {
    pub(crate) fn below(state: &Path, storage: Arc<dyn Storage>) -> Directories {
        Directories { root: state.join(DIRECTORY), storage }
    }

    /// The containers that have a directory; none if that cannot be read. Blocks.
    pub(crate) fn list(&self) -> Vec<ContainerId> {
        let names = self.storage.entries(&self.root).unwrap_or_default();
        names.into_iter().map(|name| ContainerId(name.into())).collect()
    }

    pub(crate) fn path(&self, id: &ContainerId) -> Option<PathBuf> {
        // The runtime's ids are plain names; anything else could lead out of the directory.
        let is_name = !id.0.is_empty() && !id.0.starts_with('.') && !id.0.contains('/');
        if is_name { Some(self.root.join(&*id.0)) } else { None }
    }

    /// Makes the directory if it is not there, and its files say `content`. Blocks.
    ///
    /// # Errors
    /// Some files may have been replaced by then.
    pub(crate) fn write(&self, id: &ContainerId, content: &Content) -> io::Result<()> {
        let Some(directory) = self.path(id) else { return Err(io::ErrorKind::InvalidInput.into()) };
        // CPUs to leave are written first, so that a program which reads `cpus` never counts on CPUs
        // that it is about to lose.
        let files = [
            ("leaving", &content.leaving),
            ("shared", &content.shared),
            ("housekeeping", &content.housekeeping),
            ("numa_nodes", &content.cpus.numa_nodes),
            ("uncore_caches", &content.cpus.uncore_caches),
            ("cpus", &content.cpus.cpus),
        ];
        let files = files.map(|(name, value)| (name, format!("{value}\n")));
        self.storage.fill_directory(&directory, DIRECTORY_MODE, FILE_MODE, &files)
    }

    /// Blocks.
    pub(crate) fn remove(&self, id: &ContainerId) -> io::Result<()> {
        let Some(directory) = self.path(id) else { return Ok(()) };
        match self.storage.remove_directory(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
