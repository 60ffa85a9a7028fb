//! Writes into the cgroups of single containers, and refusals by the kernel.

use super::Enforcement;
use crate::log_repeated;
use cgroups::{FileError, KernelRefusal, QuotaChange, set_cpus};
use exclusivity::lift_quota;
use ledger::{ContainerId, Ledger, Mechanism, Target, Update};
use log::Level;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Instant;

impl Enforcement {
    /// Lifts a pod's CFS quota for an exclusive container, or restores it. Returns whether that
    /// worked.
    pub(crate) fn settle_pod_quota(&mut self, target: &Target, now: Instant) -> bool {
        let settled = self.settle(target);
        if let Err(error) = &settled {
            self.errors += 1;
            self.log_refused(target, error, now);
        }
        settled.is_ok()
    }

    fn settle(&mut self, target: &Target) -> Result<Option<QuotaChange>, FileError> {
        let Some(pod) = target.pod_group() else { return Ok(None) };
        let change = self.groups.settle_quota(&pod, target.lifts_pod_quota)?;
        let subject = &target.subject;
        match change {
            Some(QuotaChange::Lifted) => log::info!("{subject}: CFS quota of its pod lifted"),
            Some(QuotaChange::LiftedAgain) => log::debug!("{subject}: CFS quota lifted again"),
            Some(QuotaChange::Restored) => log::info!("{subject}: CFS quota of its pod restored"),
            None => {}
        }
        Ok(change)
    }

    /// Settles the CFS quotas of these containers' pods. Returns how many another program had set
    /// again, and the files of those that are to stay lifted. A quota that the kernel refuses to
    /// lift is a drift at the next check pass, which also tries again to restore the others.
    pub(crate) fn settle_pod_quotas(
        &mut self,
        targets: &[Target],
        now: Instant,
    ) -> (u64, Vec<PathBuf>) {
        let mut again = 0;
        for target in targets {
            if target.lifts_pod_quota {
                let change = self.settle(target);
                again += u64::from(matches!(change, Ok(Some(QuotaChange::LiftedAgain))));
            } else {
                self.settle_pod_quota(target, now);
            }
        }
        let lifted = targets.iter().filter(|target| target.lifts_pod_quota);
        let pods = lifted.filter_map(Target::pod_group);
        (again, pods.filter_map(|pod| self.groups.quota_file(&pod)).collect())
    }

    /// The containers of these updates that would get CPUs which a sibling partition still has.
    pub(crate) fn too_early(&self, updates: &[Update], ledger: &Ledger) -> Vec<ContainerId> {
        let mut early = Vec::new();
        if self.mechanism() != Mechanism::Partitions {
            return early;
        }
        let Ok(hierarchy) = &self.hierarchy else { return early };
        for update in updates {
            let Some(target) = ledger.target(&update.container) else { continue };
            let Some(group) = &target.cgroup else { continue };
            let held = hierarchy.held_by_siblings(group) & update.setting.cpus();
            if !held.is_empty() {
                let why = KernelRefusal::HeldBySiblings(held);
                // The partition is about to move, once that is on disk.
                log::debug!("{}: update held back: {why}", target.subject);
                early.push(update.container.clone());
            }
        }
        early
    }

    /// Sets a container's CPUs without the runtime. Returns whether that worked.
    pub(crate) fn set_cpus(&mut self, target: &Target, now: Instant) -> bool {
        let (Ok(hierarchy), Some(group)) = (&self.hierarchy, &target.cgroup) else { return false };
        let set = set_cpus(hierarchy, group, target.setting.cpus());
        self.has_worked(set, target, now)
    }

    /// Lifts an exclusive container's CFS quota. Returns whether that worked.
    pub(crate) fn lift_quota(&mut self, target: &Target, now: Instant) -> bool {
        let Ok(hierarchy) = &self.hierarchy else { return false };
        let lifted = lift_quota(hierarchy, target).map_err(KernelRefusal::from);
        self.has_worked(lifted, target, now)
    }

    /// Logs and counts what the kernel refuses, except for a group that no longer exists.
    fn has_worked(
        &mut self,
        written: Result<(), KernelRefusal>,
        target: &Target,
        now: Instant,
    ) -> bool {
        let Err(refused) = written else { return true };
        if !refused.is_gone() {
            self.errors += 1;
            // The file may be one that is watched: the refused write is reported like any other,
            // and must not lead to the next one.
            self.refused_at = Some(now);
            self.log_refused(target, &refused, now);
        }
        false
    }

    fn log_refused(&mut self, target: &Target, refused: &impl Display, now: Instant) {
        let line = format!("{}: {refused}", target.subject);
        log_repeated(&mut self.repeats, Level::Warn, &line, now);
    }
}
