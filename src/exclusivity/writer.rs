//! [`Writer`]: cpuset partitions, and the CPUs of single containers where the runtime's way is not
//! enough.
//!
//! It keeps no state: it reads the kernel's each time, so a restart, a lost event or another
//! program's write cannot make it wrong. All functions wait for the kernel: call them only where
//! that delays no other work.

use super::affinity;
use super::hierarchy::{FileError, Hierarchy};
use super::partition::{self, KernelRefusal};
use super::quota;
use crate::ledger::{CgroupPath, Target};
use crate::partition::PartitionType;
use std::collections::BTreeSet;
use std::time::Instant;

/// Writes cgroups, on a machine where [`probe()`](super::probe()) or
/// [`writable()`](super::writable()) succeeded.
#[derive(Debug, Clone)]
pub struct Writer {
    on: Hierarchy,
    kind: PartitionType,
}

impl Writer {
    /// `kind` is the type of the partitions to make.
    pub fn new(on: Hierarchy, kind: PartitionType) -> Writer {
        Writer { on, kind }
    }

    /// Prepares a container's creation: waits until the kernel has given back its CPUs. For a
    /// partition it also makes sure that no other group has the CPUs, and that the groups above can
    /// pass them on. Most errors happen here, while others can still be kept off without a gap.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn reserve(&self, placed: &Target) -> Result<(), KernelRefusal> {
        if !placed.is_partition() {
            return self.await_added(placed, partition::deadline());
        }
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        // The runtime may make the groups later.
        unless_gone(partition::reserve(&self.on, group, placed.adjustment.cpus()))
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
        unless_gone(if added.is_empty() {
            Ok(())
        } else if placed.adjustment.is_exclusive() {
            partition::await_returned(&self.on, group, added, until)
        } else {
            partition::await_removed(&self.on, group, added, until)
        })
    }

    /// Makes a container's group a partition of its CPUs or an ordinary group, as decided.
    ///
    /// # Errors
    /// If the kernel refuses a partition. Other containers may run on the CPUs then.
    pub fn settle(&self, placed: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        unless_gone(if placed.is_partition() {
            partition::keep(&self.on, group, placed.adjustment.cpus(), self.kind)
        } else {
            partition::release(&self.on, group).map_err(KernelRefusal::from)
        })
    }

    /// Makes partitions of an earlier process ordinary groups, and logs their names. Writing
    /// `member` needs no privilege. Returns the number of failed writes.
    pub fn release(&self, partitions: &[(String, CgroupPath)]) -> u64 {
        let mut failed = 0;
        for (name, group) in partitions {
            match partition::release(&self.on, group) {
                Ok(()) => log::info!("{name}: its cgroup is no cpuset partition any more"),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    failed += 1;
                    log::error!("{name}: its cgroup stays a cpuset partition: {error}");
                }
            }
        }
        let tops: BTreeSet<_> = partitions.iter().filter_map(|(_, group)| group.top()).collect();
        tops.iter().for_each(|top| self.tidy(top));
        failed
    }

    /// Sets a container's CPUs without the runtime, whose own record becomes wrong. Only for cases
    /// without a better way. This process cannot write the cgroup that it is in itself, where that
    /// is the root of its cgroup namespace: its threads' affinity is set then.
    ///
    /// # Errors
    /// If the kernel refuses, the group is gone or not known, or the kernel keeps some CPUs for a
    /// removed group.
    pub fn set_cpus(&self, placed: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &placed.cgroup else { return Err(KernelRefusal::Nowhere) };
        self.await_added(placed, partition::deadline())?;
        let cpus = placed.adjustment.cpus();
        match self.on.write(group, "cpuset.cpus", &cpus.to_string()) {
            Err(error) if error.is_forbidden() && self.on.is_own(group) => {
                Ok(affinity::confine_self(cpus).map_err(|_| error)?)
            }
            result => Ok(result?),
        }
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

/// A removed group needs no CPUs.
fn unless_gone(result: Result<(), KernelRefusal>) -> Result<(), KernelRefusal> {
    match result {
        Err(refused) if refused.is_gone() => Ok(()),
        result => result,
    }
}
