//! How the owner repairs drifts, one after the other.

use super::drift::{Action, Repair};
use super::owner::Owner;
use super::suspects::Finding;
use crate::clock::now;
use crate::exclusivity::Scope;
use crate::ledger::{Channel, ContainerId, Event, Mechanism, Target, Update};

impl Owner {
    /// Settles a container's cgroup. Returns whether it is a partition as decided. If the kernel
    /// refuses, others leave its CPUs by their cgroups at once.
    pub(super) fn settle(&mut self, id: &ContainerId) -> bool {
        let settled = self.enforcement.settle(id, &self.ledger);
        let refused = settled.is_err();
        if let Err(refused) = settled {
            self.fall_back(refused);
        }
        if refused || self.enforcement.is_settled() {
            self.bind(Scope::Binding);
        }
        let lifts = self.ledger.target(id).is_some_and(|target| target.lifts_pod_quota);
        if lifts && !self.enforcement.has_unsettled() {
            self.follow_quotas();
        }
        !refused && self.ledger.mechanism() == Mechanism::Partitions
    }

    /// Whether the decision is still the same as when the check pass began.
    pub(super) fn is_decided(&self, target: &Target) -> bool {
        self.ledger.target(&target.subject.id).as_ref() == Some(target)
    }

    /// Repairs the drifts of a container that still count.
    pub(super) fn repair(&mut self, Finding { target, drift }: Finding) {
        let mut all_written = true;
        for drift in drift {
            if !self.is_decided(&target) {
                break;
            }
            let calls = self.delivery.calls();
            let repair = Repair::of(&target, &drift, self.ledger.mechanism(), calls);
            let action = self.carry_out(repair, &target);
            all_written &= action == Action::Written;
            let decided = self.drift.count(&target, &drift, action);
            let (found, done) = (drift.to_string(), action.to_string());
            let subject = target.subject.clone();
            self.record.history().drifted(now(), subject, decided, found, done);
        }
        if all_written {
            self.drift.suspects.repaired(&target.subject.id, self.now);
        }
        let again = self.drift.take_again();
        if !again.is_empty() {
            self.apply(Event::Drifted(again));
            self.call();
        }
        // The repaired containers are due. If they stayed so until the next check pass, that one
        // would silently write over a new drift of theirs.
        if !self.drift.has_confirmed() {
            self.flush_owed();
        }
    }

    fn carry_out(&mut self, repair: Repair, target: &Target) -> Action {
        let id = &target.subject.id;
        let written = match repair {
            Repair::Partition { set_cpus } => {
                let mut written = self.settle(id);
                if set_cpus {
                    written = written && self.enforcement.set_cpus(target);
                    self.apply(Event::Drifted(vec![id.clone()]));
                }
                written
            }
            Repair::SetCpus => {
                self.apply(Event::Drifted(vec![id.clone()]));
                // It does not come to CPUs that others have still to leave.
                let due = self.ledger.due(&Channel::Groups).updates;
                let step = due.into_iter().find(|update| update.container == *id);
                step.is_some_and(|Update { adjustment, .. }| {
                    self.enforcement.set_cpus(&Target { adjustment, ..target.clone() })
                })
            }
            // The runtime should have lifted it. If the cgroup cannot be written, the update is
            // sent again.
            Repair::OwnQuota if self.enforcement.lift_quota(target) => true,
            Repair::OwnQuota | Repair::SendAgain => {
                if self.delivery.calls() {
                    self.drift.send_again(id);
                    return Action::Sent;
                }
                self.apply(Event::Drifted(vec![id.clone()]));
                false
            }
            Repair::PodQuota => {
                let written = self.enforcement.settle_pod_quota(target);
                return if written { Action::Written } else { Action::Nothing };
            }
            Repair::Widen(mask) => {
                let widened = self.checks.widen(target, mask);
                return if widened { Action::Widened } else { Action::Inherited };
            }
            Repair::Nothing => return Action::Nothing,
        };
        if written { Action::Written } else { Action::Deferred }
    }
}
