//! What was followed event by event, and is not in a runtime's list.

use crate::ledger::books::Books;
use crate::ledger::model::{Container, ContainerId, CpuRequest, MilliCpu, PodUid};
use crate::ledger::policy::Exclusivity;
use std::collections::{HashMap, HashSet};

/// For one adoption of a node.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Budgets of pods, and whether the runtime tells of resized ones: a list has those that pods
    /// were created with.
    budgets: HashMap<PodUid, (Option<MilliCpu>, bool)>,
    /// Containers that the kernel would not keep others off.
    fallen_back: HashSet<ContainerId>,
    /// What containers ask for, as far as that is known.
    requests: HashMap<ContainerId, CpuRequest>,
}

impl Followed {
    /// What the books tell.
    pub(super) fn of(books: &Books) -> Followed {
        let claimed = books.claims().map(|claim| (claim.id, claim.cpu));
        let known = books.containers().map(|found| (found.entry.id().clone(), found.entry.cpu));
        let by_runtime = books
            .containers()
            .map(|found| found.entry)
            .filter(|entry| entry.claim.is_some() && entry.enforced_by == Exclusivity::Runtime);
        let budgets = books.pods().map(|(uid, pod)| (uid.clone(), (pod.pod.budget, pod.resized)));
        Followed {
            budgets: budgets.collect(),
            fallen_back: by_runtime.map(|entry| entry.id().clone()).collect(),
            requests: claimed
                .chain(known)
                .filter(|(_, cpu)| *cpu != CpuRequest::default())
                .collect(),
        }
    }

    /// What a listed container asks for: as it is listed, unless the list is older than what was
    /// followed. A limit whose quota has been lifted is in no list.
    pub(super) fn request(&self, listed: &Container) -> CpuRequest {
        match self.requests.get(&listed.id) {
            Some(known) if listed.outdated => *known,
            Some(known) if known.request == listed.cpu.request => {
                CpuRequest { limit: listed.cpu.limit.or(known.limit), ..listed.cpu }
            }
            _ => listed.cpu,
        }
    }

    /// What was known of pods and containers that are still there.
    pub(super) fn take_up(self, books: &mut Books) {
        books.change_all(|uid, pod| {
            if let Some((Some(budget), resized)) = self.budgets.get(uid).copied() {
                (pod.pod.budget, pod.resized) = (Some(budget), resized);
            }
            for (_, entry) in pod.containers_mut() {
                if self.fallen_back.contains(entry.id()) {
                    entry.enforced_by = Exclusivity::Runtime;
                }
            }
        });
    }
}
