//! How the owner follows what the parts beside it report.

use super::checks::Findings;
use super::owner::Owner;
use super::quotas::lifted;
use super::suspects::Finding;
use crate::config::Reading;
use crate::exclusivity::Scope;
use crate::kubelet::Look;
use crate::ledger::Mechanism;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::time::Instant;

impl Owner {
    /// Another program may have written into a cgroup or made some, or containers have left CPUs by
    /// now that others wait for.
    pub(super) async fn follow_groups(&mut self, created: &[PathBuf]) {
        self.enforcement.created(created);
        self.bind(Scope::Binding).await;
        self.flush_owed().await;
    }

    /// Lifts the quotas that were set again, and watches those of all pods with exclusive CPUs.
    pub(super) async fn follow_quotas(&mut self) {
        let (again, files) = self.enforcement.keep_quotas_lifted(lifted(&self.ledger)).await;
        self.quotas.lifted_again += again;
        self.quotas.watch(files);
    }

    pub(super) async fn check_machine(&mut self) {
        let Some(event) = self.hotplug.changed(&self.ledger) else { return };
        self.apply(event);
        if self.ledger.bound().is_empty() {
            log::error!(
                "hotplug: all online CPUs are exclusive: no CPU is left for shared containers"
            );
        }
        self.flush().await;
    }

    pub(super) async fn quiet_period_ended(&mut self) {
        let event = self.orphans.quiet_period_ended();
        self.apply(event);
        self.flush_owed().await;
    }

    /// A new configuration. Moves that programs had notice of are planned again.
    pub(super) async fn reconfigure(&mut self, reading: Reading) {
        let (in_force, mechanism) = (self.ledger.settings(), self.ledger.mechanism());
        let machine = self.hotplug.machine();
        let followed = self.config.follow(reading, machine, in_force, mechanism);
        let Some((before, event)) = followed else { return };
        self.exposure.noticed = None;
        self.show_planned(&BTreeMap::new()).await;
        if let Some(event) = event {
            self.apply(event);
        }
        let policy = self.ledger.settings().policy;
        let active = self.kubelet.reconfigure(&before, self.config.config(), policy);
        self.apply_all(active);
        self.flush().await;
    }

    pub(super) async fn check_kubelet(&mut self, look: Look) {
        let active = self.kubelet.check(look, self.ledger.settings().policy);
        if let Some(event) = active {
            self.apply(event);
        }
        self.flush().await;
    }

    /// A check pass has ended.
    pub(super) async fn checked(&mut self, Findings { mut drifted, sightings }: Findings) {
        // CPUs that a foreign partition has just taken are no drift.
        self.check_machine().await;
        self.bind(Scope::All).await;
        // One that waits for others has a part of its CPUs, as decided.
        drifted.retain(|Finding { target, .. }| {
            self.is_decided(target) && !self.ledger.is_waiting(&target.subject.id)
        });
        self.follow_quotas().await;
        let all_as_decided = drifted.is_empty();
        let next = self.drift.note(drifted, &self.delivery.pace);
        self.checks.set_due(next);
        self.record.history().late = self.drift.suspects.late().cloned().collect();
        let ended = self.orphans.ended(sightings, Instant::now());
        self.apply_all(ended);
        self.end_deserted().await;
        if all_as_decided && self.ledger.mechanism() == Mechanism::Runtime {
            self.enforcement.let_go(&self.ledger).await;
        }
        if all_as_decided && self.ledger.waits() && !self.delivery.calls() {
            self.write_cpus().await;
        }
        self.flush_owed().await;
    }
}
