//! What is measured, and the figures: what host and guest exchange.

use serde::{Deserialize, Serialize};

/// Exclusivity mechanisms of the configuration. Without the plugin, only the runtime's and the
/// machine's own share grows.
pub(super) const MODES: [Option<&str>; 4] = [None, Some("runtime"), Some("groups"), Some("kernel")];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencySettings {
    pub shared: Vec<usize>,
    /// Per number and mode.
    pub samples: usize,
}

/// The medians for one number of shared containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Medians {
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
