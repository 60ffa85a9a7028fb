//! How the owner follows what the parts beside it report.

use super::checks::Findings;
use super::owner::Owner;
use super::quotas;
use super::step::Effect;
use super::suspects::Finding;
use crate::config::Reading;
use crate::exclusivity::{Scope, Watched};
use crate::kubelet::Look;
use crate::ledger::Mechanism;
use crate::verify::Drift;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Owner {
    /// Another program may have written into a cgroup or made some, or containers have left CPUs by
    /// now that others wait for.
    pub(super) fn follow_groups(&mut self, created: &[PathBuf]) {
        if self.enforcement.noticed(created, self.now) {
            self.look_at_groups();
        }
    }

    pub(super) fn look_at_groups(&mut self) {
        self.bind(Scope::Binding);
        self.flush_owed();
    }

    /// Settles the quotas of all pods, and watches those that are to stay lifted.
    pub(super) fn follow_quotas(&mut self) {
        let (again, files) = self.enforcement.settle_pod_quotas(&quotas::settled(&self.ledger));
        self.quotas.lifted_again += again;
        self.quotas.followed();
        let watched = files.into_iter().map(|file| (file, Watched::File)).collect();
        self.effects.push(Effect::WatchQuotas(watched));
    }

    pub(super) fn check_machine(&mut self) {
        let Some(event) = self.hotplug.changed(&self.ledger, self.now) else { return };
        self.apply(event);
        if self.ledger.bound().is_empty() {
            log::error!(
                "hotplug: all online CPUs are exclusive: no CPU is left for shared containers"
            );
        }
        self.flush();
    }

    pub(super) fn quiet_period_ended(&mut self) {
        let event = self.orphans.quiet_period_ended(self.now);
        self.apply(event);
        self.flush_owed();
    }

    /// A new configuration. Moves that programs had notice of are planned again.
    pub(super) fn reconfigure(&mut self, reading: Reading) {
        let (in_force, mechanism) = (self.ledger.settings(), self.ledger.mechanism());
        let machine = self.hotplug.machine();
        let followed = self.config.follow(reading, machine, in_force, mechanism);
        let Some((before, event)) = followed else { return };
        self.exposure.noticed = None;
        self.show_planned(&BTreeMap::new());
        if let Some(event) = event {
            self.apply(event);
        }
        let policy = self.ledger.settings().policy;
        let active = self.kubelet.reconfigure(self.config.config(), policy, self.now);
        self.apply_all(active.into_iter().collect());
        let kubelet = self.config.config().kubelet_state_dir();
        if before.kubelet_state_dir() != kubelet {
            self.effects.push(Effect::WatchKubelet(kubelet.map(Path::to_owned)));
        }
        self.flush();
    }

    pub(super) fn check_kubelet(&mut self, look: Look) {
        let active = self.kubelet.check(look, self.ledger.settings().policy, self.now);
        if let Some(event) = active {
            self.apply(event);
        }
        self.flush();
    }

    /// A check pass has ended.
    pub(super) fn checked(&mut self, Findings { mut drifted, sightings }: Findings) {
        self.checks.ended();
        // CPUs that a foreign partition has just taken are no drift.
        self.check_machine();
        self.bind(Scope::All);
        // One that waits for others has a part of its CPUs, as decided.
        drifted.retain(|Finding { target, .. }| {
            self.is_decided(target) && !self.ledger.is_waiting(&target.subject.id)
        });
        self.follow_quotas();
        let all_as_decided = drifted.is_empty();
        // What another mechanism has left above a container may be what keeps it off its CPUs.
        let mut all_drift = drifted.iter().flat_map(|finding| &finding.drift);
        let all_are_set = all_drift.all(|drift| matches!(drift, Drift::Effective(_)));
        let next = self.drift.note(drifted, &self.delivery.pace, self.now);
        self.checks.set_due(next);
        self.record.history().late = self.drift.suspects.late().cloned().collect();
        let ended = self.orphans.ended(sightings, self.now);
        self.apply_all(ended);
        self.end_deserted();
        if all_are_set && self.ledger.mechanism() == Mechanism::Runtime {
            self.enforcement.let_go(&self.ledger);
        }
        if all_as_decided && self.ledger.waits() && !self.delivery.calls() {
            self.write_cpus();
        }
        self.flush_owed();
    }
}
