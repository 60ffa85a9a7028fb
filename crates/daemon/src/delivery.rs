//! [`Delivery`]: calls of the runtime that bring updates without an event, and how fast it makes
//! updates.

use super::calls::SentAnswer;
use super::pace::Pace;
use super::step::CallId;
use ledger::Update;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The least time between a failed call and the next one. The updates of a failed call are due at
/// once, so a runtime that fails every call would be called without a pause.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Whether due updates are written into cgroups while containers wait for CPUs of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writes {
    /// No: the runtime may not have made the updates by which the others leave these CPUs.
    WhenNoneWaits,
    /// Yes: a check pass has shown that the others have left, or this process has moved them itself.
    Always,
}

#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Whether the runtime can be called without an event.
    calls: bool,
    /// The updates of the call that is under way.
    calling: Option<Vec<Update>>,
    not_before: Option<Instant>,
    /// How long the runtime waits for an answer.
    pub(super) answer_within: Duration,
    /// Answers that the runtime may not have yet.
    pub(super) answers: BTreeMap<CallId, SentAnswer>,
    /// Whether to call as soon as [`is_free`](Delivery::is_free).
    pub(super) wants_call: bool,
    pub(super) pace: Pace,
}

impl Delivery {
    /// `calls`: whether the runtime can be called without an event.
    pub(super) fn connected(&mut self, calls: bool, answer_within: Duration) {
        self.calls = calls;
        self.answer_within = answer_within;
        self.answers.clear();
        self.not_before = None;
        self.pace.reconnected();
    }

    /// Whether updates can go out without an answer.
    pub(super) fn calls(&self) -> bool {
        self.calls
    }

    /// Whether a call could go out now.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        let waits = self.not_before.is_some_and(|not_before| now < not_before);
        self.calls && self.calling.is_none() && !waits
    }

    pub(super) fn called(&mut self, updates: Vec<Update>, now: Instant) {
        self.pace.called(&updates, now);
        self.calling = Some(updates);
    }

    /// The call that is under way has ended. Returns its updates.
    pub(super) fn returned(&mut self, made: bool, now: Instant) -> Vec<Update> {
        if made {
            self.pace.returned(now);
        } else {
            self.not_before = Some(now + AFTER_FAILURE);
        }
        self.calling.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_has_failed_is_not_repeated_at_once() {
        let now = Instant::now();
        let mut delivery = Delivery::default();
        delivery.connected(true, Duration::ZERO);
        delivery.called(Vec::new(), now);
        delivery.returned(true, now);
        assert!(delivery.is_free(now));
        delivery.called(Vec::new(), now);
        delivery.returned(false, now);
        assert!(!delivery.is_free(now));
        assert!(delivery.is_free(now + AFTER_FAILURE));
        delivery.connected(true, Duration::ZERO);
        assert!(delivery.is_free(now));
    }
}
