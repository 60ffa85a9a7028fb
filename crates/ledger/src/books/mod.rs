//! [`Books`]: pods, their containers, and everything that follows from these alone. Only methods
//! here change the indexes of ids and sandboxes. Sums over pods are computed when a decision needs
//! them, so none can become wrong.

mod applied_setting;
mod entry;
mod journal;
mod move_book;
mod move_budget;
mod pod;

pub(super) use applied_setting::{AppliedSetting, Certainty};
pub(super) use entry::ContainerEntry;
pub use entry::Phase;
pub(super) use journal::Journal;
use move_book::MoveBook;
pub(super) use pod::PodEntry;

use super::claim::{Claim, MemoryClaim};
use super::model::{Container, ContainerId, LeftAlone, Pod, PodUid, SandboxId};
use super::note::{Subject, What};
use super::policy::Mechanism;
use cpuset::CpuSet;
use placement::{Rejection, Request};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    pods: BTreeMap<PodUid, PodEntry>,
    sandboxes: BTreeMap<SandboxId, PodUid>,
    /// The container of each present instance. Ids of replaced instances are not here: their late
    /// events must not change the successor.
    ids: HashMap<ContainerId, (PodUid, String)>,
    /// Claims of the state file whose containers no event has named yet.
    remembered: Vec<Claim>,
    remembered_memory: Vec<MemoryClaim>,
    /// Containers that the previous process left alone, and that no event has named yet.
    remembered_left_alone: HashMap<ContainerId, LeftAlone>,
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

    /// Containers on CPUs that another program had set before the ledger decided.
    pub(super) fn left_alone(&self) -> impl Iterator<Item = (&ContainerId, LeftAlone)> {
        let known = self.containers();
        let known = known.filter_map(|one| Some((one.entry.id(), one.entry.left_alone?)));
        known.chain(self.remembered_left_alone.iter().map(|(id, why)| (id, *why)))
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

    /// First the claims of containers and own pools, in order of pod uid and container name, then
    /// remembered ones.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        self.held_claims().chain(self.remembered.iter().cloned())
    }

    pub(super) fn held_claims(&self) -> impl Iterator<Item = Claim> {
        self.pods().flat_map(|(_, pod)| pod.claims())
    }

    /// Whether [`Books::held_claims`] are these; compares without a copy.
    pub(super) fn holds(&self, claims: &[Claim]) -> bool {
        let mut claims = claims.iter();
        self.pods().all(|(_, pod)| pod.has_next_of(&mut claims)) && claims.as_slice().is_empty()
    }

    pub(super) fn remembered_memory(&self) -> &[MemoryClaim] {
        &self.remembered_memory
    }

    /// In the order of [`Books::claims`].
    pub(super) fn memory_claims(&self) -> impl Iterator<Item = MemoryClaim> {
        let held = self.pods().flat_map(|(_, pod)| pod.memory_claims());
        held.chain(self.remembered_memory.iter().cloned())
    }

    pub(super) fn has_memory_claim(&self, uid: &PodUid, name: &str) -> bool {
        let held = self.container(uid, name).is_some_and(|one| one.entry.memory.is_some());
        let is_it = |claim: &MemoryClaim| claim.pod_uid == *uid && claim.container == name;
        held || self.remembered_memory.iter().any(is_it)
    }

    /// Whether [`Books::memory_claims`] are these; compares without a copy.
    pub(super) fn has_memory_claims(&self, claims: &[MemoryClaim]) -> bool {
        let held = self
            .containers()
            .filter_map(|one| Some((&one.pod.pod.uid, one.name, one.entry.memory.as_ref()?)));
        let remembered = self.remembered_memory.iter();
        let remembered =
            remembered.map(|claim| (&claim.pod_uid, claim.container.as_str(), &claim.memory));
        let claims = claims.iter();
        held.chain(remembered)
            .eq(claims.map(|claim| (&claim.pod_uid, claim.container.as_str(), &claim.memory)))
    }

    /// The containers that have exclusive CPUs, including those that have ended.
    pub(super) fn holders(&self) -> impl Iterator<Item = &ContainerEntry> {
        self.containers().map(|container| container.entry).filter(|entry| entry.claim().is_some())
    }

    /// The CPUs of partitions. A container's cgroup is a partition only while its process runs.
    pub(super) fn held_by_kernel(&self) -> CpuSet {
        let partitions = self.holders().filter(|entry| {
            entry.enforced_by == Mechanism::Partitions && entry.phase() == Phase::Running
        });
        partitions.filter_map(ContainerEntry::claim).collect()
    }

    /// Pods that have exclusive CPUs or had containers, and have no instance of any container now.
    pub(super) fn deserted(&self) -> impl Iterator<Item = &PodEntry> {
        let had_containers = |pod: &PodEntry| pod.promises_nothing || pod.has_claims();
        self.pods.values().filter(move |pod| had_containers(pod) && pod.is_deserted())
    }
}

pub(super) fn containers_of<'a>(
    (uid, pod): (&'a PodUid, &'a PodEntry),
) -> impl Iterator<Item = ContainerRef<'a>> + Clone {
    pod.containers.iter().map(move |(name, entry)| ContainerRef { uid, pod, name, entry })
}

impl Books {
    pub(super) fn new(remembered: Vec<Claim>) -> Books {
        Books { remembered, ..Books::default() }
    }

    pub(super) fn remember_memory(&mut self, claims: Vec<MemoryClaim>) {
        self.remembered_memory = claims;
    }

    pub(super) fn remember_left_alone(&mut self, containers: HashMap<ContainerId, LeftAlone>) {
        self.remembered_left_alone = containers;
    }

    /// Removes and returns why the previous process left this container alone.
    pub(super) fn recall_left_alone(&mut self, id: &ContainerId) -> Option<LeftAlone> {
        self.remembered_left_alone.remove(id)
    }

    /// The kubelet's CPU manager sets the CPUs of all containers but those of CRI-O's workloads.
    pub(super) fn leave_only_workloads_alone(&mut self) {
        self.remembered_left_alone.retain(|_, why| *why == LeftAlone::Workload);
        for (_, entry) in self.pods_mut().flat_map(|(_, pod)| pod.containers_mut()) {
            entry.left_alone = entry.left_alone.filter(|why| *why == LeftAlone::Workload);
        }
    }

    /// Memory is no longer counted.
    pub(super) fn forget_memory(&mut self) {
        self.remembered_memory.clear();
        for pod in self.pods.values_mut() {
            pod.vacated.clear();
            pod.containers.values_mut().for_each(|entry| entry.memory = None);
        }
    }

    /// Removes and returns the remembered memory of this container.
    pub(super) fn recall_memory(&mut self, uid: &PodUid, name: &str) -> Option<MemoryClaim> {
        let is_it = |claim: &MemoryClaim| claim.pod_uid == *uid && claim.container == name;
        let at = self.remembered_memory.iter().position(is_it)?;
        Some(self.remembered_memory.swap_remove(at))
    }

    /// A pod that the caller knows to be in the books; `None` is a defect.
    pub(super) fn pod_mut(&mut self, uid: &PodUid) -> Option<&mut PodEntry> {
        let pod = self.pods.get_mut(uid);
        debug_assert!(pod.is_some(), "pod {uid} is not in the books");
        pod
    }

    /// Changes a container that the caller knows to be in the books; `None` is a defect.
    pub(super) fn change_container<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let entry = self.pod_mut(uid)?.containers.get_mut(name);
        debug_assert!(entry.is_some(), "container {uid}/{name} is not in the books");
        entry.map(change)
    }

    /// Changes the container whose present instance has this id; `None` if there is none.
    pub(super) fn change_by_id<T>(
        &mut self,
        id: &ContainerId,
        change: impl FnOnce(&mut ContainerEntry) -> T,
    ) -> Option<T> {
        let (uid, name) = self.ids.get(id)?;
        self.pods.get_mut(uid)?.containers.get_mut(name).map(change)
    }

    /// As [`Books::change_by_id`], of each of these; a pod is looked up once for containers that follow one another.
    pub(super) fn change_each<'a, T>(
        &mut self,
        changes: impl Iterator<Item = (&'a ContainerId, T)>,
        mut change: impl FnMut(&mut ContainerEntry, T),
    ) {
        let Books { ids, pods, .. } = self;
        let found = changes.filter_map(|(id, to)| ids.get(id).map(|(uid, name)| (uid, name, to)));
        let mut found = found.peekable();
        while let Some((uid, first, to)) = found.next() {
            let Some(pod) = pods.get_mut(uid) else { continue };
            let mut next = Some((first, to));
            while let Some((name, to)) = next {
                if let Some(entry) = pod.containers.get_mut(name) {
                    change(entry, to);
                }
                let same = found.next_if(|(other, ..)| *other == uid);
                next = same.map(|(_, name, to)| (name, to));
            }
        }
    }

    pub(super) fn pods_mut(&mut self) -> impl Iterator<Item = (&PodUid, &mut PodEntry)> {
        self.pods.iter_mut()
    }

    /// Enters a pod of an event. Returns its uid, and whether it was known with the same terms.
    pub(super) fn enter_pod(&mut self, pod: Pod) -> (PodUid, bool) {
        let uid = pod.uid.clone();
        let Books { pods, sandboxes, .. } = self;
        let has_sandbox = !pod.sandbox.0.is_empty();
        match pods.get_mut(&uid) {
            Some(known) => {
                let same_terms = known.has_terms_of(&pod);
                if has_sandbox && known.pod.sandbox != pod.sandbox {
                    sandboxes.remove(&known.pod.sandbox);
                    sandboxes.insert(pod.sandbox.clone(), uid.clone());
                }
                known.refresh(pod);
                (uid, same_terms)
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

    /// Enters a container, in place of its predecessor if there is one. `change` then changes its
    /// pod; it gets the predecessor. Another container that had this id is removed.
    pub(super) fn enter<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        mut entry: ContainerEntry,
        change: impl FnOnce(&mut PodEntry, Option<&ContainerEntry>) -> T,
    ) -> Option<T> {
        let key = || (uid.clone(), name.to_owned());
        if let Some((other_uid, other_name)) = self.ids.insert(entry.id.clone(), key())
            && (&other_uid, &*other_name) != (uid, name)
        {
            self.note_released(&other_uid, &other_name);
            self.remove(&other_uid, &other_name);
            // `remove` has removed the new index entry, too: both have the same id.
            self.ids.insert(entry.id.clone(), key());
        }
        let pod = self.pod_mut(uid)?;
        if let Some(sibling) = pod.containers.values().next() {
            entry.applied.share_with(&sibling.applied);
        }
        let before = pod.containers.insert(name.to_owned(), entry);
        let changed = change(pod, before.as_ref());
        // The same instance may be entered again: then its id stays.
        let has_other_id =
            |before: &ContainerEntry| pod.container(name).map(|now| &now.id) != Some(&before.id);
        if let Some(gone) = before.filter(has_other_id) {
            self.ids.remove(&gone.id);
        }
        Some(changed)
    }

    pub(super) fn remove(&mut self, uid: &PodUid, name: &str) {
        let Some(pod) = self.pod_mut(uid) else { return };
        if let Some(gone) = pod.containers.remove(name) {
            // The CPUs of a pod with an own pool stay the pod's.
            if let Some(own_pool) = &mut pod.own_pool {
                *own_pool |= gone.held();
            }
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

    /// Takes a pod's own pool away, and notes its CPUs as free again.
    pub(super) fn release_own_pool(&mut self, uid: &PodUid) {
        let Some(pod) = self.pod_mut(uid) else { return };
        let subject = pod.own_subject();
        if let Some(cpus) = pod.own_pool.take().filter(|cpus| !cpus.is_empty()) {
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
        let devices = pod.counted_devices(&container.name, &container.devices).cloned().collect();
        self.journal.note(true, subject, What::Refused { why: why.to_string(), request, devices });
    }

    /// Gives a pod its uid, if it was entered under a placeholder.
    pub(super) fn rename_pod(&mut self, from: &PodUid, to: &PodUid) {
        let Some(mut renamed) = self.pods.remove(from) else { return };
        renamed.pod.uid = to.clone();
        self.sandboxes.insert(renamed.pod.sandbox.clone(), to.clone());
        match self.pods.entry(to.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(renamed);
            }
            // The pod has two sandboxes, of which one was entered under the placeholder. A
            // container that both have is the same one; the entry under the uid is the newer one.
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if let Some(own_pool) = renamed.own_pool {
                    *known.own_pool.get_or_insert_default() |= own_pool;
                }
                for (name, entry) in renamed.containers {
                    match known.containers.entry(name) {
                        Entry::Occupied(_) => drop(self.ids.remove(&entry.id)),
                        Entry::Vacant(vacant) => drop(vacant.insert(entry)),
                    }
                }
            }
        }
        for (name, entry) in self.pods.get(to).into_iter().flat_map(PodEntry::containers) {
            self.ids.insert(entry.id.clone(), (to.clone(), name.clone()));
        }
    }

    /// Removes and returns the remembered claim of this container.
    pub(super) fn recall(&mut self, uid: &PodUid, name: &str) -> Option<Claim> {
        let at = self.remembered.iter().position(|claim| claim.is_of(uid, name))?;
        Some(self.remembered.swap_remove(at))
    }

    /// Drops the remembered claim of this instance.
    pub(super) fn forget(&mut self, id: &ContainerId) {
        self.remembered.retain(|claim| claim.id != *id);
    }

    /// Removes all pods and claims; the journal and the counts of moves stay.
    pub(super) fn clear(&mut self) {
        *self = Books {
            journal: std::mem::take(&mut self.journal),
            moves: std::mem::take(&mut self.moves),
            ..Books::default()
        };
    }
}

impl Books {
    /// Checks the index of ids against the pods, for tests and debug builds.
    pub(crate) fn check(&self) -> Result<(), String> {
        for ContainerRef { uid, name, entry, .. } in self.containers() {
            let indexed = self.ids.get(&entry.id);
            if indexed.is_none_or(|(of_uid, of_name)| (of_uid, of_name.as_str()) != (uid, name)) {
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
