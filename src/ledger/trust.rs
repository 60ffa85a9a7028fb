//! What is believed of the exclusive CPUs of a container that is found running.

use super::conflicts::in_the_way;
use super::hands_off::Stance;
use super::memory::{Memory, Noted};
use super::model::{Container, PodUid};
use super::note::{Note, Reason, What};
use super::{Ledger, Policy};
use crate::cpuset::CpuSet;
use std::collections::BTreeSet;

/// What an assignment is believed for, the best first. One that is believed less never takes CPUs from one that is
/// believed more, so all containers are looked at once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is set, and somebody says that it was decided so: the kernel by keeping others off, the checkpoint, or the
    /// kubelet's state file.
    Confirmed,
    /// It is set, and of the size that the container is entitled to. Shared CPUs can be so by chance.
    Set,
    /// The checkpoint has it.
    Remembered,
    /// The kubelet's state file has it.
    Kubelet,
}

impl Trust {
    /// What somebody runs on.
    pub(super) const SET: &[Trust] = &[Trust::Confirmed, Trust::Set];
    /// What somebody should run on, by somebody's notes.
    pub(super) const NOTED: &[Trust] = &[Trust::Remembered, Trust::Kubelet];
}

impl Ledger {
    /// Which containers, by their places, leave the CPUs that `trust` names for them to others.
    pub(super) fn giving_way(
        &self,
        containers: &[(PodUid, Container)],
        memory: &Memory,
        trust: Trust,
    ) -> BTreeSet<usize> {
        let legal = self.unclaimed();
        let set = |(uid, container): &(PodUid, Container)| {
            let named = self.named(uid, container, memory, trust);
            named.filter(|cpus| cpus.is_subset(&legal)).unwrap_or_default()
        };
        in_the_way(&containers.iter().map(set).collect::<Vec<_>>())
    }

    /// The exclusive CPUs that `trust` names for a running container, legal or not.
    fn named(
        &self,
        uid: &PodUid,
        container: &Container,
        memory: &Memory,
        trust: Trust,
    ) -> Option<CpuSet> {
        let wanted = self.asks(uid, container);
        let fixed = self.settings.policy == Policy::Static;
        let entitled = |cpus: &CpuSet| fixed && wanted == Some(cpus.len());
        // An instance that was made meanwhile inherits from its predecessor only what it is entitled to.
        let ours = memory.ours(uid, container);
        let ours = ours.filter(|claim| claim.id == container.id || entitled(&claim.cpus));
        let ours = ours.map(|claim| claim.cpus);
        let kubelet = memory.kubelet(uid, container).filter(|_| fixed);
        let sure = |noted: &Noted| !noted.doubtful || entitled(&noted.cpus);
        let kubelet = kubelet.filter(sure).map(|noted| noted.cpus);
        // Of what was decided some may have gone offline while nobody looked: the container keeps the others.
        let left = |cpus| cpus & self.topology.online();
        match trust {
            // CPUs that were decided and are set stay with their container even if today's policy would give it none.
            Trust::Confirmed => {
                let noted = |cpus: &CpuSet| [ours, kubelet].contains(&Some(*cpus));
                let cpus = container.cpus;
                cpus.filter(|cpus| noted(cpus) || (container.kept && entitled(cpus))).map(left)
            }
            // CPUs that nobody knows of count only for a container that is entitled to just as many. A shared pool can have
            // that size by chance: what others have that are entitled to none is one, and where others run as well it
            // has to fit the pod's budget. That may be older than a resize, so it does not count where nobody else runs.
            Trust::Set => container.cpus.filter(|cpus| {
                let alone = || !memory.is_common(cpus);
                entitled(cpus)
                    && !memory.is_pool(cpus)
                    && (alone() || self.fits_budget(uid, container, memory))
            }),
            // If they are not set, the memory may be older than a resize.
            Trust::Remembered => ours.filter(entitled).map(left),
            Trust::Kubelet => kubelet.filter(entitled).map(left),
        }
    }

    /// Whether a container that asks for exclusive CPUs has room for them in its pod's budget, beside what other containers
    /// of the pod have that run, or had when they were last heard of.
    fn fits_budget(&self, uid: &PodUid, container: &Container, memory: &Memory) -> bool {
        let (Some(pod), Some(n)) = (self.pods.get(uid), self.asks(uid, container)) else {
            return false;
        };
        let Some(budget) = pod.budget_cpus() else { return true };
        let others = pod.containers.iter().filter(|(name, _)| **name != container.name);
        let remembered = |name| memory.of_name(uid, name).map(|claim| claim.cpus);
        let held = others.filter_map(|(name, entry)| entry.claim.or_else(|| remembered(name)));
        held.map(|cpus| cpus.len()).sum::<usize>() + n <= budget
    }

    /// Gives a running container exclusive CPUs that `trust` names for it, if they are legal.
    pub(super) fn adopt(
        &mut self,
        uid: &PodUid,
        container: &Container,
        memory: &Memory,
        trust: Trust,
    ) {
        if self.entry(uid, &container.name).is_none_or(|entry| entry.claim.is_some()) {
            return;
        }
        let free = self.unclaimed();
        let claim = self.named(uid, container, memory, trust);
        let Some(claim) = claim.filter(|cpus| !cpus.is_empty() && cpus.is_subset(&free)) else {
            return;
        };
        let subject = self.subject(uid, container);
        let assigns = self.stance == Stance::Assign;
        let online = self.topology.online();
        self.pods.change_entry(uid, &container.name, |entry| {
            entry.claim = Some(claim);
            if let Some(applied) = entry.applied.as_mut().filter(|applied| applied.cpus == claim) {
                applied.exclusive = true;
            }
            // A quota that was written while nobody looked throttles exclusive CPUs: the same CPUs are told again,
            // without it.
            if assigns && container.cpu.limit.is_some() && !entry.lifted {
                entry.doubt();
            }
        });
        match container.cpus {
            Some(cpus) if cpus == claim => {
                self.notes.push(Note::new(false, subject, What::Adopted(claim)));
            }
            Some(cpus) if cpus & online == claim => {
                self.moved(subject, Some(cpus), claim, Reason::Offline);
            }
            from => self.moved(subject, from, claim, Reason::NotSet),
        }
    }

    /// Keeps the SMT siblings of a container idle whose CPUs have been adopted, if they are to be so and are nobody else's. What
    /// was decided earlier counts before what is wished.
    pub(super) fn isolate(&mut self, uid: &PodUid, container: &Container, memory: &Memory) {
        let Some(entry) = self.entry(uid, &container.name) else { return };
        let Some(claim) = entry.claim.filter(|_| !entry.isolated) else { return };
        let online = self.topology.online();
        let decided = memory.ours(uid, container).filter(|ours| ours.cpus & online == claim);
        let wanted = decided.map_or(entry.terms.wishes.isolates(), |ours| ours.isolated);
        let idle = || self.with_idle(&claim, true) - claim;
        if wanted && idle().is_subset(&self.unclaimed()) {
            self.pods.change_entry(uid, &container.name, |entry| entry.isolated = true);
        }
    }
}
