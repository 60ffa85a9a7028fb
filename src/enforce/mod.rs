//! How a decision reaches the kernel where the runtime's way is not enough, and whether it did.
//!
//! * [`writable()`] says whether groups can be written here, [`probe()`] whether the kernel can
//!   keep exclusivity; and why not.
//! * [`Enforcer`] makes it so: cpuset partitions ([`partition`]), the quotas of containers and pods
//!   (`quota`).
//! * [`verify`] compares what was decided with what the kernel's files and the processes say.
//!
//! Nothing here remembers anything: what holds is read from the kernel each time, so that a
//! restart, a lost event or another program's write cannot make it believe what is not true. All of
//! it waits for the kernel: not to be called where that would hold up others.

mod affinity;
pub mod hierarchy;
pub mod partition;
pub mod pool;
pub mod probe;
mod quota;
pub mod verify;

pub use hierarchy::{FileError, Hierarchy};
pub use partition::KernelRefusal;
pub use pool::{PoolError, PoolReport, SharedPool};
pub use probe::{ProbeError, binding, probe, writable};
pub use verify::{Drift, InForce, Presence, Verifier};

use crate::ledger::{CgroupPath, Target};
use crate::partition::PartitionType;
use std::collections::BTreeSet;
use std::time::Instant;

/// Lets the kernel keep exclusivity, on a machine where [`probe()`] said that it can.
#[derive(Debug, Clone)]
pub struct Enforcer {
    on: Hierarchy,
    kind: PartitionType,
}

/// What became of a container's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrowed {
    /// They are set.
    Done,
    /// It would get some, and others may have to leave these first.
    Wider,
    /// Its group is not known.
    Nowhere,
}

impl Enforcer {
    /// Makes partitions of this kind in a hierarchy.
    pub fn new(on: Hierarchy, kind: PartitionType) -> Enforcer {
        Enforcer { on, kind }
    }

    /// Before a container is created: waits until the kernel has given back what it gets. For one
    /// that is to be a partition sees to it that no other group has its CPUs, and that the groups
    /// above its own can pass them on to it. What is likely to go wrong goes wrong here, while the
    /// runtime's way is still open without a gap.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn reserve(&self, placed: &Target) -> Result<(), KernelRefusal> {
        if !placed.is_partition() {
            return self.await_added(placed, partition::deadline());
        }
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        match partition::reserve(&self.on, group, placed.adjustment.cpus()) {
            // The runtime may make them later.
            Err(refused) if refused.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Before CPUs are set for containers, by the runtime or here: waits until no group that is
    /// gone has any that they get. All of them have one time together. Those whose CPUs the kernel
    /// keeps for such a group, and why.
    pub fn await_cpus<'a>(&self, placed: &'a [Target]) -> Vec<(&'a Target, KernelRefusal)> {
        let until = partition::deadline();
        let refused = |placed: &'a Target| Some((placed, self.await_added(placed, until).err()?));
        placed.iter().filter_map(refused).collect()
    }

    fn await_added(&self, placed: &Target, until: Instant) -> Result<(), KernelRefusal> {
        let Some(group) = &placed.cgroup else { return Ok(()) };
        let named = self.on.cpus(group, "cpuset.cpus").unwrap_or_default();
        let added = placed.runs_on - named;
        let result = match placed.adjustment.is_exclusive() {
            _ if added.is_empty() => Ok(()),
            true => partition::await_returned(&self.on, group, added, until),
            false => partition::await_removed(&self.on, group, added, until),
        };
        match result {
            // A group that is gone needs no CPUs.
            Err(refused) if refused.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Makes a container's group what it should be, by now or again: a partition of its CPUs or an
    /// ordinary group. A group that is gone needs nothing.
    ///
    /// # Errors
    /// If the kernel refuses a partition. Others may run on the container's CPUs then.
    pub fn settle(&self, placed: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        let result = match placed.is_partition() {
            true => partition::keep(&self.on, group, placed.adjustment.cpus(), self.kind),
            false => partition::release(&self.on, group).map_err(KernelRefusal::from),
        };
        match result {
            Err(refused) if refused.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Makes groups ordinary ones that an earlier life made partitions, and names them in the log.
    /// Says how many could not be written.
    pub fn release(&self, partitions: &[(String, CgroupPath)]) -> u64 {
        let mut failed = 0;
        for (name, group) in partitions {
            match partition::release(&self.on, group) {
                Ok(()) => log::info!("{name}: its group is no cpuset partition any more"),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    failed += 1;
                    log::error!("{name}: its group stays a cpuset partition: {error}");
                }
            }
        }
        let tops: BTreeSet<_> = partitions.iter().filter_map(|(_, group)| group.top()).collect();
        tops.iter().for_each(|top| self.tidy(top));
        failed
    }

    /// Lifts the CFS quota of a container's pod, or puts it back, by now or again.
    ///
    /// # Errors
    /// If the kernel refuses. That is not worth refusing anything for.
    pub fn settle_pod_quota(&self, placed: &Target) -> Result<(), FileError> {
        let Some(pod) = placed.cgroup.as_ref().and_then(CgroupPath::parent) else { return Ok(()) };
        let (done, result) = match placed.lifts_pod_quota {
            true => ("lifted", quota::lift(&self.on, &pod)),
            false => ("put back", quota::restore(&self.on, &pod)),
        };
        match result {
            Ok(true) => log::info!("{}: its pod's CFS quota is {done}", placed.subject),
            Ok(false) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sets a container's CPUs without the runtime, which keeps believing what it was last told.
    /// For want of a better way only.
    ///
    /// # Errors
    /// If the kernel refuses, the group is gone or not known, or some of them are kept for one that
    /// is gone.
    pub fn set_cpus(&self, placed: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        self.await_added(placed, partition::deadline())?;
        Ok(self.on.write(group, "cpuset.cpus", &placed.adjustment.cpus().to_string())?)
    }

    /// Sets a shared container's CPUs without the runtime, if it leaves some by that or nothing
    /// changes.
    ///
    /// # Errors
    /// If its group cannot be read or written, or is not there (yet).
    pub fn narrow(&self, placed: &Target) -> Result<Narrowed, FileError> {
        let Some(group) = &placed.cgroup else { return Ok(Narrowed::Nowhere) };
        let (set, to) = (self.on.cpus(group, "cpuset.cpus")?, placed.adjustment.cpus());
        if set == to {
            return Ok(Narrowed::Done);
        }
        if !set.is_empty() && !to.is_subset(&set) {
            return Ok(Narrowed::Wider);
        }
        self.on.write(group, "cpuset.cpus", &to.to_string())?;
        Ok(Narrowed::Done)
    }

    /// Lifts an exclusive container's own CFS quota without the runtime, which was told to and did
    /// not.
    ///
    /// # Errors
    /// If the kernel refuses, or the group is gone.
    pub fn lift_quota(&self, placed: &Target) -> Result<(), FileError> {
        match &placed.cgroup {
            Some(group) if placed.adjustment.is_exclusive() => quota::end(&self.on, group),
            _ => Ok(()),
        }
    }

    /// Takes what ended containers have left out of a group and those in it.
    pub fn tidy(&self, top: &CgroupPath) {
        partition::tidy(&self.on, top);
    }
}
