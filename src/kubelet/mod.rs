//! The kubelet's own CPU manager: its assignments, and whether it is active.
//!
//! Only one program may assign a node's CPUs. If that is the kubelet (`cpuManagerPolicy: static`),
//! the plugin stands back, see `ActivityDetector`. Afterwards it takes over the kubelet's
//! assignments without moving a container.

mod activity;
mod state;
mod state_file_watcher;

pub(crate) use activity::{ActivityDetector, Change, Sign};
pub use state::{StateFile, StateFileError};
pub(crate) use state_file_watcher::{INTERVAL, Look, StateFileWatcher};
