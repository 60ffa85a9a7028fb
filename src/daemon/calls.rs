//! Calls of the runtime on their way to an answer.

use super::delivery::Sent;
use super::enforcement::CgroupStep;
use super::step::CallId;
use crate::ledger::{Decision, Note};
use crate::view::counters::{CreateOutcome, EventKind};
use std::time::Instant;

/// A call of the runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallInfo {
    pub(super) id: CallId,
    pub(super) kind: EventKind,
    pub(super) since: Instant,
}

/// A call that the ledger has handled, and that has no answer yet.
#[derive(Debug)]
pub(super) struct HandledCall {
    pub(super) call: CallInfo,
    pub(super) notes: Vec<Note>,
    pub(super) handled: Handled,
    /// Whether the answer comes before claims of others are on disk.
    pub(super) unsaved: bool,
}

#[derive(Debug)]
pub(super) enum Handled {
    Decision(Decision),
    Event { step: CgroupStep, lists: bool, answer_has_updates: bool },
}

/// An answer that the runtime may not have yet.
#[derive(Debug)]
pub(super) struct SentAnswer {
    pub(super) call: CallInfo,
    pub(super) outcome: CreateOutcome,
    pub(super) updates: usize,
    pub(super) sent: Sent,
}
