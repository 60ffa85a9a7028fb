//! [`AppliedSetting`]: the last setting of a container that was sent or reported.

use crate::model::{Container, MilliCpu};
use crate::setting::{CpuSetting, Reach};
use cpuset::{CpuSet, NodeSet};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppliedSetting {
    /// `None` if no CPUs are set: the container may run on all of them.
    reach: Option<Arc<Reach>>,
    certainty: Certainty,
    mems: Mems,
    quota: CfsQuota,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// The kernel may have others: an update is due.
    Doubtful,
    /// The daemon has written them into the container's cgroup; the runtime's record differs.
    Written,
    /// The runtime has them.
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mems {
    Unset,
    Ours(NodeSet),
    /// Set by another program, such as the kubelet's memory manager: they stay for the container's
    /// life.
    Foreign(NodeSet),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CfsQuota {
    Unset,
    Set,
    /// Lifted for exclusive CPUs: an update must restore the limit when the container shares CPUs.
    Lifted,
    Restored(MilliCpu),
}

impl AppliedSetting {
    /// The setting that an event reports. `mems_are_ours`: the ledger has set the memory nodes.
    pub(crate) fn reported(container: &Container, mems_are_ours: bool) -> AppliedSetting {
        let mems = match container.mems {
            None => Mems::Unset,
            Some(mems) if mems_are_ours => Mems::Ours(mems),
            Some(mems) => Mems::Foreign(mems),
        };
        let quota = if container.cpu.limit.is_some() { CfsQuota::Set } else { CfsQuota::Unset };
        let reach = container.cpus.map(|cpus| Reach::shared(cpus).into());
        AppliedSetting { reach, mems, quota, ..AppliedSetting::nothing() }
    }

    pub(crate) fn nothing() -> AppliedSetting {
        AppliedSetting {
            reach: None,
            certainty: Certainty::Set,
            mems: Mems::Unset,
            quota: CfsQuota::Unset,
        }
    }

    pub(crate) fn record(&mut self, sent: &CpuSetting) {
        self.set(sent, Certainty::Set);
        if let Some(mems) = sent.mems() {
            self.mems = Mems::Ours(mems);
        }
        match sent.limit() {
            _ if sent.is_exclusive() => self.quota = CfsQuota::Lifted,
            Some(limit) => self.quota = CfsQuota::Restored(limit),
            None => {}
        }
    }

    pub(crate) fn record_written(&mut self, written: &CpuSetting) {
        self.set(written, Certainty::Written);
    }

    fn set(&mut self, now: &CpuSetting, certainty: Certainty) {
        self.reach = Some(Arc::clone(now.reach()));
        self.certainty = certainty;
    }

    /// The kernel's CPUs may differ from the record: an update is due, unless none were set.
    pub(crate) fn invalidate(&mut self) {
        if self.is_set() {
            self.certainty = Certainty::Doubtful;
        }
    }

    /// Records CPUs that the kubelet or another plugin has set.
    pub(crate) fn replace(&mut self, cpus: CpuSet) {
        self.reach = Some(Reach::shared(cpus).into());
        self.certainty = Certainty::Set;
    }

    pub(crate) fn record_quota(&mut self) {
        self.quota = CfsQuota::Set;
    }

    pub(crate) fn record_lifted_quota(&mut self) {
        self.quota = CfsQuota::Lifted;
    }

    /// Records which of the CPUs that are set are exclusive.
    pub(crate) fn set_exclusive(&mut self, exclusive: CpuSet) {
        self.reach = self.cpus().map(|cpus| Reach::divided(cpus, exclusive).into());
    }

    /// Keeps the CPUs once if another container has the same.
    pub(super) fn share_with(&mut self, other: &AppliedSetting) {
        if self.reach == other.reach {
            self.reach.clone_from(&other.reach);
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.reach.is_some()
    }

    /// The CPUs that are set, with any certainty.
    pub(crate) fn cpus(&self) -> Option<CpuSet> {
        self.reach.as_ref().map(|reach| reach.all())
    }

    /// The part of the CPUs that only this container has; `None` if it has no such CPUs.
    pub(crate) fn exclusive(&self) -> Option<CpuSet> {
        self.reach.as_ref().filter(|reach| reach.is_exclusive()).map(|reach| reach.exclusive)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.is_exclusive())
    }

    /// The CPUs, if they are shared ones and it is certain that the runtime has set them.
    pub(crate) fn certain_shared(&self) -> Option<Arc<Reach>> {
        let is_shared = self.certainty == Certainty::Set && !self.is_exclusive();
        self.reach.clone().filter(|_| is_shared)
    }

    /// The CPUs, if it is certain that the runtime has set them.
    pub(crate) fn certain_cpus(&self) -> Option<CpuSet> {
        if self.certainty == Certainty::Set { self.cpus() } else { None }
    }

    /// Whether exactly these CPUs are set, with at least this certainty.
    pub(crate) fn is_on(&self, cpus: &CpuSet, certainty: Certainty) -> bool {
        self.certainty >= certainty && self.cpus() == Some(*cpus)
    }

    /// Whether another program has set memory nodes, which must stay.
    pub(crate) fn has_foreign_mems(&self) -> bool {
        matches!(self.mems, Mems::Foreign(_))
    }

    /// The memory nodes that are set.
    pub(crate) fn mems(&self) -> Option<NodeSet> {
        match self.mems {
            Mems::Unset => None,
            Mems::Ours(mems) | Mems::Foreign(mems) => Some(mems),
        }
    }

    /// Whether its quota was lifted: updates have to carry its limit while it shares CPUs.
    pub(crate) fn has_lifted_quota(&self) -> bool {
        matches!(self.quota, CfsQuota::Lifted | CfsQuota::Restored(_))
    }

    /// Whether other CPUs are set than its target, or other ones of them are exclusive.
    pub(crate) fn differs_in_cpus(&self, target: &CpuSetting, certainty: Certainty) -> bool {
        self.certainty < certainty || self.reach.as_ref() != Some(target.reach())
    }

    /// Whether the setting differs from the target, so that an update is due.
    pub(crate) fn differs(&self, target: &CpuSetting) -> bool {
        self.differs_in_cpus(target, Certainty::Set)
            || target.mems().is_some_and(|mems| self.mems != Mems::Ours(mems))
            || self.differs_in_quota(target.is_exclusive(), target.limit())
    }

    fn differs_in_quota(&self, exclusive: bool, limit: Option<MilliCpu>) -> bool {
        match (self.quota, limit) {
            (quota, _) if exclusive => matches!(quota, CfsQuota::Set | CfsQuota::Restored(_)),
            (CfsQuota::Lifted, Some(_)) => true,
            (CfsQuota::Restored(restored), Some(limit)) => restored != limit,
            _ => false,
        }
    }
}
