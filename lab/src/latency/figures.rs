//! What is measured, and the figures.

use serde::{Deserialize, Serialize};

/// What keeps exclusivity: values of the plugin's configuration. Without the plugin nothing does,
/// and what grows then is the runtime's and the machine's own share.
pub(super) const MODES: [Option<&str>; 4] = [None, Some("runtime"), Some("groups"), Some("kernel")];

/// What is to be measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// Numbers of running shared containers, ascending.
    pub shared: Vec<usize>,
    /// Measurements for each number and mode.
    pub samples: usize,
}

/// The medians for one number of shared containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Running shared containers.
    pub shared: usize,
    /// Milliseconds, for each of the modes.
    pub millis: [f64; MODES.len()],
}

/// What a write to the cgroup of a class takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassWrite {
    /// Containers below the class.
    pub containers: usize,
    /// Tasks below it: a container's, and a sandbox's for each pod.
    pub tasks: usize,
    /// Milliseconds, the median.
    pub millis: f64,
}
