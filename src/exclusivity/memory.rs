//! The file `cgroups` in the state directory: what [`cgroups::Groups`] has written.

use crate::disk::Storage;
use cgroups::{Memory, MemoryFile};
use kernel::Kernel;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "cgroups";
const MODE: u32 = 0o600;
const PROGRAM: &str = "nri-cpu-manager";
/// A larger file is not one that this program has written.
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug)]
struct CgroupsFile {
    path: PathBuf,
    storage: Arc<dyn Storage>,
}

impl MemoryFile for CgroupsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        self.storage.read(&self.path, MAX_BYTES)
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        self.storage.replace(&self.path, MODE, content)
    }
}

/// Reads the memory in a state directory. `processes` is `/proc`, which names the boot.
pub fn open_memory(
    state: &Path,
    storage: Arc<dyn Storage>,
    kernel: &dyn Kernel,
    processes: &Path,
) -> Memory {
    let file = CgroupsFile { path: state.join(FILE), storage };
    Memory::open(Arc::new(file), PROGRAM, kernel, processes)
}
