//! Calls of the runtime on their way to an answer.

use super::persist::Save;
use super::step::CallId;
use ledger::{ContainerId, Decision, Due, Note};
use status::counters::{CreateOutcome, EventKind};
use std::time::Instant;
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
    /// The container whose pod's CFS quota is lifted, or restored, before the answer.
    pub(super) quota_of: Option<ContainerId>,
    /// The answer waits for this write; `None` if it may come before claims of others are on disk.
    pub(super) save: Option<Save>,
}

#[derive(Debug)]
pub(super) enum Handled {
    Decision(Decision),
    /// `first`: no process has assigned CPUs on this node before.
    Event {
        lists: bool,
        first: bool,
        answer_has_updates: bool,
    },
}

/// What an answer carries.
#[derive(Debug)]
pub(super) enum Sent {
    /// The runtime reads no updates from it, or the request is refused.
    Nothing,
    Decision(Decision),
    Due(Due),
}

/// An answer that the runtime may not have yet.
#[derive(Debug)]
pub(super) struct SentAnswer {
    pub(super) call: CallInfo,
    pub(super) outcome: CreateOutcome,
    pub(super) updates: usize,
    pub(super) sent: Sent,
}
