//! The shared pool as `cpuset.cpus` of the groups above containers.
//!
//! A group's processes, and those of all groups in it, run on no CPU that is not in its
//! `cpuset.cpus`, whatever is set below it: when the write returns, the kernel has moved them
//! (`Documentation/admin-guide/cgroup-v2.rst`, `cpuset.cpus`). So a class's group holds all of its
//! containers in the pool at once.
//!
//! What another program had set for a group is a bound that is respected. It is remembered on the
//! group itself, together with what was written here: so it is known which of the two a value is,
//! as long as the group exists, and it can be put back.

use super::hierarchy::{FileError, Hierarchy};
use crate::cpuset::CpuSet;
use crate::ledger::{CgroupPath, GroupTarget, Layout};
use crate::wording;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;

const CPUS: &str = "cpuset.cpus";
const EFFECTIVE: &str = "cpuset.cpus.effective";
/// Where a group's bound and the last two values that were written are remembered.
const REMEMBERED: &str = "user.nri-cpu-manager.cpuset.cpus";

/// Why the groups above containers do not keep them in the shared pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What another program allows a group has nothing in common with what it should have.
    #[error("{group} is bound to {} by another program, and none of these {}", wording::cpus(.bound), wording::agree(.bound, "is shared", "are shared"))]
    NothingLeft {
        /// The group.
        group: CgroupPath,
        /// Its bound.
        bound: CpuSet,
    },
    /// All writes went through, and the kernel lets the group run elsewhere.
    #[error("{group} runs on {}, though {} {} set for it", wording::cpus(.effective), wording::cpus(.set), wording::agree(.set, "is", "are"))]
    Elsewhere {
        /// The group.
        group: CgroupPath,
        /// Where it runs.
        effective: CpuSet,
        /// What is set.
        set: CpuSet,
    },
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// How many groups were written.
    pub written: u64,
    /// CPUs that containers have still to leave before others are let on them.
    pub withheld: CpuSet,
    /// What other programs allow groups.
    pub bounds: BTreeMap<CgroupPath, CpuSet>,
    /// Groups in which another program has written since.
    pub foreign: Vec<(CgroupPath, CpuSet)>,
}

/// Keeps containers in the shared pool by the groups above them, on a machine with cgroup v2.
#[derive(Debug, Clone)]
pub struct SharedPool {
    on: Hierarchy,
}

/// A group that is there, and what it should be.
struct Group<'a> {
    target: &'a GroupTarget,
    set: CpuSet,
    memory: Memory,
    wanted: CpuSet,
}

/// What is remembered on a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Memory {
    /// What another program had set; empty without.
    bound: CpuSet,
    /// What was written here last, and before that: either may be in force after a crash.
    ours: Option<[CpuSet; 2]>,
}

impl SharedPool {
    /// Writes into a hierarchy.
    pub fn new(on: Hierarchy) -> SharedPool {
        SharedPool { on }
    }

    /// Makes all groups what they should be: containers leave CPUs everywhere before any is let on
    /// others. Only what differs is written, and what was written is read back.
    ///
    /// # Errors
    /// If a group does not become so. Others may be so by then.
    pub fn apply(&self, layout: &Layout) -> Result<PoolReport, PoolError> {
        let mut report = PoolReport::default();
        let now = self.occupied(layout)?;
        let leaving = now.iter().map(|(_, set, claim)| *set - *claim).collect::<CpuSet>();
        report.withheld = layout.pool & leaving;
        let pool = layout.pool - leaving;
        let mut groups = Vec::new();
        for target in &layout.groups {
            let occupants = now.iter().filter(|(group, ..)| is_in(group, &target.group));
            let occupied: CpuSet = occupants.map(|(_, set, claim)| *set | *claim).collect();
            // With nothing left it would be open for everything: it stays as it is.
            let wanted = pool | occupied;
            if !wanted.is_empty() {
                groups.extend(self.group(target, wanted, &mut report)?);
            }
        }
        for group in &mut groups {
            let rest = if group.set.is_empty() { group.wanted } else { group.set & group.wanted };
            let narrowed = if rest.is_empty() { group.wanted } else { rest };
            self.set_for(group, narrowed, &mut report)?;
        }
        for group in &groups {
            self.clear_beside(group.target, layout.told, &mut report)?;
        }
        for group in &mut groups {
            self.set_for(group, group.wanted, &mut report)?;
        }
        Ok(report)
    }

    /// Puts back what other programs had set for a group and those in it, where anything was
    /// written here. Says how many groups that were.
    ///
    /// # Errors
    /// If one cannot be written. The others are put back all the same.
    pub fn release(&self, top: &CgroupPath) -> Result<u64, FileError> {
        let mut result = self.release_one(top).map(u64::from);
        for child in self.on.children(top) {
            let below = self.release(&child);
            result = match (result, below) {
                (Ok(here), Ok(below)) => Ok(here + below),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        result
    }

    /// The same for this group alone. Says whether anything was written there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn release_one(&self, group: &CgroupPath) -> Result<bool, FileError> {
        let (Some(set), Some(memory)) = (self.set(group)?, self.remembered(group)?) else {
            return Ok(false);
        };
        if memory.is_ours(set) {
            let bound = memory.bound;
            let value = if bound.is_empty() { String::new() } else { bound.to_string() };
            match self.on.write(group, CPUS, &value) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        match rustix::fs::removexattr(self.on.directory(group), REMEMBERED) {
            Ok(()) | Err(Errno::NODATA | Errno::NOENT) => Ok(true),
            Err(error) => Err(self.unwritable(group, error)),
        }
    }

    /// Of each container with exclusive CPUs its group, the CPUs that are set for it now, and those
    /// that are its own.
    fn occupied(&self, layout: &Layout) -> Result<Vec<(CgroupPath, CpuSet, CpuSet)>, FileError> {
        let mut now = Vec::new();
        // In the group of a class is what is in its pods, which are listed as well.
        let pods = layout.groups.iter().filter(|target| target.is_pod);
        for occupant in pods.flat_map(|target| &target.exclusive) {
            let set = self.set(&occupant.group)?.unwrap_or_default();
            // Some runtimes set CPUs for a moment after they have made the group.
            now.push((occupant.group.clone(), set, occupant.cpus));
        }
        Ok(now)
    }

    /// A group as it is; `None` if it is not there.
    fn group<'a>(
        &self,
        target: &'a GroupTarget,
        wanted: CpuSet,
        report: &mut PoolReport,
    ) -> Result<Option<Group<'a>>, PoolError> {
        let group = &target.group;
        let Some(set) = self.set(group)? else { return Ok(None) };
        let memory = self.memory_of(group, set)?;
        if memory.ours.is_none() && self.remembered(group)?.is_some() {
            report.foreign.push((group.clone(), set));
        }
        let bound = memory.bound;
        if bound.is_empty() {
            return Ok(Some(Group { target, set, memory, wanted }));
        }
        report.bounds.insert(group.clone(), bound);
        match wanted & bound {
            wanted if wanted.is_empty() => {
                Err(PoolError::NothingLeft { group: group.clone(), bound })
            }
            wanted => Ok(Some(Group { target, set, memory, wanted })),
        }
    }

    /// What is set for a group; `None` if it is not there.
    fn set(&self, group: &CgroupPath) -> Result<Option<CpuSet>, FileError> {
        match self.on.cpus(group, CPUS) {
            Ok(set) => Ok(Some(set)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a group's CPUs, unless they are set, and sees whether that is in force.
    fn set_for(
        &self,
        group: &mut Group<'_>,
        cpus: CpuSet,
        report: &mut PoolReport,
    ) -> Result<(), PoolError> {
        let path = &group.target.group;
        if group.set == cpus {
            return Ok(());
        }
        let written = self.write(path, group.set, &mut group.memory, cpus);
        let effective = match written.and_then(|()| self.on.cpus(path, EFFECTIVE)) {
            Err(error) if error.is_gone() => return Ok(()),
            result => result?,
        };
        group.set = cpus;
        report.written += 1;
        match effective.is_subset(&cpus) {
            true => Ok(()),
            false => Err(PoolError::Elsewhere { group: path.clone(), effective, set: cpus }),
        }
    }

    /// Remembers what is written, and what was there before, and writes it.
    fn write(
        &self,
        group: &CgroupPath,
        set: CpuSet,
        memory: &mut Memory,
        cpus: CpuSet,
    ) -> Result<(), FileError> {
        memory.ours = Some([cpus, set]);
        let path = self.on.directory(group);
        let text = memory.text();
        rustix::fs::setxattr(&path, REMEMBERED, text.as_bytes(), XattrFlags::empty())
            .map_err(|error| self.unwritable(group, error))?;
        self.on.write(group, CPUS, &cpus.to_string())
    }

    /// Takes what is in a pod beside its containers with exclusive CPUs off these: its pause
    /// container, and containers that were there before. The pod's group cannot.
    fn clear_beside(
        &self,
        target: &GroupTarget,
        told: CpuSet,
        report: &mut PoolReport,
    ) -> Result<(), PoolError> {
        let own: CpuSet = target.exclusive.iter().map(|occupant| occupant.cpus).collect();
        if !target.is_pod || own.is_empty() {
            return Ok(());
        }
        for child in self.on.children(&target.group) {
            if target.exclusive.iter().any(|occupant| occupant.group == child) {
                continue;
            }
            let Some(set) = self.set(&child)? else { continue };
            let named = if set.is_empty() { told | own } else { set };
            let beside = if named.is_subset(&own) { told - own } else { named - own };
            if beside == set || beside.is_empty() {
                continue;
            }
            // A container's own CPUs are the ledger's: only a pause container gets them back.
            let mut memory = self.memory_of(&child, set)?;
            let written = match memory.bound.is_empty() {
                true => self.write(&child, set, &mut memory, beside),
                false => self.on.write(&child, CPUS, &beside.to_string()),
            };
            match written {
                Err(error) if error.is_gone() => {}
                result => {
                    result?;
                    report.written += 1;
                }
            }
        }
        Ok(())
    }

    /// What is remembered on a group that has these CPUs. What is not ours is a bound.
    fn memory_of(&self, group: &CgroupPath, set: CpuSet) -> Result<Memory, FileError> {
        let remembered = self.remembered(group)?.filter(|memory| memory.is_ours(set));
        Ok(remembered.unwrap_or(Memory { bound: set, ours: None }))
    }

    fn remembered(&self, group: &CgroupPath) -> Result<Option<Memory>, FileError> {
        let path = self.on.directory(group);
        let mut buffer = [0; 4096];
        match rustix::fs::getxattr(&path, REMEMBERED, &mut buffer) {
            Ok(length) => {
                let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
                Ok(Memory::parse(&text))
            }
            Err(Errno::NODATA | Errno::NOENT) => Ok(None),
            Err(error) => Err(FileError::Read { path, source: error.into() }),
        }
    }

    fn unwritable(&self, group: &CgroupPath, error: Errno) -> FileError {
        let path = self.on.directory(group);
        FileError::Write { path, value: REMEMBERED.to_owned(), source: error.into() }
    }
}

impl Memory {
    /// Whether a value was written here.
    fn is_ours(&self, set: CpuSet) -> bool {
        self.ours.is_some_and(|ours| ours.contains(&set))
    }

    /// The bound, and what was written last and before that, apart by semicolons.
    fn text(&self) -> String {
        let [last, before] = self.ours.unwrap_or_default();
        format!("{};{last};{before}", self.bound)
    }

    fn parse(text: &str) -> Option<Memory> {
        let mut sets = text.split(';').map(|list| list.parse().ok());
        let mut next = || sets.next().flatten();
        Some(Memory { bound: next()?, ours: Some([next()?, next()?]) })
    }
}

/// Whether something was written here into a group above this one.
pub(super) fn is_bound(on: &Hierarchy, group: &CgroupPath) -> bool {
    let is_ours = |above: CgroupPath| {
        let mut buffer = [0; 1];
        let found = rustix::fs::getxattr(on.directory(&above), REMEMBERED, &mut buffer);
        matches!(found, Ok(_) | Err(Errno::RANGE))
    };
    group.ancestors().into_iter().any(is_ours)
}

/// Whether a group is in another one, at any depth.
fn is_in(group: &CgroupPath, above: &CgroupPath) -> bool {
    let rest = group.as_str().strip_prefix(above.as_str());
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
