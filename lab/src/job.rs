//! What the host and a guest tell each other.

use serde::{Deserialize, Serialize};

use crate::software::Software;
use crate::step::{Outcome, Step};

/// What a guest is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// With what.
    pub software: Software,
    /// CPUs to take offline first.
    pub offline: Vec<usize>,
    /// The parts, each of several steps, in order. Each begins on an empty node.
    pub parts: Vec<Vec<Step>>,
    /// The plugin's configuration, if a person is to have a prompt then.
    pub shell: Option<String>,
}

/// What a guest says, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The kernel and containerd have come up.
    Booted {
        /// Seconds since the kernel began, by the guest's clock.
        uptime: f64,
    },
    /// What is being done.
    Progress(String),
    /// What came of the next step.
    Outcome(Outcome),
    /// A step of this part failed; the next part follows.
    Failed(String),
    /// A person can type now.
    Prompt,
    /// The guest cannot go on; nothing follows.
    Broken(String),
}
