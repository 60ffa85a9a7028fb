//! What observers get from the owner.

use super::orphans;
use super::owner::Owner;
use crate::exclusivity::consequence;
use crate::view::health::Condition;
use crate::view::{NodeFigures, OwnFigures};
use ledger::{Channel, Note, Phase, PodUid, Policy, PoolKind, Stance, View, What};
use std::collections::BTreeSet;
use std::time::Instant;
use wording::{self, count};

impl Owner {
    /// Logs the node as the runtime has listed it. `installed` are the notes about the first list of a node that had no
    /// plugin.
    pub(super) fn log_node(&self, installed: Option<&[Note]>) {
        let view = self.ledger.view();
        let changes = match installed {
            Some(notes) => installation(&view, notes),
            None => {
                let due = self.ledger.due(&Channel::Runtime);
                format!("{} changed", count(due.updates.len(), "container"))
            }
        };
        let pods = count(view.pods, "pod");
        let is_done = if view.stance == Stance::Observe { "observing, not done: " } else { "" };
        log::info!("synchronised with {pods}: {is_done}{}, {changes}", division(&view));
        if self.ledger.settings().policy == Policy::None {
            log::info!("cpuManagerPolicy is none: no container gets exclusive CPUs");
        }
    }

    /// Logs what a node gets that has only observed before.
    pub(super) fn log_installation(&self, notes: &[Note]) {
        let view = self.ledger.view();
        let (cpus, changes) = (division(&view), installation(&view, notes));
        log::info!("assigning CPUs from now on: {cpus}, {changes}");
    }

    pub(super) fn view(&mut self, now: Instant) -> NodeFigures {
        self.now = now;
        self.pass_time();
        let view = self.ledger.view();
        self.record.history().badges.follow(&view);
        NodeFigures { view, history: self.record.past(), own: self.figures() }
    }

    /// What health depends on.
    pub(super) fn condition(&self, now: Instant, stalled_disk: Option<String>) -> Condition<'_> {
        Condition {
            policy: self.ledger.settings().policy,
            stance: self.ledger.stance(),
            config: &self.config.state,
            checkpoint_error: self.checkpoint.error(),
            stalled_disk,
            cannot_write_groups: self.enforcement.cannot_write().map(consequence),
            distrusted_cgroups: &self.enforcement.report.distrusted,
            not_quiet: self.quieting.troubles(now),
        }
    }

    fn figures(&self) -> OwnFigures {
        let mut drifts = self.drift.drifts.clone();
        drifts.insert(orphans::KIND, self.orphans.count);
        let enforcement = &self.enforcement;
        let foreign = self.hotplug.foreign().iter();
        let distrusted = enforcement.report.distrusted.iter();
        OwnFigures {
            strict: self.config.strict(),
            partition: self.config.partition(),
            mode: self.config.mode(),
            log_level: self.config.config().log_level(),
            config: self.config.state.clone(),
            counters: self.record.counters.clone(),
            drifts,
            repairs: self.drift.repairs.clone(),
            pod_quotas_lifted_again: self.quotas.lifted_again,
            drifting: self.drift.suspects.drifting(),
            late: self.drift.suspects.late().len(),
            times_late: self.drift.suspects.times_late,
            change_takes: self.delivery.pace.each(),
            partition_refusals: enforcement.refusals,
            cannot_write_groups: enforcement.cannot_write().map(consequence),
            group_write_errors: enforcement.errors,
            exclusivity_because: match self.ledger.settings().policy {
                Policy::None => None,
                Policy::Static => enforcement.means.because.clone(),
            },
            cgroup_bounds: enforcement.bounds(self.now).collect(),
            distrusted_cgroups: distrusted.map(|(g, why)| (g.to_string(), why.clone())).collect(),
            unbound_pods: enforcement.unbound(),
            foreign_partitions: foreign.map(|(group, cpus)| (group.to_string(), *cpus)).collect(),
            kubelet_devices: self.devices.kubelet.clone(),
            pool_writes: enforcement.written,
            checkpoint_error: self.checkpoint.error(),
            // Only the executor knows.
            stalled_disk: None,
            last_plans: self.moves.last_plans.values().cloned().collect(),
            moves_only_at_creations: !self.writes_moves(),
            threads_unseen: self.moves.is_blind,
            quiet: self.quieting.figures(self.now),
        }
    }
}

/// The exclusive CPUs and the shared pool.
fn division(view: &View) -> String {
    // CPUs that are lent count as shared here: they are in both sets.
    let exclusive = view.exclusive - view.pool;
    let exclusive =
        if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) };
    format!("exclusive {exclusive}, shared pool {}", view.pool)
}

/// What the installation changes for the containers that run, or would change on a node that observes.
fn installation(view: &View, notes: &[Note]) -> String {
    let mut pinned = 0;
    let mut moved = 0;
    for note in notes {
        match note.what {
            What::Moved { from: None, .. } | What::Assigned { .. } => pinned += 1,
            What::Moved { from: Some(_), .. } => moved += 1,
            _ => {}
        }
    }
    let shared = view.containers.iter().filter(|one| {
        let is_narrow = one.pool == PoolKind::Reserved || view.pool != view.topology.online();
        let shares = one.exclusive.is_none() && one.left_alone.is_none();
        view.stance != Stance::Refuse && is_narrow && shares && one.phase != Phase::Ended
    });
    let narrowed: BTreeSet<&PodUid> = shared.map(|one| &one.pod.uid).collect();
    format!(
        "first time on this node: {} pinned, {moved} moved, {} narrowed",
        count(pinned, "container"),
        count(narrowed.len(), "shared pod"),
    )
}
