//! Finds containers that are not as decided, and has them repaired.
//!
//! What a look finds is a drift only if it is no delay ([`Suspects`]).

use super::action::Action;
use super::delivery::Delivery;
use super::keeper::Keeper;
use super::pace::Pace;
use super::partitions::Partitions;
use super::repair::repair;
use super::suspects::{Finding, Suspects};
use crate::enforce::{Drift, Verifier};
use crate::ledger::{Ledger, Target};
use crate::observe::clock::now;
use crate::wording;
use std::collections::{BTreeMap, VecDeque};
use tokio::time::Instant;

/// Watches for drift.
#[derive(Debug)]
pub(super) struct DriftWatcher {
    /// What the last look found.
    pub(super) suspects: Suspects,
    /// What is to be repaired, one after the other: the kernel takes its time.
    confirmed: VecDeque<Finding>,
    /// Drifts that were confirmed since the start, by kind.
    pub(super) drifts: BTreeMap<&'static str, u64>,
    /// What was done about them, by kind and action.
    pub(super) repairs: BTreeMap<(&'static str, &'static str), u64>,
}

impl DriftWatcher {
    pub(super) fn new() -> DriftWatcher {
        DriftWatcher {
            suspects: Suspects::default(),
            confirmed: VecDeque::new(),
            drifts: Drift::KINDS.map(|kind| (kind, 0)).into(),
            repairs: BTreeMap::new(),
        }
    }

    /// A look has ended. Says when the next one is due.
    pub(super) fn note(
        &mut self,
        found: Vec<Finding>,
        pace: &Pace,
        keeper: &mut Keeper,
    ) -> Instant {
        let now = Instant::now();
        let mut confirmed = self.suspects.note(found, pace, now);
        // Shared containers leave before others come back to their own CPUs.
        confirmed.sort_by_key(|finding| finding.placed.adjustment.is_exclusive());
        self.confirmed.extend(confirmed);
        keeper.history().late = self.suspects.late().cloned().collect();
        self.suspects.next_look(pace, now)
    }

    /// The next drift to repair.
    pub(super) fn next(&mut self) -> Option<Finding> {
        self.confirmed.pop_front()
    }

    /// Repairs what was found of a container, as far as it is still so.
    pub(super) async fn repair(
        &mut self,
        Finding { placed, drift }: Finding,
        verifier: Option<&Verifier>,
        keeper: &mut Keeper,
        partitions: &mut Partitions,
        delivery: &mut Delivery,
    ) {
        for drift in drift {
            if !is_decided(&placed, &keeper.ledger) {
                break;
            }
            let verifier = verifier.cloned();
            let action = repair(&placed, &drift, verifier, keeper, partitions, delivery).await;
            self.record(&placed, &drift, action, keeper);
        }
        if self.confirmed.is_empty() {
            delivery.repaired(keeper).await;
        }
    }

    fn record(&mut self, placed: &Target, drift: &Drift, action: Action, keeper: &mut Keeper) {
        *self.drifts.entry(drift.kind()).or_default() += 1;
        *self.repairs.entry((drift.kind(), action.name())).or_default() += 1;
        let Target { subject, runs_on, .. } = placed;
        let (found, done) = (drift.to_string(), action.to_string());
        keeper.history().drifted(now(), subject.clone(), *runs_on, found, done);
        let (were, cpus) = (wording::agree(runs_on, "was", "were"), wording::cpus(runs_on));
        log::warn!("{subject}: decided {were} {cpus}, but {drift}: {action}");
    }
}

/// Whether it is still so: what has been decided anew since a look began is no drift.
pub(super) fn is_decided(placed: &Target, ledger: &Ledger) -> bool {
    ledger.target(&placed.subject.id).as_ref() == Some(placed)
}
