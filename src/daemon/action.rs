//! [`Action`]: what the daemon does about a drift.

use std::fmt;

/// How a drift was repaired, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The container's control group was written.
    Written,
    /// The daemon calls the runtime with the update again.
    Sent,
    /// The next answer repeats the update: a call could deadlock this runtime.
    Deferred,
    /// The processes were allowed all of their container's CPUs.
    Widened,
    /// The administrator has to change what starts the processes.
    Inherited,
    /// Nothing would be safe.
    Nothing,
}

impl Action {
    /// A short name that stays, for figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Written => "written",
            Action::Sent => "told",
            Action::Deferred => "deferred",
            Action::Widened => "widened",
            Action::Inherited | Action::Nothing => "none",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Written => "set again",
            Action::Sent => "the runtime is told again",
            Action::Deferred => "the runtime is told again with the next answer to it",
            Action::Widened => "widened",
            Action::Inherited => "see CPUAffinity of the runtime's systemd unit",
            Action::Nothing => "there is nothing that would be safe to do about it",
        })
    }
}
