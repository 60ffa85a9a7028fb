//! [`ConsumerFiles`]: what pods that read the kubelet's files get in their place (`consumers`).
//!
//! The state file is replaced by a rename, so that a reader never gets half of it. A container that
//! mounts the directory sees each replacement; one that mounts only the file keeps the version from
//! its creation. A write into that version would reach it, but could show it half a file.

use crate::config::Consumer;
use crate::disk::Storage;
use crate::edge::Mount;
use crate::kubelet::StateFile;
use ledger::{Ledger, Policy};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Below the state directory.
const DIRECTORY: &str = "kubelet";
const FILE: &str = "cpu_manager_state";
/// Only the plugin writes; a container may run as any user.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;
/// How long after the file could not be written to try again.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ConsumerFiles {
    directory: PathBuf,
    storage: Arc<dyn Storage>,
    /// The directory with the podresources socket, if podresources are served.
    pod_resources: Option<PathBuf>,
    /// What this process has written last.
    written: Option<String>,
    /// Whether the file may differ from the ledger.
    pub(super) outdated: bool,
    retry_at: Option<Instant>,
}

impl ConsumerFiles {
    pub(super) fn below(
        state: &Path,
        storage: Arc<dyn Storage>,
        pod_resources: Option<PathBuf>,
    ) -> ConsumerFiles {
        ConsumerFiles {
            directory: state.join(DIRECTORY),
            storage,
            pod_resources,
            written: None,
            outdated: true,
            retry_at: None,
        }
    }

    /// When to write the file that could not be written.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Writes the state file if the ledger has changed. Returns whether the file is up to date; if
    /// not, the write is tried again later.
    pub(super) fn follow(&mut self, ledger: &Ledger, now: Instant) -> bool {
        self.outdated = false;
        self.retry_at = None;
        let text = state_file(ledger).to_json();
        if self.written.as_ref() == Some(&text) {
            return true;
        }
        let files = [(FILE, text.clone())];
        let result =
            self.storage.fill_directory(&self.directory, DIRECTORY_MODE, FILE_MODE, &files);
        if let Err(error) = result {
            let directory = self.directory.display();
            log::error!("consumers: cannot write {FILE} in {directory}: {error}");
            self.written = None;
            self.retry_at = Some(now + RETRY);
            return false;
        }
        self.written = Some(text);
        true
    }

    /// The mounts for containers of a pod that `consumer` matches. A missing source would fail the
    /// container, so there is no mount then: the container has the kubelet's file, or none.
    pub(super) fn mounts(
        &mut self,
        consumer: &Consumer,
        ledger: &Ledger,
        now: Instant,
    ) -> Vec<Mount> {
        let mut mounts = Vec::new();
        let Consumer { state_dir, state_file, pod_resources, .. } = consumer;
        if (state_dir.is_some() || state_file.is_some()) && self.follow(ledger, now) {
            let file = self.directory.join(FILE);
            mounts.extend(state_dir.as_deref().and_then(|at| mount(&self.directory, at)));
            mounts.extend(state_file.as_deref().and_then(|at| mount(&file, at)));
        }
        if let Some(at) = pod_resources {
            match self.pod_resources() {
                Ok(directory) => mounts.extend(mount(directory, at)),
                Err(why) => log::error!("consumers: no podresources to mount: {why}"),
            }
        }
        mounts
    }

    /// The directory with the podresources socket. It is made here, as a container may be created
    /// before the socket is.
    fn pod_resources(&self) -> io::Result<&Path> {
        let Some(directory) = &self.pod_resources else {
            let why = "the plugin serves none; set podResources, or use the overlay podresources";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        self.storage.create_directory(directory, DIRECTORY_MODE)?;
        Ok(directory)
    }
}

/// `None` for a path that is not UTF-8: no message can have it.
fn mount(source: &Path, at: &Path) -> Option<Mount> {
    let source = source.to_str()?.to_owned();
    Some(Mount { source, destination: at.to_str()?.to_owned() })
}

/// What the kubelet's CPU manager would have written with these decisions.
fn state_file(ledger: &Ledger) -> StateFile {
    let settings = ledger.settings();
    match settings.policy {
        Policy::Static => {
            StateFile::of(ledger.claims(), ledger.topology().online(), &settings.placement)
        }
        Policy::None => StateFile::of_no_policy(),
    }
}
