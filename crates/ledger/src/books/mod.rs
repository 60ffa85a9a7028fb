//! [`Books`]: pods, their containers, and everything that follows from these alone. Only the
//! methods here change the index of ids, the sums, the revision and whether updates are due.
//!
//! All changes of a pod go through a [`PodMut`], which counts the pod anew when it is dropped.

mod applied_setting;
mod budget;
mod entry;
mod journal;
mod moves;
mod pod;
mod sums;

pub(super) use applied_setting::{AppliedSetting, Certainty};
pub(super) use entry::ContainerEntry;
pub use entry::Phase;
pub(super) use journal::Journal;
use moves::MoveBook;
pub(super) use pod::{BudgetFit, PodEntry};
pub(super) use sums::{Basis, Held, PodMut};

use super::claim::Claim;
use super::model::{Container, ContainerId, Pod, PodUid, SandboxId};
use super::note::{Subject, What};
use placement::{Rejection, Request};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use sums::{CountedPod, Sums};

#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    pods: BTreeMap<PodUid, CountedPod>,
    sandboxes: BTreeMap<SandboxId, PodUid>,
    /// The container of a present instance. Ids of replaced instances are not here: a late event
    /// for one must not change its successor.
    ids: BTreeMap<ContainerId, (PodUid, String)>,
    /// Claims of the last process whose containers no event has named yet.
    remembered: Vec<Claim>,
    sums: Sums,
    revision: u64,
    /// What the last updates of shared containers followed from; `None` if not all that were due have
    /// gone out.
    delivered: Option<Basis>,
    /// How often some shared container may have come to run elsewhere than what was sent says: what
    /// was worked out before counts as sent no more.
    pub(super) doubts: u64,
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
        Some(&self.pods.get(uid)?.pod)
    }

    pub(super) fn pods(&self) -> impl ExactSizeIterator<Item = (&PodUid, &PodEntry)> + Clone {
        self.pods.iter().map(|(uid, counted)| (uid, &counted.pod))
    }

    /// All containers, in order of pod uid and container name.
    pub(super) fn containers(&self) -> impl Iterator<Item = ContainerRef<'_>> + Clone {
        self.pods().flat_map(containers_of)
    }

    pub(super) fn container(&self, uid: &PodUid, name: &str) -> Option<ContainerRef<'_>> {
        let (uid, pod) = self.pods.get_key_value(uid)?;
        let pod = &pod.pod;
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
        self.pods().flat_map(|(_, pod)| pod.claims()).chain(self.remembered.iter().cloned())
    }

    /// Changes whenever [`Books::claims`] does.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn held(&self) -> &Held {
        &self.sums.held
    }

    /// How many CPUs all pods but this one keep free for themselves, see [`PodEntry::promise`].
    pub(super) fn promised_beside(&self, pod: &PodEntry) -> usize {
        self.sums.promised_beside(pod)
    }

    /// Pods with exclusive CPUs and without an instance of any container.
    pub(super) fn deserted(&self) -> impl Iterator<Item = &PodEntry> {
        self.sums.deserted.iter().filter_map(|uid| self.pod(uid))
    }

    /// The containers that keep CPUs idle.
    pub(super) fn with_margin(&self) -> impl Iterator<Item = &ContainerEntry> {
        let pods = self.sums.with_margin.iter().filter_map(|uid| self.pod(uid));
        pods.flat_map(|pod| pod.containers.values().filter(|entry| entry.has_margin()))
    }

    /// Whether updates are due, or may be, wherever shared containers should run.
    pub(super) fn owes_in_any_case(&self) -> bool {
        !self.sums.unsettled.is_empty()
            || self.delivered.is_none_or(|basis| basis.doubts != self.doubts)
    }

    /// Whether updates may be due, if `basis` is what decides where shared containers run.
    pub(super) fn owes(&self, basis: &Basis) -> bool {
        self.owes_in_any_case() || self.delivered.as_ref() != Some(basis)
    }

    /// The containers whose updates may be due, if `basis` is what decides where shared ones run.
    pub(super) fn owed(&self, basis: &Basis) -> impl Iterator<Item = ContainerRef<'_>> + Clone {
        let all = self.delivered.as_ref() != Some(basis);
        let every = all.then(|| self.containers()).into_iter().flatten();
        let some = if all { None } else { Some(self.unsettled()) };
        every.chain(some.into_iter().flatten())
    }

    /// The containers that are not among the [owed](Books::owed) ones.
    pub(super) fn not_owed(&self, basis: &Basis) -> impl Iterator<Item = ContainerRef<'_>> {
        let all_owed = self.delivered.as_ref() != Some(basis);
        let settled =
            self.pods().filter(move |(uid, _)| !all_owed && !self.sums.unsettled.contains(*uid));
        settled.flat_map(containers_of)
    }

    /// The containers of pods with updates that are due wherever shared ones run.
    fn unsettled(&self) -> impl Iterator<Item = ContainerRef<'_>> + Clone {
        let pods = self.sums.unsettled.iter().filter_map(|uid| Some((uid, self.pod(uid)?)));
        pods.flat_map(containers_of)
    }

    /// Whether containers wait for CPUs that others are about to leave.
    pub(super) fn waits(&self) -> bool {
        self.unsettled().any(|found| found.entry.waits())
    }

    /// The containers that do.
    pub(super) fn waiting(&self) -> Vec<ContainerId> {
        let waiting = self.unsettled().filter(|found| found.entry.waits());
        waiting.map(|found| found.entry.id.clone()).collect()
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
    pub(super) fn change(&mut self, uid: &PodUid) -> Option<PodMut<'_>> {
        let Books { pods, sums, revision, doubts, .. } = self;
        let counted = pods.get_mut(uid);
        debug_assert!(counted.is_some(), "pod {uid} is not in the books");
        Some(PodMut { counted: counted?, sums, revision, doubts })
    }

    /// The same for a container.
    pub(super) fn change_container<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let mut pod = self.change(uid)?;
        let entry = pod.containers.get_mut(name);
        debug_assert!(entry.is_some(), "container {uid}/{name} is not in the books");
        entry.map(change)
    }

    /// The container that has this id now, to change its pod; `None` if there is none.
    pub(super) fn find_to_change(&mut self, id: &ContainerId) -> Option<(PodMut<'_>, &str)> {
        let Books { pods, ids, sums, revision, doubts, .. } = self;
        let (uid, name) = ids.get(id)?;
        Some((PodMut { counted: pods.get_mut(uid)?, sums, revision, doubts }, name))
    }

    /// Changes the container that has this id now; `None` if there is none.
    pub(super) fn change_found<T>(
        &mut self,
        id: &ContainerId,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let (mut pod, name) = self.find_to_change(id)?;
        pod.containers.get_mut(name).map(change)
    }

    pub(super) fn change_all(&mut self, mut change: impl FnMut(&PodUid, &mut PodEntry)) {
        let Books { pods, sums, revision, doubts, .. } = self;
        for (uid, counted) in pods {
            change(uid, &mut PodMut { counted, sums, revision, doubts });
        }
    }

    /// Enters a pod as an event describes it. Returns its uid, and whether it was known with the same
    /// wishes and bounds.
    pub(super) fn enter_pod(&mut self, pod: Pod) -> (PodUid, bool) {
        let uid = pod.uid.clone();
        let Books { pods, sandboxes, sums, revision, doubts, .. } = self;
        let has_sandbox = !pod.sandbox.0.is_empty();
        let mut asked = false;
        let counted = match pods.get_mut(&uid) {
            Some(counted) => {
                let known = &mut counted.pod;
                asked = known.asks_as(&pod);
                if has_sandbox && known.pod.sandbox != pod.sandbox {
                    sandboxes.remove(&known.pod.sandbox);
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                // A claim has the pod's names.
                *revision += u64::from(known.refresh(pod) && known.has_exclusive());
                counted
            }
            None => {
                if has_sandbox {
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                pods.entry(uid.clone()).or_insert(CountedPod::new(PodEntry::new(pod)))
            }
        };
        // Counts it.
        drop(PodMut { counted, sums, revision, doubts });
        (uid, asked)
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
        let mut pod = self.change(uid)?;
        let before = pod.containers.insert(name.to_owned(), entry);
        let changed = change(&mut pod, before.as_ref());
        let replaced =
            |before: &ContainerEntry| pod.container(name).map(|now| &now.id) != Some(&before.id);
        let gone = before.filter(replaced);
        drop(pod);
        if let Some(gone) = gone {
            self.ids.remove(&gone.id);
        }
        Some(changed)
    }

    /// Enters a container that was found running, and so may run on other CPUs than the rest of the
    /// pool.
    pub(super) fn enter_found(&mut self, uid: &PodUid, name: &str, entry: ContainerEntry) {
        self.doubts += 1;
        self.enter(uid, name, entry, |_, _| ());
    }

    pub(super) fn remove(&mut self, uid: &PodUid, name: &str) {
        let gone = self.change(uid).and_then(|mut pod| pod.containers.remove(name));
        if let Some(gone) = gone {
            self.ids.remove(&gone.id);
        }
    }

    pub(super) fn remove_pod(&mut self, uid: &PodUid) {
        if let Some(pod) = self.take_pod(uid) {
            self.sandboxes.remove(&pod.pod.sandbox);
            for entry in pod.containers.values() {
                self.ids.remove(&entry.id);
            }
        }
    }

    fn take_pod(&mut self, uid: &PodUid) -> Option<PodEntry> {
        let counted = self.pods.remove(uid)?;
        let had = self.sums.discount(&counted);
        self.revision += u64::from(had);
        Some(counted.pod)
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
        let Some(subject) = self.pod(uid).map(|pod| pod.subject(container)) else { return };
        self.journal.note(true, subject, What::Refused { why: why.to_string(), request });
    }

    /// Gives the uid to a pod that was known by its sandbox alone.
    pub(super) fn rename_pod(&mut self, from: &PodUid, to: &PodUid) {
        let Some(mut renamed) = self.take_pod(from) else { return };
        renamed.pod.uid = to.clone();
        self.sandboxes.insert(renamed.pod.sandbox.clone(), to.clone());
        let mut gone = Vec::new();
        if self.pods.contains_key(to)
            && let Some(mut known) = self.change(to)
        {
            // Its sandbox was made anew. A container of both is the same one, and the later events
            // had the uid.
            for (name, entry) in renamed.containers {
                match known.containers.entry(name) {
                    Entry::Occupied(_) => gone.push(entry.id),
                    Entry::Vacant(place) => drop(place.insert(entry)),
                }
            }
        } else {
            self.pods.insert(to.clone(), CountedPod::new(renamed));
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

    pub(super) fn clear(&mut self) {
        *self = Books {
            revision: self.revision + 1,
            journal: std::mem::take(&mut self.journal),
            moves: std::mem::take(&mut self.moves),
            ..Books::default()
        };
    }

    /// Makes the daemon write the checkpoint even if the claims are the same: the file may be
    /// older.
    pub(super) fn renew(&mut self) {
        self.revision += 1;
    }

    /// Where shared containers run may have changed for some of them.
    pub(super) fn unsettle(&mut self) {
        self.doubts += 1;
    }

    /// All updates that follow from this have gone out; `None`: only some, so that shared containers
    /// may differ from each other.
    pub(super) fn set_delivered(&mut self, basis: Option<Basis>) {
        self.delivered = basis;
    }
}

/// The invariants, for tests and debug builds.
impl Books {
    /// Whether the sums and the index are those of the pods.
    ///
    /// # Errors
    /// What they are and what they should be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut anew = Sums::default();
        for (_, pod) in self.pods() {
            anew.recount(&mut CountedPod::new(pod.clone()));
        }
        if anew != self.sums {
            return Err(format!("the sums are {:?}, of the pods {anew:?}", self.sums));
        }
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
