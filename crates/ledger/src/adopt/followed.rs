//! What earlier events have shown and a runtime's list does not.

use crate::books::{Books, Phase};
use crate::model::{Container, ContainerId, CpuRequest, MilliCpu, PodUid};
use crate::node::Node;
use crate::policy::Mechanism;
use core::time::Duration;
use std::collections::{HashMap, HashSet};

/// Taken from the books before an adoption clears them.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Budgets of pods, and whether the runtime reports resized ones: a list has the budgets that
    /// pods were created with.
    budgets: HashMap<PodUid, (Option<MilliCpu>, bool)>,
    /// Pods with resources of their own. Their containers may be between two instances.
    have_resources: HashSet<PodUid>,
    /// Containers for which the kernel refused a partition.
    fallen_back: HashSet<ContainerId>,
    requests: HashMap<ContainerId, CpuRequest>,
    /// When running containers started or last moved.
    settled_at: HashMap<ContainerId, Option<Duration>>,
}

impl Followed {
    pub(super) fn of(node: &Node, books: &Books) -> Followed {
        let claimed = books.claims().map(|claim| (claim.id, claim.cpu));
        let known = books.containers().map(|found| (found.entry.id().clone(), found.entry.cpu));
        let fallen_back = books.containers().map(|found| found.entry).filter(|entry| {
            node.mechanism == Mechanism::Partitions && entry.enforced_by == Mechanism::Groups
        });
        // A list has containers as running that do not run yet: these start with it.
        let running = books.containers().map(|found| found.entry);
        let running = running.filter(|entry| entry.phase() == Phase::Running);
        let budgets = books.pods().map(|(uid, pod)| (uid.clone(), (pod.pod.budget, pod.resized)));
        let have_resources = books.pods().filter(|(_, pod)| pod.has_resources);
        Followed {
            budgets: budgets.collect(),
            have_resources: have_resources.map(|(uid, _)| uid.clone()).collect(),
            fallen_back: fallen_back.map(|entry| entry.id().clone()).collect(),
            requests: claimed
                .chain(known)
                .filter(|(_, cpu)| *cpu != CpuRequest::default())
                .collect(),
            settled_at: running.map(|one| (one.id().clone(), one.settled_at())).collect(),
        }
    }

    /// What a listed container asks for: as listed, unless the list is outdated. A limit whose
    /// quota has been lifted is in no list.
    pub(super) fn request(&self, listed: &Container) -> CpuRequest {
        match self.requests.get(&listed.id) {
            Some(known) if listed.outdated => *known,
            Some(known) if known.request == listed.cpu.request => {
                CpuRequest { limit: listed.cpu.limit.or(known.limit), ..listed.cpu }
            }
            _ => listed.cpu,
        }
    }

    /// Restores it for pods and containers that still exist.
    pub(super) fn take_up(self, books: &mut Books) {
        for (uid, pod) in books.pods_mut() {
            if let Some((Some(budget), resized)) = self.budgets.get(uid).copied() {
                (pod.pod.budget, pod.resized) = (Some(budget), resized);
            }
            pod.has_resources = self.have_resources.contains(uid);
            for (_, entry) in pod.containers_mut() {
                if self.fallen_back.contains(entry.id()) {
                    entry.enforced_by = Mechanism::Groups;
                }
                if let Some(at) = self.settled_at.get(entry.id()) {
                    entry.settle(*at);
                }
            }
        }
    }
}
