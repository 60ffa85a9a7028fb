//! The files `cgroups` and `quiet.json` in the state directory: what [`cgroups::Groups`] and
//! [`quiet::Steering`] have written, and what was there before.

use cgroups::CgroupRecords;
use kernel::{Kernel, RecordFile};
use quiet::Originals;
use state::disk::Storage;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "cgroups";
const QUIET_FILE: &str = "quiet.json";
const MODE: u32 = 0o600;
const PROGRAM: &str = "nri-cpu-manager";
/// A larger file is not one that this program has written.
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug)]
struct StateFile {
    path: PathBuf,
    storage: Arc<dyn Storage>,
}

impl RecordFile for StateFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        self.storage.read(&self.path, MAX_BYTES)
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        self.storage.replace(&self.path, MODE, content)
    }

    fn remove(&self) -> io::Result<()> {
        self.storage.remove(&self.path)
    }
}

/// Reads the memory in a state directory. `processes` is `/proc`, which names the boot.
pub fn open_records(
    state: &Path,
    storage: Arc<dyn Storage>,
    kernel: &dyn Kernel,
    processes: &Path,
) -> CgroupRecords {
    let file = StateFile { path: state.join(FILE), storage };
    CgroupRecords::open(Arc::new(file), PROGRAM, kernel, processes)
}

/// Reads what interrupts and latency knobs were before this program set them. `processes` is `/proc`,
/// which names the boot.
pub(super) fn open_originals(
    state: &Path,
    storage: Arc<dyn Storage>,
    kernel: &dyn Kernel,
    processes: &Path,
) -> Originals {
    let path = state.join(QUIET_FILE);
    let file = StateFile { path: path.clone(), storage };
    let (originals, problem) = Originals::open(Arc::new(file), kernel, processes);
    if let Some(why) = problem {
        log::warn!(
            "interrupts: cannot use {}: {why}; the present values of interrupts and latency knobs count as original",
            path.display()
        );
    }
    originals
}
