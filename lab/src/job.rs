//! What the host and a guest tell each other.

use serde::{Deserialize, Serialize};

use crate::software::Software;
use crate::step::{Outcome, Step};

#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub software: Software,
    pub offline: Vec<usize>,
    /// Each part starts on an empty node.
    pub parts: Vec<Vec<Step>>,
    /// The plugin's configuration if a shell follows.
    pub shell: Option<String>,
}

/// A message from the guest, one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// containerd is ready.
    Booted {
        /// Seconds since the kernel began, by the guest's clock.
        uptime: f64,
    },
    Progress(String),
    /// Of the next step.
    Outcome(Outcome),
    /// The rest of this part is skipped; the next part follows.
    Failed(String),
    /// The shell is ready.
    Prompt,
    /// The guest cannot continue. Last message.
    Broken(String),
}
