//! What observers get from the owner.

use super::orphans;
use super::owner::Owner;
use exclusivity::consequence;
use exclusivity::verify;
use ledger::{Channel, Note, Phase, PodUid, Policy, PoolKind, Stance, View, What};
use status::NodeFigures;
use status::health::Condition;
use status::node::{CheckpointFigures, Parts};
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
        let pods = count(view.figures.pods, "pod");
        let is_done =
            if view.figures.stance == Stance::Observe { "observing, not done: " } else { "" };
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

    pub fn view(&mut self, now: Instant) -> NodeFigures {
        self.now = now;
        self.pass_time();
        let view = self.ledger.view();
        self.record.history().badges.follow(&view);
        NodeFigures {
            view,
            history: self.record.past(),
            daemon: self.config.daemon_settings(),
            parts: self.parts(),
        }
    }

    /// What health depends on.
    pub fn condition(&self, now: Instant, stalled_disk: Option<String>) -> Condition<'_> {
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

    fn parts(&self) -> Parts {
        let policy = self.ledger.settings().policy;
        Parts {
            config_source: self.config.state.clone(),
            exclusivity: self.enforcement.figures(policy, self.hotplug.foreign(), self.now),
            // Only the executor knows whether the disk is stalled.
            checkpoint: CheckpointFigures { error: self.checkpoint.error(), stalled: None },
            drift: verify::Figures {
                pod_quotas_lifted_again: self.quotas.lifted_again,
                change_seconds: self.delivery.pace.each().map(|each| each.as_secs_f64()),
                ..self.drift.figures((orphans::KIND, self.orphans.count))
            },
            plans: self.moves.figures(!self.writes_moves()),
            quiet: self.quieting.figures(self.now),
            kubelet_devices: self.devices.kubelet.clone(),
            counters: self.record.counters.clone(),
        }
    }
}

/// The exclusive CPUs and the shared pool.
fn division(view: &View) -> String {
    // CPUs that are lent count as shared here: they are in both sets.
    let exclusive = view.figures.cpus.exclusive - view.figures.cpus.shared;
    let exclusive =
        if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) };
    format!("exclusive {exclusive}, shared pool {}", view.figures.cpus.shared)
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
        let is_narrow =
            one.pool == PoolKind::Reserved || view.figures.cpus.shared != view.topology.online();
        let shares = one.exclusive.is_none() && one.left_alone.is_none();
        view.figures.stance != Stance::Refuse && is_narrow && shares && one.phase != Phase::Ended
    });
    let narrowed: BTreeSet<&PodUid> = shared.map(|one| &one.pod.uid).collect();
    format!(
        "first time on this node: {} pinned, {moved} moved, {} narrowed",
        count(pinned, "container"),
        count(narrowed.len(), "shared pod"),
    )
}
