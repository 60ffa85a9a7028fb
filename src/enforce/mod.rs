//! Applies decisions in the kernel where the runtime's way is not enough, and verifies them.
//!
//! * [`writable()`] finds out whether this process can write groups, [`probe()`] whether the kernel
//!   can keep exclusivity; and why not.
//! * [`Enforcer`] writes cpuset partitions (`partition`) and the quotas of containers and pods
//!   (`quota`).
//! * `verify` compares decisions with the kernel's files and with the processes.
//!
//! This room keeps no state: it reads the kernel's each time, so a restart, a lost event or another
//! program's write cannot make it wrong. All functions wait for the kernel: call them only where
//! that delays no other work.

mod affinity;
mod hierarchy;
mod leftovers;
mod partition;
mod pool;
mod probe;
mod quota;
mod verify;

pub use hierarchy::{FileError, Hierarchy};
pub use leftovers::{Undone, undo};
pub use partition::KernelRefusal;
pub use pool::{PoolError, PoolReport, SharedPool};
pub use probe::{ProbeError, binding, probe, writable};
pub use verify::{Drift, InForce, Presence, Verifier};

use crate::ledger::{CgroupPath, Target};
use crate::partition::PartitionType;
use std::collections::BTreeSet;
use std::time::Instant;

/// Writes control groups, on a machine where [`probe()`] or [`writable()`] succeeded.
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
    /// `kind` is the type of the partitions to make.
    pub fn new(on: Hierarchy, kind: PartitionType) -> Enforcer {
        Enforcer { on, kind }
    }

    /// Prepares a container's creation: waits until the kernel has given back its CPUs. For a
    /// partition it also makes sure that no other group has the CPUs, and that the groups above can
    /// pass them on. Most errors happen here, while the runtime can still keep exclusivity without
    /// a gap.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn reserve(&self, placed: &Target) -> Result<(), KernelRefusal> {
        if !placed.is_partition() {
            return self.await_added(placed, partition::deadline());
        }
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        match partition::reserve(&self.on, group, placed.adjustment.cpus()) {
            // The runtime may make the groups later.
            Err(refused) if refused.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Prepares a change of containers' CPUs, by the runtime or here: waits until no removed group
    /// has any of them. One deadline holds for all. Returns the containers whose CPUs the kernel
    /// still keeps for such a group.
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
            // A removed group needs no CPUs.
            Err(refused) if refused.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Makes a container's group a partition of its CPUs or an ordinary group, as decided. A
    /// removed group needs nothing.
    ///
    /// # Errors
    /// If the kernel refuses a partition. Other containers may run on the CPUs then.
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

    /// Makes partitions of an earlier process ordinary groups, and logs their names. Returns the
    /// number of failed writes.
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

    /// Lifts the CFS quota of a container's pod or puts it back, as decided.
    ///
    /// # Errors
    /// If the kernel refuses, which is no reason to refuse the container.
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

    /// Sets a container's CPUs without the runtime, whose own record becomes wrong. Only for cases
    /// without a better way.
    ///
    /// # Errors
    /// If the kernel refuses, the group is gone or not known, or the kernel keeps some CPUs for a
    /// removed group.
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

    /// Lifts an exclusive container's own CFS quota, after the runtime has ignored the request.
    ///
    /// # Errors
    /// If the kernel refuses, or the group is gone.
    pub fn lift_quota(&self, placed: &Target) -> Result<(), FileError> {
        match &placed.cgroup {
            Some(group) if placed.adjustment.is_exclusive() => quota::end(&self.on, group),
            _ => Ok(()),
        }
    }

    /// Removes leftovers of ended containers from a group and the groups in it.
    pub fn tidy(&self, top: &CgroupPath) {
        partition::tidy(&self.on, top);
    }
}
