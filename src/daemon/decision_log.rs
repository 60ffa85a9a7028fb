//! [`DecisionLog`]: what the ledger does, for the log, the counters and later explanations.

use crate::clock::now;
use crate::edge::Refusal;
use crate::view::counters::EventKind;
use crate::view::{Counters, History};
use ledger::{ContainerId, Ledger, Note, Subject, What};
use placement::{Reason, Rejection};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kubelet repeats a refused resize every second: of a row of equal refusals the log has the
/// first, and then one in this many.
const EVERY: u64 = 60;

/// A refusal after this time without one starts a new row.
const QUIET_PERIOD: Duration = Duration::from_secs(120);

/// Refused resizes of running containers, with the reason, how often it was given in a row, and
/// when it was last given.
#[derive(Debug, Default)]
struct RefusedResizes(HashMap<ContainerId, (String, u64, Instant)>);

impl RefusedResizes {
    /// Records a refusal. Returns which one of the row it is.
    fn count(&mut self, id: &ContainerId, why: &str, now: Instant) -> u64 {
        self.0.retain(|_, (_, _, last)| now - *last < QUIET_PERIOD);
        match self.0.get_mut(id) {
            Some((same, times, last)) if same == why => {
                *times += 1;
                *last = now;
                *times
            }
            _ => {
                self.0.insert(id.clone(), (why.to_owned(), 1, now));
                1
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct DecisionLog {
    pub(super) counters: Counters,
    history: Arc<History>,
    refused: RefusedResizes,
}

impl DecisionLog {
    /// Logs and records what the ledger did.
    pub(super) fn log_all(&mut self, notes: &[Note], ledger: &Ledger, at: Instant) {
        for note in notes {
            self.log(note, ledger, at);
        }
    }

    fn log(&mut self, note: &Note, ledger: &Ledger, at: Instant) {
        let times = match &note.what {
            What::Refused { why, .. } if ledger.target(&note.subject.id).is_some() => {
                self.refused.count(&note.subject.id, why, at)
            }
            _ => 1,
        };
        let level = if note.warning { log::Level::Warn } else { log::Level::Info };
        if times == 1 {
            log::log!(level, "{note}");
        } else if times.is_multiple_of(EVERY) {
            log::log!(level, "{note} ({times} times)");
        }
        self.history().note(now(), note);
    }

    /// Refuses what the ledger has granted: counts, logs and records it.
    pub(super) fn refuse(
        &mut self,
        kind: EventKind,
        container: &ContainerId,
        why: &str,
        ledger: &Ledger,
        at: Instant,
    ) -> Refusal {
        let placement = &ledger.settings().placement;
        let rejection = Rejection::new(Reason::UnexpectedAdmission, why.to_owned());
        self.counters.rejected(kind, &rejection, placement);
        let why = rejection.to_string();
        if let Some(target) = ledger.target(container) {
            let what = What::Refused { why: why.clone(), request: None, devices: Vec::new() };
            let note = Note { warning: true, done: true, subject: target.subject, what };
            self.log(&note, ledger, at);
        }
        Refusal(why)
    }

    pub(super) fn partition_refused(&mut self, subject: Subject, why: String) {
        self.history().partition_refused(now(), subject, why);
    }

    /// The history for a change. Views that were made before keep the history that they have.
    pub(super) fn history(&mut self) -> &mut History {
        Arc::make_mut(&mut self.history)
    }

    pub(super) fn past(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusals_of_a_resize_are_one_row() {
        let mut refused = RefusedResizes::default();
        let (a, b) = (ContainerId("a".into()), ContainerId("b".into()));
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        for n in 0..60 {
            assert_eq!(refused.count(&a, "requested=4, available=2", second(n)), n + 1);
        }
        assert_eq!(refused.count(&b, "requested=4, available=2", second(60)), 1);
        assert_eq!(refused.count(&a, "requested=6, available=2", second(60)), 1);
        assert_eq!(refused.count(&a, "requested=6, available=2", second(61)), 2);
        assert_eq!(refused.count(&a, "requested=6, available=2", second(200)), 1);
        assert_eq!(refused.0.len(), 1);
    }
}
