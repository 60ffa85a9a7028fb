//! How the owner has the files of containers follow the ledger: before anything is changed, and
//! after.

use super::blocking;
use super::exposed_files::Shown;
use super::owner::Owner;
use crate::cpuset::CpuSet;
use crate::ledger::{ContainerId, Exposure, MoveOutcome, MovePlan, Target};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

impl Owner {
    /// Files for a container that is being created with exclusive CPUs; returns its directory.
    pub(super) async fn expose(&mut self, id: &ContainerId, cpus: CpuSet) -> Option<String> {
        if self.ledger.settings().expose_cpus != Exposure::File {
            return None;
        }
        let shown = Shown { held: cpus, decided: cpus, planned: None };
        self.exposure.write(id.clone(), shown, self.ledger.topology()).await;
        let path = self.exposure.directories.path(id)?;
        if path.is_dir() { path.into_os_string().into_string().ok() } else { None }
    }

    /// Takes over the directories of an earlier process: the listed containers may still be on the
    /// way to the CPUs that are decided for them.
    pub(super) async fn adopt_exposed(&mut self) {
        let directories = self.exposure.directories.clone();
        for id in blocking(move || directories.list()).await {
            let Some(target) = self.ledger.target(&id) else {
                self.exposure.remove(&id).await;
                continue;
            };
            let decided = target.adjustment.cpus();
            let held = self.runs_on(&target).await.unwrap_or(decided);
            let shown = Shown { held, decided, planned: None };
            self.exposure.write(id, shown, self.ledger.topology()).await;
        }
        self.exposure.schedule();
    }

    /// Has files name the CPUs that are decided, before anything is changed.
    pub(super) async fn show_decided(&mut self) {
        let revision = self.ledger.revision();
        if self.exposure.shown.is_empty() || self.exposure.revision == Some(revision) {
            return;
        }
        for (id, shown) in self.exposure.all() {
            let decided = self.ledger.adjustment(&id).map(|adjustment| adjustment.cpus());
            match decided {
                _ if !self.ledger.knows(&id) => self.exposure.remove(&id).await,
                Some(decided) if decided != shown.decided => {
                    let held = shown.held | shown.decided;
                    let now = Shown { held, decided, planned: None };
                    self.exposure.write(id, now, self.ledger.topology()).await;
                }
                _ => {}
            }
        }
        self.exposure.revision = Some(revision);
        self.exposure.schedule();
    }

    /// Takes CPUs out of files that containers have left, and makes moves after their notice.
    pub(super) async fn follow_exposed(&mut self) {
        let open = self.exposure.shown.iter().filter(|(_, shown)| !shown.is_settled());
        let open: Vec<ContainerId> = open.map(|(id, _)| id.clone()).collect();
        for id in open {
            self.settle_files_of(&id).await;
        }
        self.exposure.schedule();
        if self.exposure.is_time_up() {
            self.rebalance().await;
            // Nothing can be moved any more.
            self.exposure.noticed.take_if(|(_, at)| *at <= Instant::now());
        }
    }

    /// The files of a container name only its own CPUs as soon as it is on no others.
    pub(super) async fn settle_files_of(&mut self, id: &ContainerId) {
        let Some(shown) = self.exposure.shown.get(id).copied() else { return };
        let Some(target) = self.ledger.target(id) else { return };
        let is_there = self.runs_on(&target).await.is_some_and(|on| on.is_subset(&shown.decided));
        if is_there && target.adjustment.cpus() == shown.decided {
            let shown = Shown { held: shown.decided, ..shown };
            self.exposure.write(id.clone(), shown, self.ledger.topology()).await;
        }
    }

    /// Where the kernel lets a container run.
    async fn runs_on(&self, target: &Target) -> Option<CpuSet> {
        let verifier = self.checks.verifier()?;
        let group = target.cgroup.clone()?;
        let found = blocking(move || verifier.set_for(&group)).await?;
        Some(found.runs_on.unwrap_or(found.cpus))
    }

    /// Whether the moves of a plan can be made now. If programs are to have notice of them, it is
    /// given first; a notice of other moves is withdrawn.
    pub(super) async fn may_move(&mut self, plan: Option<&MovePlan>) -> bool {
        let notice = Duration::from_secs(self.ledger.settings().notice_seconds.into());
        let mut planned = BTreeMap::new();
        for step in plan.map(|plan| plan.steps.as_slice()).unwrap_or_default() {
            if step.outcome == MoveOutcome::Done {
                planned.insert(step.container.clone(), step.to);
            }
        }
        let needs_notice = planned.keys().any(|id| self.exposure.shown.contains_key(id));
        let noticed = self.exposure.noticed.take();
        let given = noticed.filter(|(noticed, _)| plan == Some(noticed));
        match (plan, given) {
            (Some(_), Some((_, at))) if at <= Instant::now() => return true,
            (Some(_), None) if notice.is_zero() || !needs_notice => {
                self.show_planned(&BTreeMap::new()).await;
                return true;
            }
            (Some(plan), given) => {
                let at = given.map_or_else(|| Instant::now() + notice, |(_, at)| at);
                self.exposure.noticed = Some((plan.clone(), at));
            }
            (None, _) => {}
        }
        self.show_planned(&planned).await;
        false
    }

    /// Has files name the CPUs that planned moves would take away; of other moves they say nothing.
    pub(super) async fn show_planned(&mut self, planned: &BTreeMap<ContainerId, CpuSet>) {
        for (id, shown) in self.exposure.all() {
            let shown = Shown { planned: planned.get(&id).copied(), ..shown };
            self.exposure.write(id, shown, self.ledger.topology()).await;
        }
    }
}
