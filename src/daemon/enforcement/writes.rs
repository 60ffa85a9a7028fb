//! Writes into the cgroups of single containers, and what the kernel says to them.

use super::{Enforcement, RefusedTarget};
use crate::daemon::blocking;
use crate::exclusivity::{Groups, KernelRefusal, QuotaChange, Writer};
use crate::ledger::{CgroupPath, ContainerId, Event, Ledger, Target, Update};
use std::path::PathBuf;

impl Enforcement {
    /// Lifts a pod's CFS quota for an exclusive container, or restores it. Returns whether that
    /// worked.
    pub(in crate::daemon) async fn settle_pod_quota(&mut self, target: Target) -> bool {
        let settle = move |groups: &mut Groups| {
            let result = groups.settle_pod_quota(&target);
            result.err().map(|error| format!("{}: {error}", target.subject))
        };
        let failed = self.with_groups(settle).await;
        if let Some(why) = &failed {
            self.errors += 1;
            log::warn!("{why}");
        }
        failed.is_none()
    }

    /// Lifts the CFS quotas of these containers' pods where they were set again. Returns how many
    /// were, and the files of all. What the kernel refuses is a drift at the next check pass.
    pub(in crate::daemon) async fn keep_quotas_lifted(
        &mut self,
        targets: Vec<Target>,
    ) -> (u64, Vec<PathBuf>) {
        if targets.is_empty() {
            return (0, Vec::new());
        }
        self.with_groups(move |groups| {
            let mut again = 0;
            for target in &targets {
                let change = groups.settle_pod_quota(target);
                again += u64::from(matches!(change, Ok(Some(QuotaChange::LiftedAgain))));
            }
            (again, targets.iter().filter_map(|target| groups.pod_quota_file(target)).collect())
        })
        .await
    }

    pub(super) async fn ask(
        &mut self,
        id: &ContainerId,
        ledger: &Ledger,
        work: impl FnOnce(&Target) -> Result<(), KernelRefusal> + Send + 'static,
    ) -> Result<(), RefusedTarget> {
        let Some(target) = ledger.target(id) else { return Ok(()) };
        self.tops.extend(target.cgroup.as_ref().and_then(CgroupPath::top));
        blocking(move || work(&target).map_err(|refusal| (target, refusal))).await
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
    ) -> impl Future<Output = Vec<ContainerId>> + Send + use<> {
        let waiting = if updates.is_empty() { None } else { self.partitions() }.map(|writer| {
            let targets = updates.iter().filter_map(|update| ledger.target(&update.container));
            (writer, targets.collect::<Vec<Target>>())
        });
        async move {
            let Some((writer, targets)) = waiting else { return Vec::new() };
            blocking(move || {
                let early = writer.await_cpus(&targets).into_iter().map(|(target, why)| {
                    log::warn!("{}: update held back: {why}", target.subject);
                    target.subject.id.clone()
                });
                early.collect()
            })
            .await
        }
    }

    /// Sets a container's CPUs without the runtime. Returns whether that worked.
    pub(in crate::daemon) async fn set_cpus(&mut self, target: Target) -> bool {
        self.write(target, Writer::set_cpus).await
    }

    /// Lifts an exclusive container's CFS quota. Returns whether that worked.
    pub(in crate::daemon) async fn lift_quota(&mut self, target: Target) -> bool {
        self.write(target, |writer, target| Ok(writer.lift_quota(target)?)).await
    }

    /// Logs and counts what the kernel refuses, except for a group that no longer exists.
    async fn write(
        &mut self,
        target: Target,
        write: impl FnOnce(&Writer, &Target) -> Result<(), KernelRefusal> + Send + 'static,
    ) -> bool {
        let Ok(writer) = self.writer.clone() else { return false };
        let subject = target.subject.clone();
        match blocking(move || write(&writer, &target)).await {
            Ok(()) => true,
            Err(refused) => {
                if !refused.is_gone() && !matches!(refused, KernelRefusal::Nowhere) {
                    self.errors += 1;
                    log::warn!("{subject}: {refused}");
                }
                false
            }
        }
    }
}
