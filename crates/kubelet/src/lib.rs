//! The kubelet's own CPU manager: its assignments, and whether it is active.
//!
//! Only one program may assign a node's CPUs. If that is the kubelet (`cpuManagerPolicy: static`),
//! the plugin stands back, see `ActivityDetector`. Afterwards it takes over the kubelet's
//! assignments without moving a container.

mod activity;
mod state;
mod state_file_watcher;

use config::Mode;
use std::path::Path;

pub use activity::{ActivityDetector, Change, Sign};
pub use state::{StateFile, StateFileError};
pub use state_file_watcher::StateFileReading;
pub use state_file_watcher::{INTERVAL, StateFileWatcher};

/// Whether the state file in a kubelet's directory names the policy that assigns CPUs.
pub fn is_active(kubelet_dir: &Path) -> bool {
    let mut detector = ActivityDetector::new(Mode::Enforce);
    if let Some(reading) = StateFileWatcher::new(kubelet_dir).read() {
        detector.note_file(reading);
    }
    detector.is_active()
}
