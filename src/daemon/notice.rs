//! How programs have notice of moves (`noticeSeconds`): their files name what is planned so long
//! before.

use super::exposed_files::Shown;
use super::owner::Owner;
use crate::cpuset::CpuSet;
use crate::ledger::{ContainerId, MoveOutcome, MovePlan};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Owner {
    /// Whether the moves of a plan can be made now. If programs are to have notice of them, it is
    /// given first; a notice of other moves is withdrawn.
    pub(super) fn may_move(&mut self, plan: Option<&MovePlan>) -> bool {
        let given = self.exposure.noticed.take();
        let given = given.and_then(|(noticed, at)| (plan == Some(&noticed)).then_some(at));
        let mut planned = BTreeMap::new();
        for step in plan.map(|plan| plan.steps.as_slice()).unwrap_or_default() {
            if step.outcome == MoveOutcome::Done {
                planned.insert(step.container.clone(), step.to);
            }
        }
        let Some(plan) = plan else {
            self.show_planned(&planned);
            return false;
        };
        if given.is_some_and(|at| at <= self.now) {
            return true;
        }
        if given.is_none() && !self.owes_notice(&planned) {
            self.show_planned(&BTreeMap::new());
            return true;
        }
        let at = given.unwrap_or_else(|| self.end_of_notice());
        self.exposure.noticed = Some((plan.clone(), at));
        self.show_planned(&planned);
        false
    }

    /// Makes the moves that programs had notice of for long enough.
    pub(super) fn keep_notice(&mut self) {
        if self.exposure.noticed.as_ref().is_none_or(|(_, at)| *at > self.now) {
            return;
        }
        self.rebalance();
        // Nothing can be moved any more.
        let now = self.now;
        self.exposure.noticed.take_if(|(_, at)| *at <= now);
    }

    fn owes_notice(&self, planned: &BTreeMap<ContainerId, CpuSet>) -> bool {
        self.ledger.settings().notice_seconds > 0
            && planned.keys().any(|id| self.exposure.shown.contains_key(id))
    }

    fn end_of_notice(&self) -> Instant {
        self.now + Duration::from_secs(self.ledger.settings().notice_seconds.into())
    }

    /// Has files name the CPUs that these changes would take away, and no others.
    pub(super) fn show_planned(&mut self, planned: &BTreeMap<ContainerId, CpuSet>) {
        for (id, shown) in self.exposure.all() {
            let shown = Shown { planned: planned.get(&id).copied(), ..shown };
            self.exposure.write(id, shown, self.ledger.topology());
        }
    }
}
