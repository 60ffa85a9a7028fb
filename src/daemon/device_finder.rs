//! [`DeviceFinder`]: asks the kubelet and NVIDIA's driver where devices are; both may take long.

use super::devices::{FoundDevices, given};
use crate::worker::Worker;
use kernel::Linux;
use podresources::Kubelet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use topology::sysfs::{self, Gpu};

/// How long the driver's files may take. A GPU that is being reset takes longer.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct DeviceFinder {
    /// `None` if the socket's directory is not mounted into the plugin's container.
    kubelet: Option<Kubelet>,
    proc: PathBuf,
    sysfs: PathBuf,
    /// May hang.
    reader: Worker,
    /// Whether the thread waits for the driver. A second reading would wait as long.
    is_reading: Arc<AtomicBool>,
}

impl DeviceFinder {
    pub(super) fn new(kubelet: &Path, proc: &Path, sysfs: &Path, reader: Worker) -> DeviceFinder {
        let is_there = kubelet.parent().is_some_and(Path::is_dir);
        DeviceFinder {
            kubelet: is_there.then(|| Kubelet::new(kubelet.to_owned())),
            proc: proc.to_owned(),
            sysfs: sysfs.to_owned(),
            reader,
            is_reading: Arc::default(),
        }
    }

    pub(super) async fn find(&self) -> FoundDevices {
        let gpus = self.read_gpus();
        let kubelet = match &self.kubelet {
            None => None,
            Some(kubelet) => Some(kubelet.devices().await.map(given)),
        };
        let gpus = tokio::task::spawn_blocking(move || gpus?.recv_timeout(PATIENCE).ok()).await;
        FoundDevices { gpus: gpus.unwrap_or_default(), kubelet }
    }

    /// The driver's GPUs; none if it takes too long.
    pub(super) fn gpus(&self) -> Vec<Gpu> {
        self.read_gpus().and_then(|gpus| gpus.recv_timeout(PATIENCE).ok()).unwrap_or_default()
    }

    fn read_gpus(&self) -> Option<mpsc::Receiver<Vec<Gpu>>> {
        if self.is_reading.swap(true, Ordering::Relaxed) {
            return None;
        }
        let proc = self.proc.clone();
        let sysfs = self.sysfs.clone();
        let is_reading = Arc::clone(&self.is_reading);
        let (found, gpus) = mpsc::channel();
        self.reader.give(move || {
            // The receiver may have given up.
            let _ = found.send(sysfs::gpus(&Linux, &proc, &sysfs));
            is_reading.store(false, Ordering::Relaxed);
        });
        Some(gpus)
    }
}
