//! [`Books`]: pods, their containers, and everything that follows from these alone. Only the
//! methods here change the indexes of ids and sandboxes. There are no totals to keep right: what
//! follows from several pods is computed when a decision needs it.

mod applied_setting;
mod budget;
mod entry;
mod journal;
mod moves;
mod pod;

pub(super) use applied_setting::{AppliedSetting, Certainty};
pub(super) use entry::ContainerEntry;
pub use entry::Phase;
pub(super) use journal::Journal;
use moves::MoveBook;
pub(super) use pod::{BudgetFit, PodEntry};

use super::claim::Claim;
use super::devices::counting;
use super::model::{Container, ContainerId, Pod, PodUid, SandboxId};
use super::note::{Subject, What};
use super::policy::Mechanism;
use cpuset::CpuSet;
use placement::{Rejection, Request};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    pods: BTreeMap<PodUid, PodEntry>,
    sandboxes: BTreeMap<SandboxId, PodUid>,
    /// The container of a present instance. Ids of replaced instances are not here: a late event
    /// for one must not change its successor.
    ids: BTreeMap<ContainerId, (PodUid, String)>,
    /// Claims of the last process whose containers no event has named yet.
    remembered: Vec<Claim>,
    pub(super) journal: Journal,
    pub(super) moves: MoveBook,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerRef<'a> {
    pub(super) uid: &'a PodUid,
    pub(super) pod: &'a PodEntry,
    pub(super) name: &'a str,
    pub(super) entry: &'a ContainerEntry,
}

impl ContainerRef<'_> {
    pub(super) fn subject(&self) -> Subject {
        Subject {
            namespace: self.pod.pod.namespace.clone(),
            pod: self.pod.pod.name.clone(),
            container: self.name.to_owned(),
            id: self.entry.id.clone(),
        }
    }
}

impl Books {
    pub(super) fn pod(&self, uid: &PodUid) -> Option<&PodEntry> {
        self.pods.get(uid)
    }

    pub(super) fn pods(&self) -> impl ExactSizeIterator<Item = (&PodUid, &PodEntry)> + Clone {
        self.pods.iter()
    }

    /// All containers, in order of pod uid and container name.
    pub(super) fn containers(&self) -> impl Iterator<Item = ContainerRef<'_>> + Clone {
        self.pods().flat_map(containers_of)
    }

    pub(super) fn container(&self, uid: &PodUid, name: &str) -> Option<ContainerRef<'_>> {
        let (uid, pod) = self.pods.get_key_value(uid)?;
        let (name, entry) = pod.containers.get_key_value(name)?;
        Some(ContainerRef { uid, pod, name, entry })
    }

    pub(super) fn find(&self, id: &ContainerId) -> Option<ContainerRef<'_>> {
        let (uid, name) = self.ids.get(id)?;
        self.container(uid, name)
    }

    pub(super) fn owner(&self, sandbox: &SandboxId) -> Option<&PodUid> {
        self.sandboxes.get(sandbox)
    }

    pub(super) fn remembered(&self) -> &[Claim] {
        &self.remembered
    }

    /// All claims, in order of pod uid and container name; last those that are remembered.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        self.held_claims().chain(self.remembered.iter().cloned())
    }

    /// Those of them that are not only remembered.
    pub(super) fn held_claims(&self) -> impl Iterator<Item = Claim> {
        self.pods().flat_map(|(_, pod)| pod.claims())
    }

    /// Whether [`Books::held_claims`] are these.
    pub(super) fn holds(&self, claims: &[Claim]) -> bool {
        let mut claims = claims.iter();
        let mut held = self.containers().filter(|found| found.entry.claim().is_some());
        held.all(|ContainerRef { pod, name, entry, .. }| {
            claims.next().is_some_and(|claim| pod.has_claim(name, entry, claim))
        }) && claims.as_slice().is_empty()
    }

    /// The containers that have exclusive CPUs, also those that have ended.
    pub(super) fn holders(&self) -> impl Iterator<Item = &ContainerEntry> {
        self.containers().map(|found| found.entry).filter(|entry| entry.claim().is_some())
    }

    /// Exclusive CPUs that the kernel keeps others off: it does only while the container's process
    /// runs.
    pub(super) fn held_by_kernel(&self) -> CpuSet {
        let partitions = self.holders().filter(|entry| {
            entry.enforced_by == Mechanism::Partitions && entry.phase() == Phase::Running
        });
        partitions.filter_map(ContainerEntry::claim).collect()
    }

    /// Pods without an instance of any container, see [`PodEntry::is_deserted`], that have exclusive
    /// CPUs or had containers.
    pub(super) fn deserted(&self) -> impl Iterator<Item = &PodEntry> {
        self.pods.values().filter(|pod| (pod.refused || pod.has_exclusive()) && pod.is_deserted())
    }
}

fn containers_of<'a>(
    (uid, pod): (&'a PodUid, &'a PodEntry),
) -> impl Iterator<Item = ContainerRef<'a>> + Clone {
    pod.containers.iter().map(move |(name, entry)| ContainerRef { uid, pod, name, entry })
}

impl Books {
    pub(super) fn new(remembered: Vec<Claim>) -> Books {
        Books { remembered, ..Books::default() }
    }

    /// A pod that is in the books, to change it. `None` only by a mistake of the caller.
    pub(super) fn change(&mut self, uid: &PodUid) -> Option<&mut PodEntry> {
        let pod = self.pods.get_mut(uid);
        debug_assert!(pod.is_some(), "pod {uid} is not in the books");
        pod
    }

    /// The same for a container.
    pub(super) fn change_container<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let entry = self.change(uid)?.containers.get_mut(name);
        debug_assert!(entry.is_some(), "container {uid}/{name} is not in the books");
        entry.map(change)
    }

    /// Changes the container that has this id now; `None` if there is none.
    pub(super) fn change_found<T>(
        &mut self,
        id: &ContainerId,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let (uid, name) = self.ids.get(id)?;
        self.pods.get_mut(uid)?.containers.get_mut(name).map(change)
    }

    pub(super) fn pods_mut(&mut self) -> impl Iterator<Item = (&PodUid, &mut PodEntry)> {
        self.pods.iter_mut()
    }

    /// Enters a pod as an event describes it. Returns its uid, and whether it was known with the same
    /// wishes and bounds.
    pub(super) fn enter_pod(&mut self, pod: Pod) -> (PodUid, bool) {
        let uid = pod.uid.clone();
        let Books { pods, sandboxes, .. } = self;
        let has_sandbox = !pod.sandbox.0.is_empty();
        match pods.get_mut(&uid) {
            Some(known) => {
                let asked = known.asks_as(&pod);
                if has_sandbox && known.pod.sandbox != pod.sandbox {
                    sandboxes.remove(&known.pod.sandbox);
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                known.refresh(pod);
                (uid, asked)
            }
            None => {
                if has_sandbox {
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                pods.insert(uid.clone(), PodEntry::new(pod));
                (uid, false)
            }
        }
    }

    /// Enters a container in place of the one of its name, if there is one, and changes its pod
    /// with it: `change` gets the one before. Another container that had this id is removed.
    pub(super) fn enter<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        entry: ContainerEntry,
        change: impl FnOnce(&mut PodEntry, Option<&ContainerEntry>) -> T,
    ) -> Option<T> {
        let place = || (uid.clone(), name.to_owned());
        if let Some((of, called)) = self.ids.insert(entry.id.clone(), place())
            && (&of, &*called) != (uid, name)
        {
            self.note_released(&of, &called);
            self.remove(&of, &called);
            self.ids.insert(entry.id.clone(), place());
        }
        let pod = self.change(uid)?;
        let before = pod.containers.insert(name.to_owned(), entry);
        let changed = change(pod, before.as_ref());
        let replaced =
            |before: &ContainerEntry| pod.container(name).map(|now| &now.id) != Some(&before.id);
        if let Some(gone) = before.filter(replaced) {
            self.ids.remove(&gone.id);
        }
        Some(changed)
    }

    pub(super) fn remove(&mut self, uid: &PodUid, name: &str) {
        let gone = self.change(uid).and_then(|pod| pod.containers.remove(name));
        if let Some(gone) = gone {
            self.ids.remove(&gone.id);
        }
    }

    pub(super) fn remove_pod(&mut self, uid: &PodUid) {
        if let Some(pod) = self.pods.remove(uid) {
            self.sandboxes.remove(&pod.pod.sandbox);
            for entry in pod.containers.values() {
                self.ids.remove(&entry.id);
            }
        }
    }

    /// Notes the exclusive CPUs of a container that is about to be removed as free again.
    pub(super) fn note_released(&mut self, uid: &PodUid, name: &str) {
        let Some(found) = self.container(uid, name) else { return };
        if let Some(cpus) = found.entry.claim() {
            let subject = found.subject();
            self.journal.note(false, subject, What::Released(cpus));
        }
    }

    pub(super) fn note_refused(
        &mut self,
        uid: &PodUid,
        container: &Container,
        why: &Rejection,
        request: Option<Box<Request>>,
    ) {
        let Some(pod) = self.pod(uid) else { return };
        let subject = pod.subject(container);
        let devices = counting(pod, &container.name, &container.devices).cloned().collect();
        self.journal.note(true, subject, What::Refused { why: why.to_string(), request, devices });
    }

    /// Gives the uid to a pod that was known by its sandbox alone.
    pub(super) fn rename_pod(&mut self, from: &PodUid, to: &PodUid) {
        let Some(mut renamed) = self.pods.remove(from) else { return };
        renamed.pod.uid = to.clone();
        self.sandboxes.insert(renamed.pod.sandbox.clone(), to.clone());
        match self.pods.entry(to.clone()) {
            Entry::Vacant(place) => {
                place.insert(renamed);
            }
            // Its sandbox was made anew. A container of both is the same one, and the later events
            // had the uid.
            Entry::Occupied(known) => {
                let known = known.into_mut();
                for (name, entry) in renamed.containers {
                    match known.containers.entry(name) {
                        Entry::Occupied(_) => drop(self.ids.remove(&entry.id)),
                        Entry::Vacant(place) => drop(place.insert(entry)),
                    }
                }
            }
        }
        for (name, entry) in self.pods.get(to).into_iter().flat_map(PodEntry::containers) {
            self.ids.insert(entry.id.clone(), (to.clone(), name.clone()));
        }
    }

    pub(super) fn recall(&mut self, uid: &PodUid, name: &str) -> Option<Claim> {
        let at = self.remembered.iter().position(|claim| claim.is_of(uid, name))?;
        Some(self.remembered.swap_remove(at))
    }

    /// Drops a remembered claim, if there is one of this instance.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        self.remembered.retain(|claim| claim.id != *id);
    }

    pub(super) fn clear(&mut self) {
        *self = Books {
            journal: std::mem::take(&mut self.journal),
            moves: std::mem::take(&mut self.moves),
            ..Books::default()
        };
    }
}

/// The invariants, for tests and debug builds.
impl Books {
    /// Whether the index of ids is that of the pods.
    ///
    /// # Errors
    /// What they are and what they should be.
    pub(crate) fn check(&self) -> Result<(), String> {
        for ContainerRef { uid, name, entry, .. } in self.containers() {
            if self
                .ids
                .get(&entry.id)
                .is_none_or(|(of, called)| (of, called.as_str()) != (uid, name))
            {
                return Err(format!("{uid}/{name} cannot be found by its id {}", entry.id));
            }
        }
        let known = self.containers().count();
        if self.ids.len() != known {
            return Err(format!("{} ids of {known} containers", self.ids.len()));
        }
        Ok(())
    }
}
