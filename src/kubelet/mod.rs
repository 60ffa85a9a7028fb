//! The kubelet beside us: what its own CPU manager has assigned, and whether it still assigns.
//!
//! A node has one that assigns CPUs. If that is the kubelet (`cpuManagerPolicy: static`), the
//! plugin stands back, see [`ActivityDetector`]; once it no longer is, the plugin takes over what
//! the kubelet assigned, without moving a container.

mod activity;
mod state;
mod state_file_watcher;

pub use activity::{ActivityDetector, Change, Sign};
pub use state::{StateFile, StateFileError};
pub use state_file_watcher::{FILE, INTERVAL, Look, StateFileWatcher};
