//! What the owner shows of itself.

use super::orphans;
use super::owner::Owner;
use crate::exclusivity::ProbeError;
use crate::ledger::View;
use crate::view::{History, NodeFigures};
use std::sync::Arc;

impl Owner {
    pub(super) fn view(&mut self) -> (NodeFigures, Arc<View>, Arc<History>) {
        let view = self.ledger.view();
        self.record.history().badges.follow(&view);
        (self.figures(&view), view, self.record.past())
    }

    fn figures(&self, view: &View) -> NodeFigures {
        let mut drifts = self.drift.drifts.clone();
        drifts.insert(orphans::KIND, self.orphans.count);
        let enforcement = &self.enforcement;
        NodeFigures {
            strict: self.strict,
            partition: self.config.partition(),
            on_active_kubelet: self.config.on_active_kubelet(),
            config: self.config.state.clone(),
            counters: self.record.counters.clone(),
            drifts,
            repairs: self.drift.repairs.clone(),
            drifting: self.drift.suspects.drifting(),
            late: self.drift.suspects.late().len(),
            times_late: self.drift.suspects.times_late,
            change_takes: self.delivery.pace.each(),
            kernel_refusals: enforcement.refusals,
            cannot_write_groups: enforcement.cannot_write().map(ProbeError::consequence),
            group_write_errors: enforcement.errors,
            exclusivity_because: enforcement.means.because.clone(),
            group_bounds: enforcement.report.bounds.clone(),
            distrusted_groups: enforcement.report.distrusted.clone(),
            unbound_pods: enforcement.unbound(),
            pool_writes: enforcement.written,
            checkpoint_error: self.checkpoint.error(),
            ..NodeFigures::of(view)
        }
    }
}
