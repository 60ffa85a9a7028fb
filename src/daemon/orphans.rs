//! Containers and pods that are over although the runtime has not told: after some failures
//! runtimes say nothing, and the CPUs would be lost until the next start.
//!
//! The control groups tell. Only a group that has been seen here can have vanished: where the
//! kernel's files are not where they are looked for, nothing is concluded.

use super::blocking::blocking;
use super::keeper::Keeper;
use crate::enforce::{Presence, Verifier};
use crate::ledger::{ContainerId, Deserted, Event, Holder, SandboxId};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a lull is: a container that stays away for longer than two of them lends its CPUs. The
/// kubelet makes several tries in this time.
const LULL: Duration = Duration::from_secs(30);

/// How long a group has to be gone. Nothing in a runtime or a kubelet takes so long between two
/// steps of a container.
const GONE: Duration = Duration::from_secs(120);

/// What to call such an end in statistics, beside the drifts.
pub(super) const KIND: &str = "vanished";

/// Whom the CPUs belong to, and what the kernel says of that.
pub(super) type Sighting = (Holder, Presence);

/// An end to make up for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The container's process has ended.
    Container(ContainerId),
    /// The whole pod is gone.
    Pod(SandboxId),
}

/// What is known of them.
#[derive(Debug)]
pub(super) struct Orphans {
    /// Containers with exclusive CPUs whose groups have been seen, and since when they are not any
    /// more.
    since: HashMap<ContainerId, Option<Instant>>,
    /// How many ends were made up for.
    pub(super) ended: u64,
    /// When containers that are away have been so for some time.
    lull: Instant,
}

/// Looks at them all.
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

    /// Waits for the end of the lull. Cancel safe.
    pub(super) async fn lull(&self) {
        sleep_until(self.lull).await;
    }

    /// The lull is over, and the next one begins.
    pub(super) fn lull_is_over(&mut self, keeper: &mut Keeper) {
        self.lull = Instant::now() + LULL;
        keeper.note(Event::Lull);
    }

    /// A look has ended: makes up for ends as if the runtime had told of them.
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
                "{what} since {} s, and the runtime has not told: it is taken to have ended",
                GONE.as_secs()
            );
            self.ended += 1;
            keeper.note(event);
        }
    }

    /// What follows from a look.
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

/// Ends pods that have no container left and whose control group is gone. Where groups cannot be
/// seen, or the runtime does not tell the pod's, the last container's removal is the only sign
/// there is.
pub(super) async fn end_deserted(verifier: Option<Verifier>, keeper: &mut Keeper) {
    let deserted: Vec<Deserted> = keeper.ledger.deserted().collect();
    if deserted.is_empty() {
        return;
    }
    let look = move || -> Vec<SandboxId> {
        let is_over = |pod: &Deserted| match (&verifier, &pod.group) {
            (Some(verifier), Some(group)) => !verifier.has(group),
            _ => true,
        };
        deserted.into_iter().filter(is_over).map(|pod| pod.sandbox).collect()
    };
    for sandbox in blocking(look).await {
        log::info!("pod sandbox {sandbox}: it has no container left, and is taken to be over");
        keeper.note(Event::StopPod(sandbox));
    }
}
