//! Creations that the ledger has decided and that cannot be answered with all the same.

use super::Owner;
use crate::checkpoint::StateError;
use crate::enforce::KernelRefusal;
use crate::ledger::{ContainerId, Decision, Event, Note, What};
use crate::nri::Refusal;
use crate::observe::counters::EventKind;
use crate::placement::Reason;

impl Owner {
    /// A container that would take CPUs which the kernel has not given back. It keeps its claim for the next try, which the
    /// kubelet makes within seconds: a container that comes back has to find its own CPUs.
    pub(super) fn too_early(
        &mut self,
        kind: EventKind,
        decision: &Decision,
        created: Option<&ContainerId>,
        why: &KernelRefusal,
    ) -> Refusal {
        self.note(Event::Undelivered(decision.updates.clone()));
        self.refuse(kind, created, &format!("CPUs cannot be taken yet: {why}"))
    }

    /// A decision that is not on disk. A new exclusive container is refused, and tried again by the kubelet: after a
    /// crash nobody would know whose CPUs they are. Everything else goes on: what runs says enough, and one that comes back
    /// to its CPUs has them on disk by its name.
    pub(super) fn unsaved(
        &mut self,
        kind: EventKind,
        decision: Decision,
        created: Option<&ContainerId>,
        error: &StateError,
    ) -> Result<Decision, Refusal> {
        log::error!("{error}");
        match (created, decision.pin) {
            (Some(id), Some(pin)) if pin.is_exclusive() && !self.ledger.inherits(id) => {
                let why = format!(
                    "exclusive CPUs cannot be given while the plugin cannot keep its state: {error}"
                );
                let refusal = self.refuse(kind, created, &why);
                let updates = decision.updates;
                self.note(Event::Revoked { container: id.clone(), updates });
                Err(refusal)
            }
            _ => Ok(decision),
        }
    }

    /// Refuses a creation that the ledger has decided: counted, told, remembered.
    fn refuse(&mut self, kind: EventKind, created: Option<&ContainerId>, why: &str) -> Refusal {
        let placement = &self.ledger.settings().placement;
        self.counters.rejected(kind, Reason::UnexpectedAdmission, placement);
        let why = format!("UnexpectedAdmissionError: {why}");
        if let Some(placed) = created.and_then(|id| self.ledger.placed_one(id)) {
            let what = What::Refused { why: why.clone(), request: None };
            self.tell(&Note { warning: true, done: true, subject: placed.subject, what });
        }
        Refusal(why)
    }
}
