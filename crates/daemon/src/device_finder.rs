//! [`DeviceFinder`]: asks the kubelet and NVIDIA's driver where devices are; both may take long.

use super::devices::{FoundDevices, given};
use super::result_of;
use super::threads::{Clients, Threads};
use kernel::Linux;
use podresources::Kubelet;
use state::worker::Worker;
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
    kubelet: Option<Arc<Kubelet>>,
    proc: PathBuf,
    sysfs: PathBuf,
    /// The kubelet's side of a connection may send anything, as fast as it can.
    clients: Clients,
    /// May hang.
    reader: Worker,
    /// Whether the thread waits for the driver. A second reading would wait as long.
    is_reading: Arc<AtomicBool>,
}

impl DeviceFinder {
    pub(super) fn new(
        kubelet: &Path,
        proc: &Path,
        sysfs: &Path,
        threads: &Threads,
    ) -> DeviceFinder {
        let is_there = kubelet.parent().is_some_and(Path::is_dir);
        DeviceFinder {
            kubelet: is_there.then(|| Arc::new(Kubelet::new(kubelet.to_owned()))),
            proc: proc.to_owned(),
            sysfs: sysfs.to_owned(),
            clients: threads.clients.clone(),
            reader: threads.gpus.clone(),
            is_reading: Arc::default(),
        }
    }

    pub(super) async fn find(&self) -> FoundDevices {
        let gpus = self.read_gpus();
        let kubelet = match self.kubelet.clone() {
            None => None,
            Some(kubelet) => {
                let asked = async move { kubelet.devices().await.map(given) };
                Some(result_of(&mut self.clients.spawn(asked)).await)
            }
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
