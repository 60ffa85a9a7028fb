//! Programs that follow their files have notice before planned changes take CPUs from them
//! (`noticeSeconds`): moves of `rebalance` after containers have ended, and new configurations.

use super::exposed_files::{Planned, Shown};
use super::owner::Owner;
use crate::config::Reading;
use crate::cpuset::CpuSet;
use crate::ledger::{ContainerId, Event, MoveOutcome, MovePlan, Settings};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

impl Owner {
    /// Whether the moves of a plan can be made now. If programs are to have notice of them, it is
    /// given first; a notice of other moves is withdrawn. A new configuration that programs have
    /// notice of comes before all moves.
    pub(super) async fn may_move(&mut self, plan: Option<&MovePlan>) -> bool {
        let given = match self.exposure.noticed.take() {
            Some((Planned::Moves(noticed), at)) => (plan == Some(&noticed)).then_some(at),
            Some(configuration) => {
                self.exposure.noticed = Some(configuration);
                return false;
            }
            None => None,
        };
        let mut planned = BTreeMap::new();
        for step in plan.map(|plan| plan.steps.as_slice()).unwrap_or_default() {
            if step.outcome == MoveOutcome::Done {
                planned.insert(step.container.clone(), step.to);
            }
        }
        let Some(plan) = plan else {
            self.show_planned(&planned).await;
            return false;
        };
        if given.is_some_and(|at| at <= Instant::now()) {
            return true;
        }
        if given.is_none() && !self.owes_notice(&planned) {
            self.show_planned(&BTreeMap::new()).await;
            return true;
        }
        let at = given.unwrap_or_else(|| self.end_of_notice());
        self.exposure.noticed = Some((Planned::Moves(plan.clone()), at));
        self.show_planned(&planned).await;
        false
    }

    pub(super) async fn reconfigure(&mut self, reading: Reading) {
        let machine = self.hotplug.machine();
        let Some(judged) = self.config.judge(reading, machine) else { return };
        let planned = self.taken_by(judged.settings());
        if self.owes_notice(&planned) {
            let at = self.end_of_notice();
            log::info!(
                "config: the new configuration takes CPUs from {} containers with files: it is applied after their notice of {} s",
                planned.len(),
                self.ledger.settings().notice_seconds
            );
            let config = Box::new(judged.into_config());
            self.exposure.noticed = Some((Planned::Configuration(config), at));
            return self.show_planned(&planned).await;
        }
        // Moves are planned anew.
        self.exposure.noticed = None;
        self.show_planned(&BTreeMap::new()).await;
        self.take_over(judged).await;
    }

    /// Does what programs had notice of for long enough.
    pub(super) async fn keep_notice(&mut self) {
        let Some((planned, _)) = self.exposure.noticed.take_if(|(_, at)| *at <= Instant::now())
        else {
            return;
        };
        match planned {
            Planned::Moves(plan) => {
                self.exposure.noticed = Some((Planned::Moves(plan), Instant::now()));
                self.rebalance().await;
                // Nothing can be moved any more.
                self.exposure.noticed.take_if(|(_, at)| *at <= Instant::now());
            }
            Planned::Configuration(config) => {
                let machine = self.hotplug.machine();
                if let Some(judged) = self.config.judge(Ok(*config), machine) {
                    self.take_over(judged).await;
                }
                self.show_planned(&BTreeMap::new()).await;
            }
        }
    }

    /// The containers with files that lose CPUs by these settings, and what they would have then.
    fn taken_by(&self, settings: &Settings) -> BTreeMap<ContainerId, CpuSet> {
        if self.exposure.shown.is_empty() || self.ledger.settings().notice_seconds == 0 {
            return BTreeMap::new();
        }
        let mut trial = self.ledger.clone();
        trial.apply(Event::Settings(settings.clone()));
        let exclusive = |id| trial.reach(id).map(|reach| reach.exclusive).unwrap_or_default();
        let after = self.exposure.shown.iter().map(|(id, shown)| (id, shown, exclusive(id)));
        after
            .filter(|(_, shown, after)| !shown.decided.exclusive.is_subset(after))
            .map(|(id, _, after)| (id.clone(), after))
            .collect()
    }

    fn owes_notice(&self, planned: &BTreeMap<ContainerId, CpuSet>) -> bool {
        self.ledger.settings().notice_seconds > 0
            && planned.keys().any(|id| self.exposure.shown.contains_key(id))
    }

    fn end_of_notice(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.ledger.settings().notice_seconds.into())
    }

    /// Has files name the CPUs that these changes would take away, and no others.
    pub(super) async fn show_planned(&mut self, planned: &BTreeMap<ContainerId, CpuSet>) {
        for (id, shown) in self.exposure.all() {
            let shown = Shown { planned: planned.get(&id).copied(), ..shown };
            self.exposure.write(id, shown, self.ledger.topology()).await;
        }
    }
}
