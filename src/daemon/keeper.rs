//! [`Keeper`]: the ledger, its checkpoint, and the record of what it does.

use super::persist::Checkpoint;
use crate::checkpoint::StateError;
use crate::ledger::{Channel, ContainerId, Event, Ledger, Note, Update, What};
use crate::nri::Refusal;
use crate::observe::clock::now;
use crate::observe::counters::EventKind;
use crate::observe::{Counters, History};
use crate::placement::Reason;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) ledger: Ledger,
    pub(super) checkpoint: Checkpoint,
    pub(super) counters: Counters,
    history: Arc<History>,
}

impl Keeper {
    pub(super) fn new(ledger: Ledger, checkpoint: Checkpoint) -> Keeper {
        Keeper { ledger, checkpoint, counters: Counters::default(), history: Arc::default() }
    }

    /// Handles an event without an answer. The next delivery carries its updates. The ledger
    /// refuses no such event.
    pub(super) fn note(&mut self, event: Event) {
        let updates = self.ledger.handle(event).unwrap_or_default().updates;
        if !updates.is_empty() {
            // Never refused.
            let _ = self.ledger.handle(Event::Undelivered(updates));
        }
        self.log_notes();
    }

    pub(super) fn deliver(&mut self, channel: Channel) -> Vec<Update> {
        // Never refused.
        self.ledger.handle(Event::Deliver(channel)).unwrap_or_default().updates
    }

    /// Logs and records what the ledger did since the last call, and returns it.
    pub(super) fn log_notes(&mut self) -> Vec<Note> {
        let notes = self.ledger.take_notes();
        notes.iter().for_each(|note| self.log(note));
        notes
    }

    fn log(&mut self, note: &Note) {
        let level = if note.warning { log::Level::Warn } else { log::Level::Info };
        log::log!(level, "{note}");
        self.history().note(now(), note);
    }

    pub(super) async fn save(&mut self) -> Result<(), StateError> {
        let result = self.checkpoint.save(&self.ledger).await;
        self.counters.checkpoint_errors += u64::from(result.is_err());
        result
    }

    /// Refuses an event that the ledger has granted: counts, logs and records it.
    pub(super) fn refuse(
        &mut self,
        kind: EventKind,
        created: Option<&ContainerId>,
        why: &str,
    ) -> Refusal {
        let placement = &self.ledger.settings().placement;
        self.counters.rejected(kind, Reason::UnexpectedAdmission, placement);
        let why = format!("UnexpectedAdmissionError: {why}");
        if let Some(placed) = created.and_then(|id| self.ledger.target(id)) {
            let what = What::Refused { why: why.clone(), request: None };
            self.log(&Note { warning: true, done: true, subject: placed.subject, what });
        }
        Refusal(why)
    }

    /// The history, to add to it. Views that exist keep theirs.
    pub(super) fn history(&mut self) -> &mut History {
        Arc::make_mut(&mut self.history)
    }

    pub(super) fn past(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }
}
