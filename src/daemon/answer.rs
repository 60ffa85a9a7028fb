//! What observers are told, and what is remembered for it. Only the owner of the ledger can say how things are, so they
//! ask it, and it answers between two events.

use super::Owner;
use super::action::Action;
use crate::enforce::{Drift, ProbeError};
use crate::ledger::Placed;
use crate::observe::explanation::explain;
use crate::observe::{Figures, Link, Moment, NodeFigures, Question, Status};
use std::time::{SystemTime, UNIX_EPOCH};

/// Answers a question; `waiting` says why there is no owner, if there is none.
pub(super) fn answer(
    question: Question,
    mut owner: Option<&mut Owner>,
    link: &Link,
    waiting: &str,
) {
    if let (Question::Status(_), Some(Owner { ledger, history, .. })) = (&question, &mut owner) {
        history.badges.follow(&ledger.view());
    }
    let owner = owner.as_deref();
    let figures = || {
        let node = owner.map(Owner::figures).ok_or_else(|| waiting.to_owned());
        Figures { link: link.clone(), node }
    };
    // Who has gone meanwhile needs no answer.
    match question {
        Question::Figures(reply) => drop(reply.send(figures())),
        Question::Status(reply) => {
            let view = owner.map(|owner| owner.ledger.view());
            let node = view.as_deref().zip(owner.map(|owner| &owner.history));
            drop(reply.send(Status::of(now(), &figures(), node)));
        }
        Question::Explain(name, reply) => {
            let explained = owner.map(|owner| explain(&owner.ledger.view(), &owner.history, &name));
            drop(reply.send(explained.unwrap_or_default()));
        }
    }
}

/// Seconds since 1970. A clock before that is as good as none.
pub(super) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

impl Owner {
    fn figures(&self) -> NodeFigures {
        NodeFigures {
            strict: self.strict,
            partition: self.live.partition(),
            on_active_kubelet: self.live.on_active_kubelet(),
            config: self.live.state.clone(),
            counters: self.counters.clone(),
            drifts: self.watch.drifts.clone(),
            repairs: self.watch.repairs.clone(),
            drifting: self.watch.suspects.drifting(),
            late: self.watch.suspects.late().len(),
            times_late: self.watch.suspects.times_late,
            change_takes: self.watch.pace.each(),
            kernel_refusals: self.kernel.refusals(),
            cannot_write_groups: self.kernel.cannot_write().map(ProbeError::consequence),
            group_write_errors: self.kernel.write_errors(),
            checkpoint_error: self.save_error.clone(),
            ..NodeFigures::of(&self.ledger.view())
        }
    }

    /// Remembers what the kernel has refused since the last call.
    pub(super) fn remember_refusals(&mut self) {
        for (subject, why) in self.kernel.take_refused() {
            self.history.kernel_refused(now(), subject, why);
        }
    }

    /// Remembers a drift, and what was done about it.
    pub(super) fn remember_drift(&mut self, placed: &Placed, drift: &Drift, action: Action) {
        let (found, action) = (drift.to_string(), action.to_string());
        self.history.drifted(now(), placed.subject.clone(), placed.runs_on, found, action);
    }
}
