//! Ends that nobody told of: after some failures runtimes say nothing, and the CPUs would be lost until the next start.
//!
//! The control groups tell. Only a group that has been seen here can have vanished: where the kernel's files are not
//! where they are looked for, nothing is concluded.

use super::Owner;
use crate::enforce::{Presence, Verifier};
use crate::ledger::{ContainerId, Event, Holder, SandboxId};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long a group has to be gone. Nothing in a runtime or a kubelet takes so long between two steps of a container.
const GONE: Duration = Duration::from_secs(120);

/// What to call such an end in statistics, beside the drifts.
pub(super) const KIND: &str = "vanished";

/// Whom the CPUs belong to, and what the kernel says of that.
pub(super) type Sighting = (Holder, Presence);

/// An end to make up for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The container's process has ended.
    Container(ContainerId),
    /// The whole pod is gone.
    Pod(SandboxId),
}

/// Containers with exclusive CPUs whose groups have been seen, and since when they are not any more.
#[derive(Debug, Default)]
pub(super) struct Vanished {
    since: HashMap<ContainerId, Option<Instant>>,
}

/// Looks at them all.
pub(super) fn look(verifier: &Verifier, holders: Vec<Holder>) -> Vec<Sighting> {
    let presence = |holder: Holder| {
        let presence = verifier.presence(&holder);
        (holder, presence)
    };
    holders.into_iter().map(presence).collect()
}

impl Vanished {
    /// What follows from a look.
    pub(super) fn note(&mut self, sightings: Vec<Sighting>, now: Instant) -> Vec<End> {
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

impl Owner {
    /// Makes up for an end as if the runtime had told of it.
    pub(super) fn end(&mut self, end: End) {
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
        *self.watch.drifts.entry(KIND).or_default() += 1;
        self.note(event);
    }
}
