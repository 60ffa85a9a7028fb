//! Writes into the cgroups of single containers, and what the kernel says to them.

use super::{Enforcement, RefusedTarget};
use crate::exclusivity::{KernelRefusal, QuotaChange, Writer};
use crate::ledger::{CgroupPath, ContainerId, Event, Ledger, Target, Update};
use std::path::PathBuf;
use std::time::Instant;

impl Enforcement {
    /// Lifts a pod's CFS quota for an exclusive container, or restores it. Returns whether that
    /// worked.
    pub(in crate::daemon) fn settle_pod_quota(&mut self, target: &Target) -> bool {
        let settled = self.groups.settle_pod_quota(target);
        if let Err(error) = &settled {
            self.errors += 1;
            log::warn!("{}: {error}", target.subject);
        }
        settled.is_ok()
    }

    /// Settles the CFS quotas of these containers' pods. Returns how many were set again since they
    /// were lifted, and the files of those that are to stay lifted. What the kernel refuses to lift
    /// is a drift at the next check pass, which also tries to restore the rest again.
    pub(in crate::daemon) fn settle_pod_quotas(
        &mut self,
        targets: &[Target],
    ) -> (u64, Vec<PathBuf>) {
        let mut again = 0;
        for target in targets {
            if target.lifts_pod_quota {
                let change = self.groups.settle_pod_quota(target);
                again += u64::from(matches!(change, Ok(Some(QuotaChange::LiftedAgain))));
            } else {
                self.settle_pod_quota(target);
            }
        }
        let lifted = targets.iter().filter(|target| target.lifts_pod_quota);
        (again, lifted.filter_map(|target| self.groups.pod_quota_file(target)).collect())
    }

    pub(super) fn ask(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
        work: impl FnOnce(&Target) -> Result<(), KernelRefusal>,
    ) -> Result<(), RefusedTarget> {
        let Some(target) = ledger.target(id) else { return Ok(()) };
        self.tops.extend(target.cgroup.as_ref().and_then(CgroupPath::top));
        work(&target).map_err(|refusal| (target, refusal))
    }

    /// Logs and counts what the kernel refused. If that was a partition, groups have to keep others
    /// off the container's CPUs: returns the event that says so.
    pub(in crate::daemon) fn fall_back(
        &mut self,
        (target, refusal): &RefusedTarget,
    ) -> Option<Event> {
        let subject = &target.subject;
        if !target.is_partition() {
            self.errors += 1;
            log::warn!("{subject}: unexpected cgroup state: {refusal}");
            return None;
        }
        self.refusals += 1;
        log::warn!(
            "{subject}: no partition: groups keep others off its CPUs (refused={}): {refusal}",
            self.refusals
        );
        Some(Event::PartitionRefused(subject.id.clone()))
    }

    /// Waits until the kernel has given back the CPUs of these updates. Returns the containers for
    /// which it has not.
    pub(in crate::daemon) fn too_early(
        &self,
        updates: &[Update],
        ledger: &Ledger,
    ) -> Vec<ContainerId> {
        if updates.is_empty() {
            return Vec::new();
        }
        let Some(writer) = self.partitions() else { return Vec::new() };
        let targets = updates.iter().filter_map(|update| ledger.target(&update.container));
        let targets: Vec<Target> = targets.collect();
        let early = writer.await_cpus(&targets).into_iter().map(|(target, why)| {
            log::warn!("{}: update held back: {why}", target.subject);
            target.subject.id.clone()
        });
        early.collect()
    }

    /// Sets a container's CPUs without the runtime. Returns whether that worked.
    pub(in crate::daemon) fn set_cpus(&mut self, target: &Target, now: Instant) -> bool {
        self.write(target, now, Writer::set_cpus)
    }

    /// Lifts an exclusive container's CFS quota. Returns whether that worked.
    pub(in crate::daemon) fn lift_quota(&mut self, target: &Target, now: Instant) -> bool {
        self.write(target, now, |writer, target| Ok(writer.lift_quota(target)?))
    }

    /// Logs and counts what the kernel refuses, except for a group that no longer exists.
    fn write(
        &mut self,
        target: &Target,
        now: Instant,
        write: impl FnOnce(&Writer, &Target) -> Result<(), KernelRefusal>,
    ) -> bool {
        let Ok(writer) = &self.writer else { return false };
        match write(writer, target) {
            Ok(()) => true,
            Err(refused) => {
                if !refused.is_gone() && !matches!(refused, KernelRefusal::Nowhere) {
                    self.errors += 1;
                    // Where cgroups bind a container by itself its file is watched: the refused
                    // write is reported like any other, and must not lead to the next one.
                    self.refused_at = Some(now);
                    log::warn!("{}: {refused}", target.subject);
                }
                false
            }
        }
    }
}
