//! [`Applied`]: what is set for a container, as far as is known.

use crate::cpuset::CpuSet;
use crate::ledger::adjustment::Adjustment;
use crate::ledger::model::{Container, MilliCpu};
use crate::nodeset::NodeSet;

/// What is set for a container, by whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    /// `None` if no CPUs are set: it runs on all there are.
    cpus: Option<CpuSet>,
    /// Whether no other container was to run on them.
    exclusive: bool,
    certainty: Certainty,
    /// The exclusive CPUs that it left with the last change, should it turn out that it has not.
    left: Option<Box<CpuSet>>,
    mems: Mems,
    quota: CfsQuota,
}

/// How far it can be relied on that CPUs are set which were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// They may have been lost, or changed since: whatever is decided has to be told.
    Doubtful,
    /// They were written into the container's group; the runtime believes something else.
    Written,
    /// The runtime has set them, as far as is known.
    Told,
}

/// The NUMA nodes that are set for a container's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mems {
    Unset,
    Ours(NodeSet),
    /// The kubelet's memory manager's, for one: these are left alone for the container's life.
    Others,
}

/// A container's CFS quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CfsQuota {
    Unset,
    /// The kubelet's.
    Set,
    /// The container has exclusive CPUs, or had some: while it shares CPUs it is told its limit.
    Lifted,
    /// Its limit was told again.
    Restored(MilliCpu),
}

impl Applied {
    /// What an event says of a container. `mems_are_ours` says whether the memory nodes in it were
    /// set here.
    pub(crate) fn found(container: &Container, mems_are_ours: bool) -> Applied {
        let mems = match container.mems {
            None => Mems::Unset,
            Some(mems) if mems_are_ours => Mems::Ours(mems),
            Some(_) => Mems::Others,
        };
        let quota = if container.cpu.limit.is_some() { CfsQuota::Set } else { CfsQuota::Unset };
        Applied { cpus: container.cpus, mems, quota, ..Applied::nothing() }
    }

    /// Nothing is set.
    pub(crate) fn nothing() -> Applied {
        Applied {
            cpus: None,
            exclusive: false,
            certainty: Certainty::Told,
            left: None,
            mems: Mems::Unset,
            quota: CfsQuota::Unset,
        }
    }

    /// Takes note of what the runtime is told to set.
    pub(crate) fn record(&mut self, told: &Adjustment) {
        self.set(told, Certainty::Told);
        if let Some(mems) = told.mems() {
            self.mems = Mems::Ours(mems);
        }
        match told.limit() {
            _ if told.is_exclusive() => self.quota = CfsQuota::Lifted,
            Some(limit) => self.quota = CfsQuota::Restored(limit),
            None => {}
        }
    }

    /// Takes note of CPUs that are written into the container's group.
    pub(crate) fn record_written(&mut self, written: &Adjustment) {
        self.set(written, Certainty::Written);
    }

    fn set(&mut self, now: &Adjustment, certainty: Certainty) {
        let left = self.cpus.as_ref().filter(|before| self.exclusive && **before != now.cpus());
        self.left = left.copied().map(Box::new);
        (self.cpus, self.exclusive) = (Some(now.cpus()), now.is_exclusive());
        self.certainty = certainty;
    }

    /// What was told or written last was not: what was set before may still be so.
    pub(crate) fn undo(&mut self) {
        self.invalidate();
        if let (Some(now), Some(left)) = (&mut self.cpus, self.left.take()) {
            *now |= *left;
            self.exclusive = true;
        }
    }

    /// What is set may be something else than what was told: it has to be told again. Where nothing
    /// is there is nothing to repeat.
    pub(crate) fn invalidate(&mut self) {
        if self.cpus.is_some() {
            self.certainty = Certainty::Doubtful;
        }
    }

    /// The kubelet, or another plugin, has set these CPUs.
    pub(crate) fn replace(&mut self, cpus: CpuSet) {
        (self.cpus, self.exclusive, self.certainty) = (Some(cpus), false, Certainty::Told);
    }

    /// The kubelet has set a quota.
    pub(crate) fn sets_quota(&mut self) {
        self.quota = CfsQuota::Set;
    }

    /// Its limit is known and no quota is set: it was lifted earlier.
    pub(crate) fn has_lifted(&mut self) {
        self.quota = CfsQuota::Lifted;
    }

    /// Whether no other container was to run on the CPUs that are set is known now.
    pub(crate) fn set_exclusive(&mut self, exclusive: bool) {
        self.exclusive = exclusive && self.cpus.is_some();
    }

    /// Whether CPUs are set.
    pub(crate) fn is_set(&self) -> bool {
        self.cpus.is_some()
    }

    /// The CPUs that are set, or may be.
    pub(crate) fn cpus(&self) -> Option<CpuSet> {
        self.cpus
    }

    /// The CPUs that are set and that no other container was to run on.
    pub(crate) fn exclusive(&self) -> Option<CpuSet> {
        if self.exclusive { self.cpus } else { None }
    }

    /// The CPUs that the runtime has set, where they are known.
    pub(crate) fn told(&self) -> Option<CpuSet> {
        if self.certainty == Certainty::Told { self.cpus } else { None }
    }

    /// Whether just these are set, with this certainty or a greater one.
    pub(crate) fn is_on(&self, cpus: &CpuSet, certainty: Certainty) -> bool {
        self.certainty >= certainty && self.cpus.as_ref() == Some(cpus)
    }

    /// Whether memory nodes are set that are not to be touched.
    pub(crate) fn keeps_mems(&self) -> bool {
        self.mems == Mems::Others
    }

    /// Whether memory nodes are set, by whomever.
    pub(crate) fn has_mems(&self) -> bool {
        self.mems != Mems::Unset
    }

    /// Whether its quota was lifted here, so that its limit has to be told while it shares CPUs.
    pub(crate) fn lacks_quota(&self) -> bool {
        matches!(self.quota, CfsQuota::Lifted | CfsQuota::Restored(_))
    }

    /// The one difference between what is set and what should be: whether the runtime has to be
    /// told.
    pub(crate) fn differs(&self, desired: &Adjustment) -> bool {
        !self.is_on(&desired.cpus(), Certainty::Told)
            || self.exclusive != desired.is_exclusive()
            || desired.mems().is_some_and(|mems| self.mems != Mems::Ours(mems))
            || self.differs_in_quota(desired.is_exclusive(), desired.limit())
    }

    /// The same of a container with these exclusive CPUs, memory aside.
    pub(crate) fn differs_from_claim(&self, claim: &CpuSet) -> bool {
        !self.is_on(claim, Certainty::Told) || !self.exclusive || self.differs_in_quota(true, None)
    }

    /// The same of a container that shares CPUs, whichever these are.
    pub(crate) fn differs_from_shared(&self, limit: Option<MilliCpu>) -> bool {
        self.exclusive
            || (self.cpus.is_some() && self.certainty < Certainty::Told)
            || self.differs_in_quota(false, limit.filter(|_| self.lacks_quota()))
    }

    fn differs_in_quota(&self, exclusive: bool, limit: Option<MilliCpu>) -> bool {
        match (self.quota, limit) {
            (quota, _) if exclusive => matches!(quota, CfsQuota::Set | CfsQuota::Restored(_)),
            (CfsQuota::Lifted, Some(_)) => true,
            (CfsQuota::Restored(told), Some(limit)) => told != limit,
            _ => false,
        }
    }
}
