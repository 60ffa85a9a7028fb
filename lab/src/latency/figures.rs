//! What is measured, and the figures.

use serde::{Deserialize, Serialize};

/// What keeps exclusivity: values of the plugin's configuration. Without the plugin nothing does,
/// and what grows then is the runtime's and the machine's own share.
pub(super) const MODES: [Option<&str>; 4] = [None, Some("runtime"), Some("groups"), Some("kernel")];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    pub shared: Vec<usize>,
    /// Per number and mode.
    pub samples: usize,
}

/// The medians for one number of shared containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub shared: usize,
    pub millis: [f64; MODES.len()],
}

/// Median time of a write to the cgroup of a class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassWrite {
    pub containers: usize,
    /// One per container, and one per pod for its sandbox.
    pub tasks: usize,
    /// Median.
    pub millis: f64,
}
