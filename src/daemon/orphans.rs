//! Ends containers and pods whose end the runtime has not reported. After some failures runtimes do
//! not, and their CPUs would be lost until the next start.
//!
//! Their control groups show it. Only a group that was seen before can have vanished: if the
//! hierarchy is not where it should be, no group counts.

use super::blocking::blocking;
use super::keeper::Keeper;
use crate::ledger::{ContainerId, Deserted, Event, Holder, SandboxId};
use crate::verify::{Presence, Verifier};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time between two [`Event::Lull`]: after two of them an ended container lends its CPUs. The
/// kubelet makes several tries in this time.
const LULL: Duration = Duration::from_secs(30);

/// How long a group has to be gone. No step of a runtime or a kubelet takes so long.
const GONE: Duration = Duration::from_secs(120);

/// The kind of such an end in metrics, beside the drifts.
pub(super) const KIND: &str = "vanished";

/// A container with exclusive CPUs, and what its control group shows.
pub(super) type Sighting = (Holder, Presence);

/// An end that the runtime has not reported.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Container(ContainerId),
    Pod(SandboxId),
}

#[derive(Debug)]
pub(super) struct Orphans {
    /// Containers with exclusive CPUs whose groups were seen, and since when they are gone.
    since: HashMap<ContainerId, Option<Instant>>,
    pub(super) ended: u64,
    lull: Instant,
}

pub(super) fn look(verifier: &Verifier, holders: Vec<Holder>) -> Vec<Sighting> {
    let presence = |holder: Holder| {
        let presence = verifier.presence(&holder);
        (holder, presence)
    };
    holders.into_iter().map(presence).collect()
}

impl Orphans {
    pub(super) fn new() -> Orphans {
        Orphans { since: HashMap::new(), ended: 0, lull: Instant::now() + LULL }
    }

    pub(super) async fn lull(&self) {
        sleep_until(self.lull).await;
    }

    pub(super) fn lull_is_over(&mut self, keeper: &mut Keeper) {
        self.lull = Instant::now() + LULL;
        keeper.note(Event::Lull);
    }

    /// Records what a look found: handles ends as if the runtime had reported them.
    pub(super) fn note(&mut self, sightings: Vec<Sighting>, keeper: &mut Keeper) {
        for end in self.ends(sightings, Instant::now()) {
            let (event, what) = match end {
                End::Container(id) => {
                    let what = format!("container {id}: its control group has ended");
                    (Event::Stop(id), what)
                }
                End::Pod(sandbox) => {
                    let what = format!("pod sandbox {sandbox}: its control group is gone");
                    (Event::StopPod(sandbox), what)
                }
            };
            log::warn!(
                "{what} since {} s, and the runtime has not reported it: it is taken to have ended",
                GONE.as_secs()
            );
            self.ended += 1;
            keeper.note(event);
        }
    }

    fn ends(&mut self, sightings: Vec<Sighting>, now: Instant) -> Vec<End> {
        let mut before = std::mem::take(&mut self.since);
        let mut ends = Vec::new();
        for (Holder { id, sandbox, ended, .. }, presence) in sightings {
            let end = match presence {
                Presence::PodGone => End::Pod(sandbox),
                Presence::Ended if !ended => End::Container(id.clone()),
                Presence::Ended | Presence::Lives => {
                    self.since.insert(id, None);
                    continue;
                }
            };
            let Some(seen) = before.remove(&id) else { continue };
            let since = seen.unwrap_or(now);
            if now - since >= GONE && !ends.contains(&end) {
                ends.push(end);
            }
            self.since.insert(id, Some(since));
        }
        ends
    }
}

/// Ends pods that have no container left and whose control group is gone. If groups cannot be seen,
/// or the runtime does not report the pod's, the removal of its last container is enough. Of a pod
/// without listed containers the group was never seen: the topmost one above it has to be there, so
/// that no group counts as gone in a hierarchy that is not where it should be.
pub(super) async fn end_deserted(verifier: Option<Verifier>, keeper: &mut Keeper) {
    let deserted: Vec<Deserted> = keeper.ledger.deserted().collect();
    if deserted.is_empty() {
        return;
    }
    let look = move || -> Vec<SandboxId> {
        let is_over = |pod: &Deserted| match (&verifier, &pod.group) {
            (Some(verifier), Some(group)) => {
                let visible = || group.top().is_some_and(|top| verifier.has(&top));
                !verifier.has(group) && (pod.removed || visible())
            }
            _ => pod.removed,
        };
        deserted.into_iter().filter(is_over).map(|pod| pod.sandbox).collect()
    };
    for sandbox in blocking(look).await {
        log::info!("pod sandbox {sandbox}: it has no container left, and is taken to be over");
        keeper.note(Event::StopPod(sandbox));
    }
}
