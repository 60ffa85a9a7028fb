//! [`Looks`]: periodic looks at control groups, on another thread.

use super::orphans::{self, Sighting};
use super::suspects::{AGAIN, Finding, PERIOD};
use crate::ledger::{Holder, Ledger, Target};
use crate::verify::Verifier;
use std::future::pending;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) drifted: Vec<Finding>,
    /// Containers with exclusive CPUs, and whether they are there.
    pub(super) sightings: Vec<Sighting>,
}

#[derive(Debug)]
pub(super) struct Looks {
    verifier: Option<Verifier>,
    due: Instant,
    looking: Option<JoinHandle<Findings>>,
}

impl Looks {
    pub(super) fn new(verifier: Option<Verifier>) -> Looks {
        Looks { verifier, due: Instant::now() + PERIOD, looking: None }
    }

    /// Reads groups; `None` if they cannot be seen.
    pub(super) fn verifier(&self) -> Option<Verifier> {
        self.verifier.clone()
    }

    /// Makes the next look early, after many changes at once.
    pub(super) fn soon(&mut self) {
        self.due = self.due.min(Instant::now() + AGAIN);
    }

    pub(super) fn set_due(&mut self, due: Instant) {
        self.due = due;
    }

    /// The findings of the next look. Cancel safe.
    pub(super) async fn next(&mut self, ledger: &Ledger) -> Findings {
        if self.looking.is_none() {
            let Some(verifier) = self.verifier.clone() else { return pending().await };
            sleep_until(self.due).await;
            let placed: Vec<Target> = ledger.targets().collect();
            let holders: Vec<Holder> = ledger.holders().collect();
            self.looking = Some(tokio::task::spawn_blocking(move || Findings {
                drifted: findings(&verifier, placed),
                sightings: orphans::look(&verifier, holders),
            }));
        }
        let Some(looking) = &mut self.looking else { return pending().await };
        let found = looking.await;
        self.looking = None;
        // It does not panic, and is never cancelled.
        found.unwrap_or_default()
    }
}

fn findings(verifier: &Verifier, placed: Vec<Target>) -> Vec<Finding> {
    placed
        .into_iter()
        .map(|placed| Finding { drift: verifier.check(&placed), placed })
        .filter(|finding| !finding.drift.is_empty())
        .collect()
}
