//! What the ledger has for containers, and what it is told of how that went.

use crate::ledger::{Channel, Event, Ledger, Update};

/// Takes what can be delivered by this way now.
pub(super) fn deliver(ledger: &mut Ledger, channel: Channel) -> Vec<Update> {
    // Never refused.
    ledger.handle(Event::Deliver(channel)).unwrap_or_default().updates
}

/// Tells the ledger what has no answer.
pub(super) fn note(ledger: &mut Ledger, event: Event) {
    let decision = ledger.handle(event).unwrap_or_default();
    debug_assert!(decision.updates.is_empty(), "these would be lost: {decision:?}");
}
