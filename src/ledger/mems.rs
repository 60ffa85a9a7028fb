//! `cpuset.mems`: the memory of a container with exclusive CPUs is kept on the NUMA nodes of these, where the administrator
//! wants it.
//!
//! Memory nodes that somebody else has set (the kubelet's memory manager does, under its policy `Static`) are left alone
//! for the container's life.

use super::Ledger;
use super::entry::Entry;
use super::model::Container;
use crate::nodeset::NodeSet;
use crate::placement::memory::{all_memory, memory_of};

impl Ledger {
    /// What a container is told about its memory; `None` leaves that as it is.
    ///
    /// One whose memory follows no CPUs, as it shares them or because that is no longer wanted, is told only if it has been
    /// told before: it may use all memory now.
    pub(super) fn mems_of(&self, entry: &Entry) -> Option<NodeSet> {
        if entry.mems_are_others {
            return None;
        }
        match entry.claim.filter(|_| self.settings.mems_follow_cpus) {
            Some(claim) => memory_of(&self.topology, &claim),
            None => entry.mems.and_then(|_| all_memory(&self.topology)),
        }
    }

    /// Whether the memory nodes of a container that is found running were set here, as far as can be told: they are
    /// those of its CPUs, or none are set.
    pub(super) fn mems_are_ours(&self, container: &Container) -> bool {
        let follow = || memory_of(&self.topology, &container.cpus?);
        container.mems.is_none() || (self.settings.mems_follow_cpus && container.mems == follow())
    }
}
