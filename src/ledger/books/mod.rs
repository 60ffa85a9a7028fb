//! [`Books`]: pods, their containers, and everything that follows from these alone. Right by construction: the index of ids,
//! the sums, the revision and whether updates are owed are kept by the methods here and by nothing
//! else.
//!
//! A pod can only be changed through a [`PodMut`], which counts it anew when it goes.

mod applied;
mod changing;
mod check;
mod counted;
mod entry;
mod journal;
mod pod;
mod sums;

pub(super) use applied::{Applied, Certainty};
pub(super) use changing::Basis;
pub(super) use counted::Held;
pub(super) use entry::ContainerEntry;
pub use entry::Phase;
pub(super) use journal::Journal;
pub(super) use pod::{BudgetFit, PodEntry};

use super::adjustment::Update;
use super::claim::Claim;
use super::model::{Container, ContainerId, Pod, PodUid, SandboxId};
use super::note::{Subject, What};
use crate::placement::{Rejection, Request};
use changing::PodMut;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use sums::Sums;

/// All that the ledger knows of pods and containers.
#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    pods: BTreeMap<PodUid, PodEntry>,
    /// Whose sandbox this is.
    sandboxes: BTreeMap<SandboxId, PodUid>,
    /// Which container this is the present instance of. Ids of replaced instances are not here: a
    /// late event for one must not touch its successor.
    ids: BTreeMap<ContainerId, (PodUid, String)>,
    /// Claims of an earlier life whose containers no event has named yet.
    remembered: Vec<Claim>,
    sums: Sums,
    /// Counts changes of claims.
    revision: u64,
    /// What shared containers were last told by; `None` if any of them may run elsewhere.
    told: Option<Basis>,
    /// What was worth telling.
    pub(super) journal: Journal,
}

/// A container that was found, and its pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerRef<'a> {
    pub(super) uid: &'a PodUid,
    pub(super) pod: &'a PodEntry,
    pub(super) name: &'a str,
    pub(super) entry: &'a ContainerEntry,
}

impl ContainerRef<'_> {
    /// Its names, for people.
    pub(super) fn subject(&self) -> Subject {
        Subject {
            namespace: self.pod.pod.namespace.clone(),
            pod: self.pod.pod.name.clone(),
            container: self.name.to_owned(),
            id: self.entry.id.clone(),
        }
    }
}

/// Reading.
impl Books {
    pub(super) fn pod(&self, uid: &PodUid) -> Option<&PodEntry> {
        self.pods.get(uid)
    }

    pub(super) fn pods(&self) -> impl ExactSizeIterator<Item = (&PodUid, &PodEntry)> {
        self.pods.iter()
    }

    /// All containers, in order of pod uid and container name.
    pub(super) fn containers(&self) -> impl Iterator<Item = ContainerRef<'_>> {
        self.pods.iter().flat_map(|(uid, pod)| {
            pod.containers.iter().map(move |(name, entry)| ContainerRef { uid, pod, name, entry })
        })
    }

    /// The container of this name of a pod.
    pub(super) fn container(&self, uid: &PodUid, name: &str) -> Option<ContainerRef<'_>> {
        let (uid, pod) = self.pods.get_key_value(uid)?;
        let (name, entry) = pod.containers.get_key_value(name)?;
        Some(ContainerRef { uid, pod, name, entry })
    }

    /// The container that has this id now.
    pub(super) fn find(&self, id: &ContainerId) -> Option<ContainerRef<'_>> {
        let (uid, name) = self.ids.get(id)?;
        self.container(uid, name)
    }

    /// Whose sandbox this is.
    pub(super) fn owner(&self, sandbox: &SandboxId) -> Option<&PodUid> {
        self.sandboxes.get(sandbox)
    }

    /// Claims of an earlier life whose containers no event has named yet.
    pub(super) fn remembered(&self) -> &[Claim] {
        &self.remembered
    }

    /// All claims, in order of pod uid and container name; last those that are remembered.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        let held = self.pods.values().filter(|pod| pod.has_exclusive());
        held.flat_map(PodEntry::claims).chain(self.remembered.iter().cloned())
    }

    /// Changes whenever [`Books::claims`] does.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The exclusive CPUs of all pods.
    pub(super) fn held(&self) -> &Held {
        &self.sums.held
    }

    /// How many CPUs pods keep free for themselves, all but this one together, see
    /// [`PodEntry::promise`].
    pub(super) fn promised_beside(&self, pod: &PodEntry) -> usize {
        let own = pod.counted.promise;
        usize::try_from(self.sums.promised - own as u128).unwrap_or(usize::MAX)
    }

    /// Pods with exclusive CPUs and without an instance of any container.
    pub(super) fn deserted(&self) -> impl Iterator<Item = &PodEntry> {
        self.sums.deserted.iter().filter_map(|uid| self.pods.get(uid))
    }

    /// Containers for which SMT siblings are kept idle.
    pub(super) fn isolated(&self) -> impl Iterator<Item = &ContainerEntry> {
        let pods = self.sums.isolating.iter().filter_map(|uid| self.pods.get(uid));
        pods.flat_map(|pod| pod.containers.values().filter(|entry| entry.isolated))
    }

    /// Whether containers may have to be told something, where `basis` is what decides where shared
    /// ones run.
    pub(super) fn owes(&self, basis: &Basis) -> bool {
        self.sums.unsettled > 0 || self.told.as_ref() != Some(basis)
    }

    /// Whether containers wait for CPUs that others were told to leave.
    pub(super) fn waits(&self) -> bool {
        self.sums.unsettled > 0
            && self.pods.values().any(|pod| pod.containers.values().any(|entry| entry.waits))
    }
}

/// Changing.
impl Books {
    /// Books of a node of which nothing is known but these claims.
    pub(super) fn new(remembered: Vec<Claim>) -> Books {
        Books { remembered, ..Books::default() }
    }

    /// A pod, to be changed.
    pub(super) fn change(&mut self, uid: &PodUid) -> Option<PodMut<'_>> {
        let pod = self.pods.get_mut(uid)?;
        let (sums, revision, told) = (&mut self.sums, &mut self.revision, &mut self.told);
        Some(PodMut { entry: pod, sums, revision, told })
    }

    /// Changes a container; `None` if there is no such one.
    pub(super) fn change_container<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        self.change(uid)?.containers.get_mut(name).map(change)
    }

    /// Changes the container that has this id now; `None` if there is no such one.
    pub(super) fn change_found<T>(
        &mut self,
        id: &ContainerId,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let Books { pods, ids, sums, revision, told, .. } = self;
        let (uid, name) = ids.get(id)?;
        let mut pod = PodMut { entry: pods.get_mut(uid)?, sums, revision, told };
        pod.containers.get_mut(name).map(change)
    }

    /// Changes all pods.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&PodUid, &mut PodEntry)) {
        let Books { pods, sums, revision, told, .. } = self;
        for (uid, pod) in pods {
            change(uid, &mut PodMut { entry: pod, sums, revision, told });
        }
    }

    /// Takes over what an event says of a pod, known or not.
    pub(super) fn enter_pod(&mut self, pod: Pod) -> PodUid {
        let uid = pod.uid.clone();
        let Books { pods, sandboxes, sums, revision, told, .. } = self;
        let entry = match pods.entry(uid.clone()) {
            Entry::Vacant(place) => {
                let sandbox = pod.sandbox.clone();
                if !sandbox.0.is_empty() {
                    sandboxes.insert(sandbox, uid.clone());
                }
                place.insert(PodEntry::new(pod))
            }
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if !pod.sandbox.0.is_empty() && known.pod.sandbox != pod.sandbox {
                    sandboxes.remove(&known.pod.sandbox);
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                // Its names are in its claims.
                *revision += u64::from(known.refresh(pod) && known.has_exclusive());
                known
            }
        };
        // Counts it.
        drop(PodMut { entry, sums, revision, told });
        uid
    }

    /// Enters a container in place of one of its name, if there is one, and changes its pod with
    /// it: `change` is told the one before. Another container that had this id is gone.
    pub(super) fn enter<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        entry: ContainerEntry,
        change: impl FnOnce(&mut PodEntry, Option<&ContainerEntry>) -> T,
    ) -> Option<T> {
        self.supersede(&entry.id, uid, name);
        let id = entry.id.clone();
        let mut pod = self.change(uid)?;
        let before = pod.containers.insert(name.to_owned(), entry);
        let changed = change(&mut pod, before.as_ref());
        drop(pod);
        if let Some(before) = before {
            self.ids.remove(&before.id);
        }
        self.ids.insert(id, (uid.clone(), name.to_owned()));
        Some(changed)
    }

    /// The same for one that was found, and may run elsewhere than others of its kind.
    pub(super) fn enter_found(&mut self, uid: &PodUid, name: &str, entry: ContainerEntry) {
        self.told = None;
        self.enter(uid, name, entry, |_, _| ());
    }

    /// An id means this container from now on. If it meant another one, that is gone.
    fn supersede(&mut self, id: &ContainerId, uid: &PodUid, name: &str) {
        let Some((of, called)) = self.ids.get(id).cloned() else { return };
        if (&of, &*called) != (uid, name) {
            self.note_released(&of, &called);
            self.remove(&of, &called);
        }
    }

    /// Takes a container out.
    pub(super) fn remove(&mut self, uid: &PodUid, name: &str) {
        let gone = self.change(uid).and_then(|mut pod| pod.containers.remove(name));
        if let Some(gone) = gone {
            self.ids.remove(&gone.id);
        }
    }

    /// Takes a pod out, with all of its containers.
    pub(super) fn remove_pod(&mut self, uid: &PodUid) {
        if let Some(pod) = self.take_pod(uid) {
            self.sandboxes.remove(&pod.pod.sandbox);
            for entry in pod.containers.values() {
                self.ids.remove(&entry.id);
            }
        }
    }

    fn take_pod(&mut self, uid: &PodUid) -> Option<PodEntry> {
        let mut pod = self.pods.remove(uid)?;
        let had = self.sums.discount(&mut pod);
        self.revision += u64::from(had);
        Some(pod)
    }

    /// Notes that the exclusive CPUs of a container that is about to go, if it has any, are free
    /// again.
    pub(super) fn note_released(&mut self, uid: &PodUid, name: &str) {
        let Some(found) = self.container(uid, name) else { return };
        if let Some(cpus) = found.entry.claim {
            let subject = found.subject();
            self.journal.note(false, subject, What::Released(cpus));
        }
    }

    /// Notes that a container was not let in, or not resized.
    pub(super) fn note_refused(
        &mut self,
        uid: &PodUid,
        container: &Container,
        why: &Rejection,
        request: Option<Box<Request>>,
    ) {
        let Some(subject) = self.pod(uid).map(|pod| pod.subject(container)) else { return };
        self.journal.note(true, subject, What::Refused { why: why.to_string(), request });
    }

    /// A pod that was known by its sandbox alone has a uid after all.
    pub(super) fn rename_pod(&mut self, from: &PodUid, to: &PodUid) {
        let Some(mut renamed) = self.take_pod(from) else { return };
        renamed.pod.uid = to.clone();
        self.sandboxes.insert(renamed.pod.sandbox.clone(), to.clone());
        let mut gone = Vec::new();
        if let Some(mut known) = self.change(to) {
            // Its sandbox was made anew. What both have is the same container, last told of by the
            // uid.
            for (name, entry) in renamed.containers {
                match known.containers.contains_key(&name) {
                    true => gone.push(entry.id),
                    false => drop(known.containers.insert(name, entry)),
                }
            }
        } else {
            self.pods.insert(to.clone(), renamed);
        }
        gone.iter().for_each(|id| drop(self.ids.remove(id)));
        // Counts it.
        let ids: Vec<(ContainerId, String)> = self.change(to).map_or_else(Vec::new, |pod| {
            pod.containers.iter().map(|(name, entry)| (entry.id.clone(), name.clone())).collect()
        });
        for (id, name) in ids {
            self.ids.insert(id, (to.clone(), name));
        }
    }

    /// These changes were not made: they have to be told again.
    pub(super) fn undo(&mut self, updates: &[Update]) {
        for Update { container, adjustment } in updates {
            self.change_found(container, |entry| {
                if entry.applied.cpus() == Some(adjustment.cpus()) {
                    entry.applied.undo();
                }
            });
        }
    }

    /// Takes the remembered claim of a container out.
    pub(super) fn recall(&mut self, uid: &PodUid, name: &str) -> Option<Claim> {
        let at = self.remembered.iter().position(|claim| claim.is_of(uid, name))?;
        self.revision += 1;
        Some(self.remembered.swap_remove(at))
    }

    /// Drops a remembered claim, if there is one of this instance.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        let before = self.remembered.len();
        self.remembered.retain(|claim| claim.id != *id);
        self.revision += u64::from(self.remembered.len() != before);
    }

    /// Drops everything but what was worth telling.
    pub(super) fn clear(&mut self) {
        *self = Books {
            revision: self.revision + 1,
            journal: std::mem::take(&mut self.journal),
            ..Books::default()
        };
    }

    /// What must outlive the process is written again, though it may be the same: the file may be
    /// of another life.
    pub(super) fn renew(&mut self) {
        self.revision += 1;
    }

    /// All containers have been told, or will be, what follows from this.
    pub(super) fn tell(&mut self, basis: Basis) {
        self.told = Some(basis);
    }
}
