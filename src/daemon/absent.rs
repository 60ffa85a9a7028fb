//! Containers that are away: pods that are over without a word, and CPUs that are lent meanwhile.

use super::{Owner, delivery};
use crate::ledger::{Deserted, Event, SandboxId};
use std::time::Duration;
use tokio::time::Instant;

/// How long a lull is: a container that stays away for longer than two of them lends its CPUs. The kubelet makes several
/// tries in this time.
const LULL: Duration = Duration::from_secs(30);

/// When the next lull is over.
pub(super) fn next_lull() -> Instant {
    Instant::now() + LULL
}

impl Owner {
    /// Ends pods that have no container left and whose control group is gone. Where groups cannot be seen, or the runtime
    /// does not tell the pod's, the last container's removal is the only sign there is.
    pub(super) async fn end_deserted(&mut self) {
        let deserted: Vec<Deserted> = self.ledger.deserted().collect();
        if deserted.is_empty() {
            return;
        }
        let verifier = self.watch.verifier();
        let look = move || -> Vec<SandboxId> {
            let is_over = |pod: &Deserted| match (&verifier, &pod.group) {
                (Some(verifier), Some(group)) => !verifier.has(group),
                _ => true,
            };
            deserted.into_iter().filter(is_over).map(|pod| pod.sandbox).collect()
        };
        // It neither panics nor is it cancelled.
        for sandbox in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
            log::info!("pod sandbox {sandbox}: it has no container left, and is taken to be over");
            self.note(Event::StopPod(sandbox));
        }
    }

    /// Some time has passed.
    pub(super) async fn lull(&mut self) {
        self.lull = next_lull();
        self.note(Event::Lull);
        self.tell_owed().await;
    }

    /// Handles an event that no runtime told, and that is never refused.
    pub(super) fn note(&mut self, event: Event) {
        delivery::note(&mut self.ledger, event);
        self.tell_notes();
    }

    /// Tells what follows for others, if anything does, at once where that is safe.
    pub(super) async fn tell_owed(&mut self) {
        if self.ledger.owes() {
            self.tell_pending().await;
        }
    }
}
