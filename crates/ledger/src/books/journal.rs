//! [`Journal`]: notes for the log, until the daemon takes them.

use crate::note::{MoveReason, Note, Subject, What};
use cpuset::CpuSet;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    notes: Vec<Note>,
    moves: BTreeMap<MoveReason, u64>,
}

impl Journal {
    pub(crate) fn note(&mut self, warning: bool, subject: Subject, what: What) {
        self.notes.push(Note { warning, done: true, subject, what });
    }

    /// Notes that a running container moves to other exclusive CPUs.
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

    pub(crate) fn moves(&self) -> &BTreeMap<MoveReason, u64> {
        &self.moves
    }

    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// From this note on, keeps only some.
    pub(crate) fn retain_from(&mut self, first: usize, keep: impl Fn(&Note) -> bool) {
        let late = self.notes.split_off(first.min(self.notes.len()));
        self.notes.extend(late.into_iter().filter(keep));
    }

    pub(crate) fn extend(&mut self, notes: impl Iterator<Item = Note>) {
        self.notes.extend(notes);
    }

    pub(crate) fn take(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
