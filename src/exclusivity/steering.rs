//! What [`quiet::Steering`] needs on a node: its files, its record of original values, and irqbalance.

use super::memory::open_originals;
use crate::disk::Storage;
use kernel::Kernel;
use quiet::{IRQBALANCE_DIRECTORIES, Irqbalance, Roots, Steering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of interrupts and latency knobs: those below `host`, where the host's are mounted into a
/// container.
pub fn quiet_roots(host: Option<&Path>, proc: &Path, sys: &Path) -> Roots {
    match host {
        Some(host) => Roots { proc: host.join("proc"), sys: host.join("sys") },
        None => Roots { proc: proc.to_owned(), sys: sys.to_owned() },
    }
}

/// Reads the original values in a state directory. `processes` is `/proc`, which names the boot; `host` is
/// that of [`quiet_roots`].
pub fn open_steering(
    state: &Path,
    storage: Arc<dyn Storage>,
    kernel: &dyn Kernel,
    processes: &Path,
    roots: Roots,
    host: Option<&Path>,
) -> Steering {
    let originals = open_originals(state, storage, kernel, processes);
    let directories = IRQBALANCE_DIRECTORIES.iter().map(|directory| match host {
        Some(host) => host.join(directory.trim_start_matches('/')),
        None => PathBuf::from(directory),
    });
    Steering::new(roots, originals, Irqbalance::new(directories.collect()))
}
