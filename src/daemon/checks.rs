//! [`Checks`]: periodic check passes over cgroups, on another thread.

use super::orphans::{self, Sighting};
use super::suspects::{AGAIN, Finding, PERIOD};
use super::{blocking, result_of};
use crate::cpuset::CpuSet;
use crate::ledger::{Holder, Ledger, Target};
use crate::verify::Verifier;
use std::future::pending;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// What a check pass found.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) drifted: Vec<Finding>,
    /// Containers with exclusive CPUs, and whether they are there.
    pub(super) sightings: Vec<Sighting>,
}

#[derive(Debug)]
pub(super) struct Checks {
    verifier: Option<Verifier>,
    due: Instant,
    running: Option<JoinHandle<Findings>>,
}

impl Checks {
    pub(super) fn new(verifier: Option<Verifier>) -> Checks {
        Checks { verifier, due: Instant::now() + PERIOD, running: None }
    }

    /// Reads cgroups; `None` if they cannot be seen.
    pub(super) fn verifier(&self) -> Option<Verifier> {
        self.verifier.clone()
    }

    /// Makes the next pass early, after many changes at once.
    pub(super) fn soon(&mut self) {
        self.due = self.due.min(Instant::now() + AGAIN);
    }

    pub(super) fn set_due(&mut self, due: Instant) {
        self.due = due;
    }

    /// The findings of the next pass. Cancel safe.
    pub(super) async fn next(&mut self, ledger: &Ledger) -> Findings {
        if self.running.is_none() {
            let Some(verifier) = self.verifier.clone() else { return pending().await };
            sleep_until(self.due).await;
            let targets: Vec<Target> = ledger.targets().collect();
            let holders: Vec<Holder> = ledger.holders().collect();
            self.running = Some(tokio::task::spawn_blocking(move || Findings {
                drifted: findings(&verifier, targets),
                sightings: orphans::look(&verifier, holders),
            }));
        }
        let Some(running) = &mut self.running else { return pending().await };
        let found = result_of(running).await;
        self.running = None;
        found
    }

    /// Lets the processes of a container that inherited this mask run on all of its CPUs. Returns
    /// whether that worked.
    pub(super) async fn widen(&self, target: Target, mask: CpuSet) -> bool {
        let Some(verifier) = self.verifier.clone() else { return true };
        let subject = target.subject.clone();
        let widened = blocking(move || verifier.widen(&target, mask)).await;
        widened
            .inspect_err(|error| log::warn!("{subject}: cannot change its affinity: {error}"))
            .is_ok()
    }
}

fn findings(verifier: &Verifier, targets: Vec<Target>) -> Vec<Finding> {
    targets
        .into_iter()
        .map(|target| Finding { drift: verifier.check(&target), target })
        .filter(|finding| !finding.drift.is_empty())
        .collect()
}
