//! [`Journal`]: notes for the log that the daemon has yet to take.

use crate::note::{MoveReason, Note, Subject, What};
use cpuset::CpuSet;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    notes: Vec<Note>,
    moves: BTreeMap<MoveReason, u64>,
    /// Until CPUs are assigned on a node on which no process has done so before.
    pub(crate) installing: bool,
}

impl Journal {
    pub(crate) fn note(&mut self, warning: bool, subject: Subject, what: What) {
        self.notes.push(Note { warning, done: true, subject, what });
    }

    /// Notes and counts a move of a running container to other exclusive CPUs. Moves by an installation are expected:
    /// they neither warn nor count.
    pub(crate) fn moved(
        &mut self,
        subject: Subject,
        from: Option<CpuSet>,
        to: CpuSet,
        why: MoveReason,
    ) {
        if !self.installing {
            *self.moves.entry(why).or_default() += 1;
        }
        // A container that started before the plugin has no CPUs to lose, and gets its own as a new one does.
        let warning = !self.installing && why != MoveReason::Unpinned;
        self.note(warning, subject, What::Moved { from, to, why });
    }

    pub(crate) fn moves(&self) -> &BTreeMap<MoveReason, u64> {
        &self.moves
    }

    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Drops notes that do not meet the condition, beginning with the note at index `first`.
    pub(crate) fn retain_from(&mut self, first: usize, keep: impl Fn(&Note) -> bool) {
        let rest = self.notes.split_off(first.min(self.notes.len()));
        self.notes.extend(rest.into_iter().filter(keep));
    }

    pub(crate) fn extend(&mut self, notes: impl Iterator<Item = Note>) {
        self.notes.extend(notes);
    }

    pub(crate) fn take(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
