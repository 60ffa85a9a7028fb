//! The kubelet beside us: what its own CPU manager has assigned, and whether it still assigns.
//!
//! A node has one that assigns CPUs. If that is the kubelet (`cpuManagerPolicy: static`), the plugin stands back, see
//! [`Guard`]; once it no longer is, the plugin takes over what the kubelet assigned, without moving anybody.

mod guard;
mod state;
mod watch;

pub use guard::{Change, Guard, Sign};
pub use state::{State, StateError};
pub use watch::{FILE, INTERVAL, Look, StateFileWatcher};
