//! Confirms drifts and repairs them, one after the other.
//!
//! A finding is a drift only if it is no delay ([`Suspects`]).

use super::action::Action;
use super::delivery::Delivery;
use super::enforcement::Enforcement;
use super::keeper::Keeper;
use super::pace::Pace;
use super::repair::repair;
use super::suspects::{Finding, Suspects};
use crate::clock::now;
use crate::cpuset::CpuSet;
use crate::ledger::{Ledger, Target};
use crate::verify::{Drift, Verifier};
use crate::wording;
use std::collections::{BTreeMap, VecDeque};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct DriftWatcher {
    pub(super) suspects: Suspects,
    /// Drifts to repair, one after the other, as the kernel can be slow.
    confirmed: VecDeque<Finding>,
    /// Confirmed drifts since the start, by kind.
    pub(super) drifts: BTreeMap<&'static str, u64>,
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

    /// Records the findings of a look. Returns when the next one is due.
    pub(super) fn note(
        &mut self,
        found: Vec<Finding>,
        pace: &Pace,
        keeper: &mut Keeper,
    ) -> Instant {
        let now = Instant::now();
        let mut confirmed = self.suspects.note(found, pace, now);
        // Shared containers leave CPUs before others come back to them.
        confirmed.sort_by_key(|finding| finding.placed.adjustment.is_exclusive());
        self.confirmed.extend(confirmed);
        keeper.history().late = self.suspects.late().cloned().collect();
        self.suspects.next_look(pace, now)
    }

    pub(super) fn next(&mut self) -> Option<Finding> {
        self.confirmed.pop_front()
    }

    pub(super) fn is_done(&self) -> bool {
        self.confirmed.is_empty()
    }

    /// Repairs the drifts of a container that still count.
    pub(super) async fn repair(
        &mut self,
        Finding { placed, drift }: Finding,
        verifier: Option<&Verifier>,
        keeper: &mut Keeper,
        enforcement: &mut Enforcement,
        delivery: &mut Delivery,
    ) {
        let mut all_written = true;
        for drift in drift {
            if !is_decided(&placed, &keeper.ledger) {
                break;
            }
            let verifier = verifier.cloned();
            let action = repair(&placed, &drift, verifier, keeper, enforcement, delivery).await;
            all_written &= action == Action::Written;
            self.record(&placed, &drift, action, keeper);
        }
        if all_written {
            self.suspects.repaired(&placed.subject.id);
        }
        if self.confirmed.is_empty() {
            delivery.repaired(keeper).await;
        }
    }

    fn record(&mut self, placed: &Target, drift: &Drift, action: Action, keeper: &mut Keeper) {
        *self.drifts.entry(drift.kind()).or_default() += 1;
        *self.repairs.entry((drift.kind(), action.name())).or_default() += 1;
        let subject = &placed.subject;
        let decided = compared(placed, drift);
        let (found, done) = (drift.to_string(), action.to_string());
        keeper.history().drifted(now(), subject.clone(), decided, found, done);
        let (were, cpus) = (wording::agree(decided, "was", "were"), wording::cpus(decided));
        log::warn!("{subject}: decided {were} {cpus}, but {drift}: {action}");
    }
}

/// The CPUs that a drift differs from. The CPUs set for a container can include some on which the
/// kernel does not let it run.
fn compared(placed: &Target, drift: &Drift) -> CpuSet {
    match drift {
        Drift::Set(_) => placed.adjustment.cpus(),
        _ => placed.runs_on,
    }
}

/// Whether the decision is still the same as when the look began.
pub(super) fn is_decided(placed: &Target, ledger: &Ledger) -> bool {
    ledger.target(&placed.subject.id).as_ref() == Some(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Adjustment, ContainerId, Mechanism, Subject};

    #[test]
    fn a_drift_names_the_cpus_that_the_group_was_compared_with() {
        let [set, runs_on, found] = ["0-15", "0-1,6-15", "3"].map(|list| list.parse().unwrap());
        let placed = Target {
            subject: Subject {
                namespace: "ns".into(),
                pod: "web".into(),
                container: "c".into(),
                id: ContainerId("id".into()),
            },
            cgroup: None,
            adjustment: Adjustment::shared(set).unwrap(),
            runs_on,
            avoids: None,
            enforced_by: Mechanism::Partitions,
            running: true,
            lifts_pod_quota: false,
        };
        assert_eq!(compared(&placed, &Drift::Set(found)), set);
        assert_eq!(compared(&placed, &Drift::Effective(found)), runs_on);
    }
}
