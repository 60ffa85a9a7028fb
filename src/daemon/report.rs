//! What the owner shows of itself.

use super::orphans;
use super::owner::Owner;
use crate::exclusivity::ProbeError;
use crate::ledger::{Channel, Ledger, Policy};
use crate::view::OwnFigures;
use crate::wording::{self, count};

/// Logs the node as the runtime has listed it.
pub(super) fn announce(ledger: &Ledger) {
    // The CPUs of a container that has ended may be in the pool until it is back.
    let exclusive = ledger.exclusive() - ledger.pool();
    log::info!(
        "synchronised with {}: exclusive {}, shared pool {}, {} changed",
        count(ledger.view().pods, "pod"),
        if exclusive.is_empty() { "CPUs none".to_owned() } else { wording::cpus(exclusive) },
        ledger.pool(),
        count(ledger.due(&Channel::Runtime).updates.len(), "container"),
    );
    if ledger.settings().policy == Policy::None {
        log::info!("cpuManagerPolicy is none: no container gets exclusive CPUs");
    }
}

pub(super) fn figures(owner: &Owner) -> OwnFigures {
    let mut drifts = owner.drift.drifts.clone();
    drifts.insert(orphans::KIND, owner.orphans.count);
    let enforcement = &owner.enforcement;
    let foreign = owner.hotplug.foreign().iter();
    let distrusted = enforcement.report.distrusted.iter();
    OwnFigures {
        strict: owner.config.strict(),
        partition: owner.config.partition(),
        on_active_kubelet: owner.config.on_active_kubelet(),
        config: owner.config.state.clone(),
        counters: owner.record.counters.clone(),
        drifts,
        repairs: owner.drift.repairs.clone(),
        pod_quotas_lifted_again: owner.quotas.lifted_again,
        drifting: owner.drift.suspects.drifting(),
        late: owner.drift.suspects.late().len(),
        times_late: owner.drift.suspects.times_late,
        change_takes: owner.delivery.pace.each(),
        kernel_refusals: enforcement.refusals,
        cannot_write_groups: enforcement.cannot_write().map(ProbeError::consequence),
        group_write_errors: enforcement.errors,
        exclusivity_because: enforcement.means.because.clone(),
        group_bounds: enforcement.bounds(owner.now).collect(),
        distrusted_groups: distrusted.map(|(g, why)| (g.to_string(), why.clone())).collect(),
        unbound_pods: enforcement.unbound(),
        foreign_partitions: foreign.map(|(group, cpus)| (group.to_string(), *cpus)).collect(),
        pool_writes: enforcement.written,
        checkpoint_error: owner.checkpoint.error(),
        // Only the executor knows.
        stalled_disk: None,
        last_plans: owner.moves.last_plans.values().cloned().collect(),
        moves_only_at_creations: !owner.writes_moves(),
        threads_unseen: owner.moves.is_blind,
    }
}
