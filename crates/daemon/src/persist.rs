//! [`Checkpoint`]: whether the ledger's claims are on disk.

use state::checkpoint::StateError;
use std::time::{Duration, Instant};

/// How long after a failed write to try again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Checkpoint {
    /// Whether claims may have changed since the last write has begun.
    pub(super) changed: bool,
    is_writing: bool,
    /// How many writes have begun.
    begun: u64,
    failed: Option<Failure>,
}

/// A write of the claims, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Save(u64);

/// The last write has failed, or is stalled.
#[derive(Debug)]
struct Failure {
    why: String,
    retry_at: Instant,
}

impl Checkpoint {
    pub(super) fn new() -> Checkpoint {
        Checkpoint { changed: true, is_writing: false, begun: 0, failed: None }
    }

    /// Whether a write of the present claims is due or under way. After a failed write it is not:
    /// nothing waits for a disk that fails.
    pub(super) fn is_pending(&self) -> bool {
        self.changed || self.is_writing
    }

    /// Whether a write is needed and possible.
    pub(super) fn is_due(&self) -> bool {
        self.changed && !self.is_writing
    }

    pub(super) fn begin(&mut self) {
        self.changed = false;
        self.is_writing = true;
        self.begun += 1;
    }

    /// The write has ended. Returns whether the one before it had failed.
    pub(super) fn ended(&mut self, result: &Result<(), StateError>, now: Instant) -> bool {
        self.is_writing = false;
        let failure = result
            .as_ref()
            .err()
            .map(|error| Failure { why: error.to_string(), retry_at: now + RETRY });
        std::mem::replace(&mut self.failed, failure).is_some()
    }

    /// The write that has all present claims: the next one, or the last that has begun.
    pub(super) fn save_of_now(&self) -> Save {
        Save(self.begun + u64::from(self.changed))
    }

    /// Whether this write has ended, on disk or [failed](Checkpoint::error).
    pub(super) fn has_ended(&self, Save(number): Save) -> bool {
        number < self.begun || (number == self.begun && !self.is_writing)
    }

    /// When a failed write is to be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        if self.is_writing { None } else { self.failed.as_ref().map(|failure| failure.retry_at) }
    }

    pub(super) fn error(&self) -> Option<String> {
        self.failed.as_ref().map(|failure| failure.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_during_a_write_is_in_the_next_one() {
        let mut checkpoint = Checkpoint::new();
        let now = Instant::now();
        let first = checkpoint.save_of_now();
        checkpoint.begin();
        checkpoint.changed = true;
        let second = checkpoint.save_of_now();
        assert!(!checkpoint.has_ended(first) && !checkpoint.is_due());
        checkpoint.ended(&Ok(()), now);
        assert!(checkpoint.has_ended(first) && !checkpoint.has_ended(second));
        assert!(checkpoint.is_due());
        checkpoint.begin();
        assert!(checkpoint.has_ended(first) && !checkpoint.has_ended(second));
        checkpoint.ended(&Ok(()), now);
        assert!(checkpoint.has_ended(second) && !checkpoint.is_pending());
        assert!(checkpoint.has_ended(checkpoint.save_of_now()), "all of now is on disk");
    }
}
