//! Taking over a node on which containers run already, without moving them.
//!
//! What is really set for a running container is the truth; what was remembered comes second; placing anew is the last
//! resort. Every legal assignment is adopted before any container is placed, so that nobody is moved to make room for
//! somebody who has no CPUs yet.

use super::event::Decision;
use super::model::{Container, Pod, PodUid};
use super::note::{Note, Subject, What};
use super::pods::{Entry, Life, Room};
use super::{Claim, Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::{Allocation, Supply};
use std::collections::{HashMap, HashSet};

/// Claims of an earlier life.
type Memory = HashMap<(PodUid, String), Claim>;

/// What an assignment is believed for, the best first. One that is believed less never takes CPUs from one that is
/// believed more, so all containers are looked at once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The runtime has set it.
    Set,
    /// The checkpoint has it.
    Remembered,
}

impl Ledger {
    pub(super) fn synchronize(&mut self, pods: Vec<Pod>, containers: Vec<Container>) -> Decision {
        let remembered = self.forget();
        for pod in pods {
            self.upsert_pod(pod);
        }
        let containers = self.newest_instances(containers);
        for (uid, container) in &containers {
            self.enter(uid, container);
        }
        for trust in [Trust::Set, Trust::Remembered] {
            for (uid, container) in &containers {
                self.adopt(uid, container, &remembered, trust);
            }
        }
        for (uid, container) in &containers {
            self.repair(uid, container, &remembered);
        }
        self.keep_for_restart(&containers, remembered.into_values());
        // A pod that has only a sandbox may be a dead one that is still listed: it keeps nothing free for itself.
        for pod in self.pods.values_mut() {
            pod.refused = pod.containers.is_empty();
        }
        self.revision += 1;
        self.refresh_pool();
        self.pending = true;
        Decision { pin: None, updates: self.take_updates() }
    }

    /// An event spoke of a container that no earlier one did. It is treated as if it had been found running.
    pub(super) fn adopt_late(&mut self, uid: &PodUid, container: &Container) {
        self.enter(uid, container);
        self.adopt(uid, container, &Memory::new(), Trust::Set);
        self.repair(uid, container, &Memory::new());
        self.revision += 1;
        self.refresh_pool();
        self.pending = true;
    }

    /// Drops everything but the memory of claims.
    fn forget(&mut self) -> Memory {
        let mut claims: Vec<Claim> = self.claims().collect();
        claims.append(&mut self.remembered);
        self.pods.clear();
        self.sandboxes.clear();
        self.ids.clear();
        claims
            .into_iter()
            .map(|claim| ((claim.pod_uid.clone(), claim.container.clone()), claim))
            .collect()
    }

    /// Finds each container's pod, oldest container first. Of two instances of one container the newer one counts.
    fn newest_instances(&self, mut containers: Vec<Container>) -> Vec<(PodUid, Container)> {
        containers.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let mut seen = HashSet::new();
        let mut newest: Vec<(PodUid, Container)> = containers
            .into_iter()
            .rev()
            .filter_map(|container| {
                Some((self.sandboxes.get(&container.sandbox)?.clone(), container))
            })
            .filter(|(uid, container)| seen.insert((uid.clone(), container.name.clone())))
            .collect();
        newest.reverse();
        newest
    }

    /// Enters a running container without CPUs of its own.
    fn enter(&mut self, uid: &PodUid, container: &Container) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let Some(before) =
            pod.containers.insert(container.name.clone(), Entry::new(container, Life::Running))
        {
            self.ids.remove(&before.id);
        }
        self.ids.insert(container.id.clone(), (uid.clone(), container.name.clone()));
    }

    /// Gives a running container exclusive CPUs that `trust` names for it, if they are legal.
    fn adopt(&mut self, uid: &PodUid, container: &Container, remembered: &Memory, trust: Trust) {
        if self.entry(uid, &container.name).is_none_or(|entry| entry.claim.is_some()) {
            return;
        }
        let wanted = self.pods.get(uid).and_then(|pod| pod.whole_cpus(&container.cpu));
        let entitled =
            |cpus: &CpuSet| self.settings.policy == Policy::Static && wanted == Some(cpus.len());
        // An instance that was made meanwhile inherits from its predecessor only what it is entitled to.
        let memory = remembered.get(&(uid.clone(), container.name.clone()));
        let memory = memory.filter(|claim| claim.id == container.id || entitled(&claim.cpus));
        let memory = memory.map(|claim| claim.cpus);
        // CPUs that were never decided here count only for a container that is entitled to just as many. CPUs that
        // were and are set stay with their container even if today's policy would give it none. If they are not set,
        // the memory may be older than a resize.
        let claim = match trust {
            Trust::Set => container.cpus.filter(|cpus| memory == Some(*cpus) || entitled(cpus)),
            Trust::Remembered => memory.filter(entitled),
        };
        let free = self.free();
        let Some(claim) = claim.filter(|cpus| !cpus.is_empty() && cpus.is_subset(&free)) else {
            return;
        };
        let subject = self.subject(uid, container);
        let Some(entry) = self.entry_mut(uid, &container.name) else { return };
        entry.claim = Some(claim);
        self.notes.push(match container.cpus {
            Some(cpus) if cpus == claim => {
                Note { warning: false, subject, what: What::Adopted(claim) }
            }
            from => {
                let why = "these were decided for it, but the runtime had not set them";
                Note { warning: true, subject, what: What::Moved { from, to: claim, why } }
            }
        });
    }

    /// Places a running container that should have exclusive CPUs and has none, or none that are legal.
    fn repair(&mut self, uid: &PodUid, container: &Container, remembered: &Memory) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(n) = pod.whole_cpus(&container.cpu) else { return };
        let placed = self.entry(uid, &container.name).is_some_and(|entry| entry.claim.is_some());
        if placed || self.settings.policy == Policy::None || pod.room(container, n) == Room::None {
            return;
        }
        let supply = Supply { free: self.free(), reusable: CpuSet::EMPTY };
        let result = self.place(uid, &self.settings.placement, &supply, n);
        let subject = self.subject(uid, container);
        let known = remembered.contains_key(&(uid.clone(), container.name.clone()));
        let why = match container.cpus {
            None => "it was created while nobody pinned containers",
            Some(_) if known => {
                "its CPUs are reserved, offline or exclusive to another container now"
            }
            Some(_) => "it asks for exclusive CPUs and ran on others",
        };
        let note = match result {
            Ok(Allocation { cpus: to, hint }) => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.affinity = pod.budget_cpus().map(|total| (total, hint));
                }
                if let Some(entry) = self.entry_mut(uid, &container.name) {
                    entry.claim = Some(to);
                }
                let what = What::Moved { from: container.cpus, to, why };
                Note { warning: true, subject, what }
            }
            Err(rejection) => {
                Note { warning: true, subject, what: What::LeftShared(rejection.to_string()) }
            }
        };
        self.notes.push(note);
    }

    /// Keeps the CPUs of containers that have ended but whose pod is alive: they will be restarted.
    fn keep_for_restart(
        &mut self,
        running: &[(PodUid, Container)],
        claims: impl Iterator<Item = Claim>,
    ) {
        let mut claims: Vec<Claim> = claims.collect();
        claims.sort_by(|a, b| (&a.pod_uid, &a.container).cmp(&(&b.pod_uid, &b.container)));
        for claim in claims {
            let alive = running
                .iter()
                .any(|(uid, other)| *uid == claim.pod_uid && other.name == claim.container);
            let free = self.free();
            if alive
                || self.ids.contains_key(&claim.id)
                || !claim.cpus.is_subset(&free)
                || claim.cpus.is_empty()
            {
                continue;
            }
            let Some(pod) = self.pods.get_mut(&claim.pod_uid) else { continue };
            let subject = Subject {
                namespace: claim.namespace,
                pod: claim.pod,
                container: claim.container.clone(),
                id: claim.id.clone(),
            };
            pod.containers
                .insert(claim.container.clone(), Entry::ended(claim.id.clone(), claim.cpus));
            self.ids.insert(claim.id, (claim.pod_uid, claim.container));
            self.notes.push(Note { warning: false, subject, what: What::Kept(claim.cpus) });
        }
    }
}
