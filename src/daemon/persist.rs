//! [`Checkpoint`]: whether the ledger's claims are on disk, and what waits until they are.

use super::calls::HandledCall;
use crate::checkpoint::StateError;
use std::time::{Duration, Instant};

/// How long after a failed write to try again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Checkpoint {
    /// Whether claims may have changed since the last write, or try, has begun.
    pub(super) changed: bool,
    is_writing: bool,
    /// How many writes have begun.
    begun: u64,
    failed: Option<Failure>,
    /// What waits for the end of which write.
    waiting: Vec<(u64, AfterSave)>,
}

/// The last write has failed, or is stalled.
#[derive(Debug)]
struct Failure {
    why: String,
    retry_at: Instant,
}

/// What comes after the claims are on disk.
#[derive(Debug)]
pub(super) enum AfterSave {
    Answer(Box<HandledCall>),
    Deliver,
    Move,
}

impl Checkpoint {
    pub(super) fn new() -> Checkpoint {
        Checkpoint { changed: true, is_writing: false, begun: 0, failed: None, waiting: Vec::new() }
    }

    /// Whether claims of the ledger are not on disk.
    pub(super) fn is_pending(&self) -> bool {
        self.changed || self.is_writing
    }

    /// Begins a write of the claims if that is needed and possible.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.changed && !self.is_writing;
        if begins {
            self.changed = false;
            self.is_writing = true;
            self.begun += 1;
        }
        begins
    }

    /// Returns whether the write before had failed.
    pub(super) fn ended(&mut self, result: &Result<(), StateError>, now: Instant) -> bool {
        self.is_writing = false;
        let failure = result
            .as_ref()
            .err()
            .map(|error| Failure { why: error.to_string(), retry_at: now + RETRY });
        std::mem::replace(&mut self.failed, failure).is_some()
    }

    /// Has this wait for the end of the write that has all claims of now. One delivery is enough.
    pub(super) fn wait(&mut self, then: AfterSave) {
        let number = self.begun + u64::from(self.changed);
        let is_delivery = |(of, what): &(u64, AfterSave)| {
            *of == number && matches!((what, &then), (AfterSave::Deliver, AfterSave::Deliver))
        };
        if !self.waiting.iter().any(is_delivery) {
            self.waiting.push((number, then));
        }
    }

    /// What has waited for the writes that have ended.
    pub(super) fn take_due(&mut self) -> Vec<AfterSave> {
        let waiting = std::mem::take(&mut self.waiting);
        let (due, later) = waiting.into_iter().partition(|(number, _)| *number <= self.begun);
        self.waiting = later;
        due.into_iter().map(|(_, then): (u64, AfterSave)| then).collect()
    }

    /// When a failed write is to be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        if self.is_writing { None } else { self.failed.as_ref().map(|failure| failure.retry_at) }
    }

    pub(super) fn error(&self) -> Option<String> {
        self.failed.as_ref().map(|failure| failure.why.clone())
    }

    /// The runtime has connected again: calls of the connection before have no answer.
    pub(super) fn drop_answers(&mut self) {
        self.waiting.retain(|(_, then)| !matches!(then, AfterSave::Answer(_)));
    }
}
