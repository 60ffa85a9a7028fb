//! Why a container was refused (stand-in until placement has its own).

use std::fmt;

/// A refusal with the kubelet's reason name and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The kubelet's name for it.
    pub reason: &'static str,
    /// What to tell a person.
    pub message: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
