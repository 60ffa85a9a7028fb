//! The kubelet's own CPU manager and Memory Manager: their assignments, and whether they are active.
//!
//! Only one program may assign a node's CPUs. If that is the kubelet (`cpuManagerPolicy: static`),
//! the plugin stands back, see `ActivityDetector`. Afterwards it takes over the kubelet's
//! assignments without moving a container.

mod activity;
mod memory_state;
mod state;
mod state_file_watcher;

use ledger::Stance;
use std::path::Path;

pub(crate) use activity::{ActivityDetector, Change, Sign};
pub use memory_state::{
    CountedMemory, CountedNode, MemoryBlock, MemoryStateError, MemoryStateFile, MemoryStateFormat,
    NotForKubelet,
};
pub use state::{StateFile, StateFileError};
pub(crate) use state_file_watcher::{INTERVAL, StateFileWatcher};
pub use state_file_watcher::{KubeletReading, StateFileReading};

/// Whether the state file in a kubelet's directory names the policy that assigns CPUs.
pub fn is_active(kubelet_dir: &Path) -> bool {
    let mut detector = ActivityDetector::new(Stance::Refuse);
    if let Some(reading) = StateFileWatcher::new(kubelet_dir).read() {
        detector.note_files(reading);
    }
    detector.is_active()
}
