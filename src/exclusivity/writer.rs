//! [`Writer`]: cpuset partitions, and the CPUs of single containers where the runtime cannot set
//! them.
//!
//! It keeps no state: it reads the kernel's each time, so a restart, a lost event or another
//! program's write cannot make it wrong. All functions wait for the kernel: call them only where
//! that delays no other work.

use super::affinity;
use super::hierarchy::{CPUS, FileError, Hierarchy, unless_gone};
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
    /// partition it also makes sure that no other cgroup has the CPUs, and that the cgroups above
    /// can pass them on. Most errors happen here, while others can still be kept off without a gap.
    pub fn reserve(&self, target: &Target) -> Result<(), KernelRefusal> {
        if !target.is_partition() {
            return self.await_added(target, partition::deadline(&self.on));
        }
        let Some(group) = &target.cgroup else { return Err(KernelRefusal::Nowhere) };
        // The runtime may make the cgroups later.
        ignore_gone(partition::reserve(&self.on, group, target.setting.cpus()))
    }

    /// Prepares a change of containers' CPUs, by the runtime or here: waits until no removed cgroup
    /// has any of them. One deadline holds for all. Returns the containers whose CPUs the kernel
    /// still holds for such a cgroup.
    pub fn await_cpus<'a>(&self, targets: &'a [Target]) -> Vec<(&'a Target, KernelRefusal)> {
        let until = partition::deadline(&self.on);
        targets
            .iter()
            .filter_map(|target| Some((target, self.await_added(target, until).err()?)))
            .collect()
    }

    fn await_added(&self, target: &Target, until: Instant) -> Result<(), KernelRefusal> {
        let Some(group) = &target.cgroup else { return Ok(()) };
        let exclusive = target.setting.is_exclusive();
        let awaited = if exclusive { target.setting.exclusive_cpus() } else { target.runs_on };
        let added = awaited - self.on.cpus(group, CPUS).unwrap_or_default();
        if added.is_empty() {
            return Ok(());
        }
        ignore_gone(if exclusive {
            partition::await_returned(&self.on, group, added, until)
        } else {
            partition::check_siblings(&self.on, group, added)
                .and_then(|()| partition::await_removed(&self.on, group, added, until))
        })
    }

    /// Makes a container's cgroup a partition of its CPUs or an ordinary cgroup, as decided.
    ///
    /// # Errors
    /// If the kernel refuses a partition. Other containers may run on the CPUs then.
    pub fn settle(&self, target: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &target.cgroup else { return Err(KernelRefusal::Nowhere) };
        ignore_gone(if target.is_partition() {
            partition::ensure(&self.on, group, target.setting.cpus(), self.kind)
        } else {
            partition::release(&self.on, group).map_err(KernelRefusal::from)
        })
    }

    /// Makes partitions of an earlier process ordinary cgroups, and logs their names. Writing
    /// `member` needs no privilege. Returns the number of failed writes.
    pub fn release(&self, partitions: &[(String, CgroupPath)]) -> u64 {
        let mut failed = 0;
        for (name, group) in partitions {
            match unless_gone(partition::release(&self.on, group)) {
                Ok(Some(())) => log::info!("{name}: cpuset partition ended"),
                Ok(None) => {}
                Err(error) => {
                    failed += 1;
                    log::error!("{name}: cannot end the cpuset partition: {error}");
                }
            }
        }
        let tops: BTreeSet<_> = partitions.iter().filter_map(|(_, group)| group.top()).collect();
        for top in &tops {
            self.tidy(top);
        }
        failed
    }

    /// Sets a container's CPUs without the runtime, whose own record becomes wrong: only for cases
    /// without a better way. This process cannot write the cgroup that it is in itself, where that
    /// is the root of its cgroup namespace: its threads' affinity is set then.
    ///
    /// # Errors
    /// Also if the cgroup is gone or not known, or the kernel holds some CPUs for a removed one.
    pub fn set_cpus(&self, target: &Target) -> Result<(), KernelRefusal> {
        let Some(group) = &target.cgroup else { return Err(KernelRefusal::Nowhere) };
        self.await_added(target, partition::deadline(&self.on))?;
        let cpus = target.setting.cpus();
        match self.on.write(group, CPUS, &cpus.to_string()) {
            Err(error) if error.is_forbidden() && self.on.is_own(group) => {
                Ok(affinity::confine_self(self.on.kernel(), cpus).map_err(|_| error)?)
            }
            result => Ok(result?),
        }
    }

    /// Lifts an exclusive container's own CFS quota, after the runtime has ignored the request.
    pub fn lift_quota(&self, target: &Target) -> Result<(), FileError> {
        match &target.cgroup {
            Some(group) if target.setting.is_exclusive() => quota::end(&self.on, group),
            _ => Ok(()),
        }
    }

    /// Removes leftovers of ended containers from a cgroup and those in it.
    pub fn tidy(&self, top: &CgroupPath) {
        partition::tidy(&self.on, top);
    }
}

/// A removed cgroup needs no CPUs.
fn ignore_gone(result: Result<(), KernelRefusal>) -> Result<(), KernelRefusal> {
    match result {
        Err(refused) if refused.is_gone() => Ok(()),
        result => result,
    }
}
