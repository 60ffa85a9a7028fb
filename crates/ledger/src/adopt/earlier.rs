//! [`EarlierFacts`]: what earlier events have shown and a runtime's list leaves out.

use crate::books::{Books, Phase};
use crate::model::{Container, ContainerId, CpuRequest, LeftAlone, MilliCpu, Pod, PodUid};
use crate::node::Node;
use crate::policy::Mechanism;
use core::time::Duration;
use placement::memory_manager::Amounts;
use std::collections::{HashMap, HashSet};

/// Taken from the books before an adoption clears them.
#[derive(Debug, Default)]
pub(super) struct EarlierFacts {
    /// The budget and the limits of each pod, and
    /// [`PodEntry::resized`](crate::books::PodEntry::resized). A list has those with which the pods
    /// were created.
    budgets: HashMap<PodUid, (Option<MilliCpu>, Amounts, bool)>,
    /// Pods with pod-level resources. A list does not show these while containers are restarted.
    have_resources: HashSet<PodUid>,
    /// Containers whose partition the kernel refused.
    fallen_back: HashSet<ContainerId>,
    requests: HashMap<ContainerId, CpuRequest>,
    /// Containers on CPUs that another program had set before the ledger decided.
    left_alone: HashMap<ContainerId, LeftAlone>,
    /// When running containers started or last moved.
    settled_at: HashMap<ContainerId, Option<Duration>>,
}

impl EarlierFacts {
    pub(super) fn of(node: &Node, books: &Books) -> EarlierFacts {
        let claimed = books.claims().map(|claim| (claim.id, claim.cpu));
        let known =
            books.containers().map(|container| (container.entry.id().clone(), container.entry.cpu));
        let fallen_back = books.containers().map(|container| container.entry).filter(|entry| {
            node.mechanism == Mechanism::Partitions && entry.enforced_by == Mechanism::Groups
        });
        // A container may be listed as running before it runs: its `minStay` begins with the list.
        let running = books.containers().map(|container| container.entry);
        let running = running.filter(|entry| entry.phase() == Phase::Running);
        let budgets = books.pods().map(|(uid, entry)| {
            let Pod { budget, limits, .. } = &entry.pod;
            (uid.clone(), (*budget, limits.clone(), entry.resized))
        });
        let have_resources = books.pods().filter(|(_, pod)| pod.has_resources);
        EarlierFacts {
            budgets: budgets.collect(),
            have_resources: have_resources.map(|(uid, _)| uid.clone()).collect(),
            fallen_back: fallen_back.map(|entry| entry.id().clone()).collect(),
            requests: claimed
                .chain(known)
                .filter(|(_, cpu)| *cpu != CpuRequest::default())
                .collect(),
            left_alone: books.left_alone().map(|(id, why)| (id.clone(), why)).collect(),
            settled_at: running.map(|entry| (entry.id().clone(), entry.settled_at())).collect(),
        }
    }

    /// The request of a listed container: as listed, unless the list is outdated. A list never has
    /// the limit of a container whose quota is lifted.
    pub(super) fn request(&self, listed: &Container) -> CpuRequest {
        match self.requests.get(&listed.id) {
            Some(known) if listed.outdated => *known,
            Some(known) if known.request == listed.cpu.request => {
                CpuRequest { limit: listed.cpu.limit.or(known.limit), ..listed.cpu }
            }
            _ => listed.cpu,
        }
    }

    /// Restores the facts of pods and containers that still exist.
    pub(super) fn restore(self, books: &mut Books) {
        for (uid, pod) in books.pods_mut() {
            if let Some((budget, limits, resized)) = self.budgets.get(uid) {
                if budget.is_some() {
                    (pod.pod.budget, pod.resized) = (*budget, *resized);
                }
                if !limits.is_empty() {
                    pod.pod.limits.clone_from(limits);
                }
            }
            pod.has_resources = self.have_resources.contains(uid);
            for (_, entry) in pod.containers_mut() {
                if self.fallen_back.contains(entry.id()) {
                    entry.enforced_by = Mechanism::Groups;
                }
                entry.left_alone = entry.left_alone.or(self.left_alone.get(entry.id()).copied());
                if let Some(at) = self.settled_at.get(entry.id()) {
                    entry.settle(*at);
                }
            }
        }
    }
}
