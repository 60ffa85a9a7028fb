//! What observers are told. Only the owner of the ledger can say how things are, so they ask it, and it answers between
//! two events.

use super::Owner;
use crate::observe::{Figures, Link, NodeFigures, Question};

/// Answers a question; `waiting` says why there is no owner, if there is none.
pub(super) fn answer(question: Question, owner: Option<&Owner>, link: &Link, waiting: &str) {
    match question {
        Question::Figures(reply) => {
            let node = owner.map(Owner::figures).ok_or_else(|| waiting.to_owned());
            // One that has gone meanwhile needs no answer.
            let _ = reply.send(Figures { link: link.clone(), node });
        }
    }
}

impl Owner {
    fn figures(&self) -> NodeFigures {
        NodeFigures {
            strict: self.strict,
            counters: self.counters.clone(),
            drifts: self.watch.drifts.clone(),
            repairs: self.watch.repairs.clone(),
            drifting: self.watch.drifting(),
            kernel_refusals: self.kernel.refusals(),
            checkpoint_error: self.save_error.clone(),
            ..NodeFigures::of(&self.ledger)
        }
    }
}
