//! [`Journal`]: what the ledger did that is worth telling, until it is told.

use crate::cpuset::CpuSet;
use crate::ledger::note::{MoveReason, Note, Subject, What};
use std::collections::BTreeMap;

/// Notes for people, and how many containers were moved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    notes: Vec<Note>,
    moves: BTreeMap<MoveReason, u64>,
}

impl Journal {
    /// Something was done.
    pub(crate) fn note(&mut self, warning: bool, subject: Subject, what: What) {
        self.notes.push(Note { warning, done: true, subject, what });
    }

    /// A running container has other exclusive CPUs from now on.
    pub(crate) fn moved(
        &mut self,
        subject: Subject,
        from: Option<CpuSet>,
        to: CpuSet,
        why: MoveReason,
    ) {
        *self.moves.entry(why).or_default() += 1;
        self.note(true, subject, What::Moved { from, to, why });
    }

    /// How many containers were moved while they ran, by reason.
    pub(crate) fn moves(&self) -> &BTreeMap<MoveReason, u64> {
        &self.moves
    }

    /// How many notes there are.
    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Keeps those notes from this one on that are worth it.
    pub(crate) fn retain_from(&mut self, first: usize, keep: impl Fn(&Note) -> bool) {
        let late = self.notes.split_off(first.min(self.notes.len()));
        self.notes.extend(late.into_iter().filter(keep));
    }

    /// Adds notes of a rehearsal.
    pub(crate) fn extend(&mut self, notes: impl Iterator<Item = Note>) {
        self.notes.extend(notes);
    }

    /// The notes since the last call.
    pub(crate) fn take(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
