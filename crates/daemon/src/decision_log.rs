//! [`DecisionLog`]: what the ledger does, for the log, the counters and later explanations.

use edge::Refusal;
use ledger::{ContainerId, Ledger, Note, Subject, What};
use placement::{Reason, Rejection};
use state::clock::now;
use status::counters::EventKind;
use status::{Counters, History};
use std::sync::Arc;
use std::time::Instant;
use wording::Repeats;

#[derive(Debug, Default)]
pub(super) struct DecisionLog {
    pub(super) counters: Counters,
    history: Arc<History>,
    /// Notes, and what the owner logs itself.
    pub(super) repeats: Repeats,
}

impl DecisionLog {
    /// Logs and records what the ledger did.
    pub(super) fn log_all(&mut self, notes: &[Note], at: Instant) {
        for note in notes {
            self.log(note, at);
        }
    }

    fn log(&mut self, note: &Note, at: Instant) {
        let level = if note.warning { log::Level::Warn } else { log::Level::Info };
        if is_change(&note.what) {
            log::log!(level, "{note}");
        } else if let Some(times) = self.repeats.occurred(&note.to_string(), at) {
            log::log!(level, "{note}{times}");
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
            self.log(&note, at);
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

/// Whether a container's CPUs change, which happens once. The other notes are about a state that is found again by
/// each list of the runtime, or by each try of the kubelet.
fn is_change(what: &What) -> bool {
    match what {
        What::Assigned { .. }
        | What::PodAssigned { .. }
        | What::SharesOwnPool(_)
        | What::Kept(_)
        | What::Moved { .. }
        | What::Rebalanced { .. }
        | What::Resized { .. }
        | What::Announced { .. }
        | What::Released(_) => true,
        What::Held(_)
        | What::Adopted(_)
        | What::Suggested { .. }
        | What::LeftShared(_)
        | What::Refused { .. }
        | What::Outlasts(_)
        | What::Contested(_)
        | What::LeftAlone { .. }
        | What::NoEffect { .. }
        | What::TooMany(_)
        | What::LeftToRuntime => false,
    }
}
