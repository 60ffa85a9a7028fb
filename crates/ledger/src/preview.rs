//! [`Preview`]: what events would change.

use super::Ledger;
use super::event::Event;
use super::note::Note;
use super::policy::Stance;
use super::view::View;
use std::sync::Arc;

/// The state before and after events that only a copy of the ledger has applied.
#[derive(Debug, Clone)]
pub struct Preview {
    pub before: Arc<View>,
    pub after: Arc<View>,
    /// What the copy notes about the events.
    pub notes: Vec<Note>,
}

impl Ledger {
    pub fn preview(&self, events: impl IntoIterator<Item = Event>) -> Preview {
        let mut copy = self.clone();
        copy.books.journal.take();
        for event in events {
            copy.apply(event);
        }
        // A ledger that would assign CPUs begins with what really runs, not with what an observer shows.
        let observes = copy.node.stance == Stance::Observe;
        let before = if observes { self.view() } else { self.actual_view() };
        Preview { before, after: copy.view(), notes: copy.take_notes() }
    }
}
