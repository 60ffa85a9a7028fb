//! Writes into control groups behind the runtime's back.

use super::blocking::blocking;
use crate::enforce::{Enforcer, KernelRefusal, Narrowed, ProbeError, writable};
use crate::ledger::{Target, Update};
use crate::partition::PartitionType;
use std::path::Path;

/// Writes into the groups of containers and pods, where that is possible.
#[derive(Debug)]
pub(super) struct GroupWriter {
    enforcer: Result<Enforcer, ProbeError>,
    /// How often a group could not be written since the start.
    errors: u64,
}

impl GroupWriter {
    /// Finds out whether groups can be written.
    pub(super) fn open(cgroup_root: &Path, partition: PartitionType) -> GroupWriter {
        let hierarchy = writable(cgroup_root);
        let enforcer = hierarchy.map(|hierarchy| Enforcer::new(hierarchy, partition));
        if let Err(why) = &enforcer {
            log::warn!("{}", why.consequence());
        }
        GroupWriter::new(enforcer)
    }

    pub(super) fn new(enforcer: Result<Enforcer, ProbeError>) -> GroupWriter {
        GroupWriter { enforcer, errors: 0 }
    }

    /// Why groups cannot be written; `None` if they can.
    pub(super) fn cannot_write(&self) -> Option<&ProbeError> {
        self.enforcer.as_ref().err()
    }

    /// How often a group could not be written since the start.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Counts groups that could not be written by other means.
    pub(super) fn count_errors(&mut self, errors: u64) {
        self.errors += errors;
    }

    /// Sets a container's CPUs. Says whether that was possible.
    pub(super) async fn set_cpus(&mut self, placed: Target) -> bool {
        self.write(placed, Enforcer::set_cpus).await
    }

    /// Sets the CPUs of shared containers that only leave some, and takes these updates out. Returns
    /// those of containers that would get some, which are taken out as well.
    pub(super) async fn narrow(
        &self,
        updates: &mut Vec<Update>,
        target: impl Fn(&Update) -> Option<Target>,
    ) -> Vec<Update> {
        let Ok(enforcer) = self.enforcer.clone() else { return Vec::new() };
        let only_cpus = |update: &Update| {
            let to = &update.adjustment;
            !to.is_exclusive() && to.limit().is_none() && to.mems().is_none()
        };
        let shared: Vec<(usize, Target)> = updates
            .iter()
            .enumerate()
            .filter(|(_, update)| only_cpus(update))
            .filter_map(|(at, update)| {
                Some((at, Target { adjustment: update.adjustment, ..target(update)? }))
            })
            .collect();
        if shared.is_empty() {
            return Vec::new();
        }
        // What cannot be written is the runtime's to set.
        let narrow =
            move |(at, target): (usize, Target)| Some((at, enforcer.narrow(&target).ok()?));
        let narrowed = blocking(move || shared.into_iter().filter_map(narrow).collect::<Vec<_>>());
        let mut narrowed = narrowed.await.into_iter().peekable();
        let (mut wider, mut at) = (Vec::new(), 0);
        updates.retain(|update| {
            let found = narrowed.next_if(|(index, _)| *index == at);
            at += 1;
            match found {
                Some((_, Narrowed::Wider)) => {
                    wider.push(update.clone());
                    false
                }
                Some((_, Narrowed::Done)) => false,
                Some((_, Narrowed::Nowhere)) | None => true,
            }
        });
        wider
    }

    /// Lifts an exclusive container's CFS quota. Says whether that was possible.
    pub(super) async fn lift_quota(&mut self, placed: Target) -> bool {
        self.write(placed, Enforcer::lift_quota).await
    }

    /// Lifts a pod's CFS quota for an exclusive container, or puts it back. Says whether that was
    /// possible.
    pub(super) async fn settle_pod_quota(&mut self, placed: Target) -> bool {
        self.write(placed, Enforcer::settle_pod_quota).await
    }

    /// What the kernel refuses is logged and counted; a group that is gone is no failure.
    async fn write<E: Into<KernelRefusal> + Send + 'static>(
        &mut self,
        placed: Target,
        write: impl FnOnce(&Enforcer, &Target) -> Result<(), E> + Send + 'static,
    ) -> bool {
        let Ok(enforcer) = self.enforcer.clone() else { return false };
        let subject = placed.subject.clone();
        match blocking(move || Some(write(&enforcer, &placed).map_err(Into::into))).await {
            Some(Ok(())) => true,
            Some(Err(KernelRefusal::Nowhere)) => false,
            Some(Err(refused)) => {
                if !KernelRefusal::is_gone(&refused) {
                    self.errors += 1;
                    log::warn!("{subject}: {refused}");
                }
                false
            }
            None => false,
        }
    }
}
