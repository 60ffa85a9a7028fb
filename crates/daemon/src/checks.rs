//! [`Checks`]: periodic check passes over cgroups, which run outside of the core.

use super::orphans::{self, Sighting};
use super::suspects::{AGAIN, DriftingContainer, PERIOD};
use cpuset::CpuSet;
use exclusivity::verify::Verifier;
use exclusivity::{Isolation, IsolationFiles};
use ledger::{Holder, Ledger, Target};
use std::io;
use std::time::Instant;
#[derive(Debug)]
pub struct Findings {
    pub(super) drifted: Vec<DriftingContainer>,
    /// Containers with exclusive CPUs, and whether their cgroups exist.
    pub(super) sightings: Vec<Sighting>,
    /// `None` without isolated partitions.
    pub(super) isolation: Option<Isolation>,
}

/// Compares all containers with their decisions, which can take long: it does not use the core.
#[derive(Debug)]
pub struct CheckPass {
    verifier: Verifier,
    targets: Vec<Target>,
    holders: Vec<Holder>,
    isolation: Option<IsolationFiles>,
}

#[derive(Debug)]
pub(super) struct Checks {
    /// Reads cgroups; `None` if they cannot be seen.
    verifier: Option<Verifier>,
    /// `None` without isolated partitions.
    isolation: Option<IsolationFiles>,
    due: Instant,
    is_running: bool,
}

impl CheckPass {
    /// Blocks.
    pub fn run(self) -> Findings {
        let CheckPass { verifier, targets, holders, isolation } = self;
        let drifted = targets
            .into_iter()
            .map(|target| DriftingContainer { drift: verifier.check(&target), target })
            .filter(|finding| !finding.drift.is_empty())
            .collect();
        let isolation = isolation.map(|files| files.read(verifier.kernel()));
        Findings { drifted, sightings: orphans::observe(&verifier, holders), isolation }
    }
}

impl Checks {
    pub(super) fn new(
        verifier: Option<Verifier>,
        isolation: Option<IsolationFiles>,
        now: Instant,
    ) -> Checks {
        Checks { verifier, isolation, due: now + PERIOD, is_running: false }
    }

    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.verifier.as_ref()
    }

    /// Makes the next pass early, after many changes at once.
    pub(super) fn soon(&mut self, now: Instant) {
        self.due = self.due.min(now + AGAIN);
    }

    pub(super) fn set_due(&mut self, due: Instant) {
        self.due = due;
    }

    /// When the next pass begins.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_running || self.verifier.is_none() { None } else { Some(self.due) }
    }

    pub(super) fn begin(&mut self, ledger: &Ledger) -> Option<CheckPass> {
        let verifier = self.verifier.clone()?;
        self.is_running = true;
        let targets = ledger.targets().collect();
        let holders = ledger.holders().collect();
        Some(CheckPass { verifier, targets, holders, isolation: self.isolation.clone() })
    }

    pub(super) fn ended(&mut self) {
        self.is_running = false;
    }

    /// Lets the processes of a container that inherited this mask run on all of its CPUs.
    /// Without a verifier there is no finding to repair.
    pub(super) fn widen(&self, target: &Target, mask: CpuSet) -> io::Result<()> {
        let Some(verifier) = &self.verifier else { return Ok(()) };
        verifier.widen(target, mask)
    }
}
