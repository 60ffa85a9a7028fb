//! What goes out to the runtime: answers, and calls that bring updates without an event
//! ([`Delivery`]).

use super::pace::Pace;
use crate::ledger::{Decision, Due, Update};
use std::time::Instant;

/// What an answer carries.
#[derive(Debug)]
pub(super) enum Sent {
    /// The runtime reads no updates from it, or the request is refused.
    Nothing,
    Decision(Decision),
    Due(Due),
}

#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Whether the runtime can be called without an event.
    calls: bool,
    /// The updates of the call that is under way.
    calling: Option<Vec<Update>>,
    /// Whether updates are due that the last answer could not carry.
    pub(super) owing: bool,
    pub(super) pace: Pace,
}

impl Delivery {
    /// `calls`: whether the runtime can be called without an event.
    pub(super) fn connected(&mut self, calls: bool) {
        self.calls = calls;
        self.pace.reconnected();
    }

    /// Whether updates can go out without an answer.
    pub(super) fn calls(&self) -> bool {
        self.calls
    }

    /// Whether a call could go out now.
    pub(super) fn is_free(&self) -> bool {
        self.calls && self.calling.is_none()
    }

    /// A call goes out.
    pub(super) fn called(&mut self, updates: Vec<Update>, now: Instant) {
        self.pace.called(&updates, now);
        self.calling = Some(updates);
    }

    /// The call that is under way has ended. Returns its updates.
    pub(super) fn returned(&mut self, made: bool, now: Instant) -> Vec<Update> {
        if made {
            self.pace.returned(now);
        }
        self.calling.take().unwrap_or_default()
    }
}
