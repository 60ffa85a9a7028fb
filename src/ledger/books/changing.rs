//! [`PodMut`]: a pod during a change.

use super::pod::PodEntry;
use super::sums::Sums;
use crate::cpuset::CpuSet;
use crate::ledger::policy::Policy;
use std::ops::{Deref, DerefMut};

/// What decides, for all shared containers at once, where they run and which memory they use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) told: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) policy: Policy,
    pub(crate) mems_follow_cpus: bool,
}

/// A pod during a change; dropping it counts the pod anew.
#[derive(Debug)]
pub(crate) struct PodMut<'a> {
    pub(super) entry: &'a mut PodEntry,
    pub(super) sums: &'a mut Sums,
    pub(super) revision: &'a mut u64,
    pub(super) delivered: &'a mut Option<Basis>,
}

impl Deref for PodMut<'_> {
    type Target = PodEntry;

    fn deref(&self) -> &PodEntry {
        self.entry
    }
}

impl DerefMut for PodMut<'_> {
    fn deref_mut(&mut self) -> &mut PodEntry {
        self.entry
    }
}

impl Drop for PodMut<'_> {
    fn drop(&mut self) {
        let changed = self.sums.recount(self.entry);
        *self.revision += u64::from(changed.claims);
        if changed.partitioned {
            *self.delivered = None;
        }
    }
}
