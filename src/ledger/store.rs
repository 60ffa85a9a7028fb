//! All pods, and what they add up to.
//!
//! A pod can only be changed through a [`Changing`], which counts it anew when it goes. So the sums are always those of
//! the pods as they are, and no decision has to go through all containers for them.

use super::Exclusivity;
use super::entry::{Entry, Life};
use super::model::{Pod, PodUid};
use super::pods::PodEntry;
use crate::cpuset::CpuSet;
use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// Exclusive CPUs of a pod, or of all pods: no two pods have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held {
    /// All of them.
    pub(super) all: CpuSet,
    /// Those that are not lent to the shared pool, see [`Entry::is_lent`].
    pub(super) used: CpuSet,
    /// Those of `used` that the runtime keeps others off, by telling these.
    pub(super) by_runtime: CpuSet,
    /// Those that the kernel keeps others off now: it does as long as the container's process runs, not longer.
    pub(super) by_kernel: CpuSet,
    /// Whether SMT siblings are kept idle for some of them.
    pub(super) isolated: bool,
}

impl Held {
    fn of(pod: &PodEntry) -> Held {
        let mut held = Held::default();
        for entry in pod.containers.values() {
            let Some(claim) = entry.claim else { continue };
            held.all |= claim;
            held.isolated |= entry.isolated;
            if entry.kept_by == Exclusivity::Kernel && entry.life == Life::Running {
                held.by_kernel |= claim;
            }
            if !entry.is_lent() {
                held.used |= claim;
                if entry.kept_by == Exclusivity::Runtime {
                    held.by_runtime |= claim;
                }
            }
        }
        held
    }
}

/// What a pod was counted with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// `None` without exclusive CPUs, as of most pods.
    held: Option<Box<Held>>,
    promise: usize,
}

impl Counted {
    /// Whether the pod had exclusive CPUs when it was counted, which is whenever it has changed.
    pub(super) fn has_exclusive(&self) -> bool {
        self.held.is_some()
    }
}

/// What all pods have together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sums {
    held: Held,
    isolating: BTreeSet<PodUid>,
    /// Pods with exclusive CPUs and without an instance of any container, see [`PodEntry::is_deserted`].
    deserted: BTreeSet<PodUid>,
    /// Promises are as large as somebody says they are; as many as there can be pods fit in here.
    promised: u128,
}

impl Sums {
    /// A pod has changed: takes out what it was counted with, and counts what it has now.
    fn recount(&mut self, pod: &mut PodEntry) {
        self.discount(pod);
        let promise = pod.promise();
        let held = pod.containers.values().any(|entry| entry.claim.is_some());
        let held = held.then(|| Box::new(Held::of(pod)));
        if let Some(held) = &held {
            self.held.all |= held.all;
            self.held.used |= held.used;
            self.held.by_runtime |= held.by_runtime;
            self.held.by_kernel |= held.by_kernel;
            if held.isolated {
                self.isolating.insert(pod.pod.uid.clone());
            }
            if pod.is_deserted() {
                self.deserted.insert(pod.pod.uid.clone());
            }
        }
        self.promised += promise as u128;
        pod.counted = Counted { held, promise };
    }

    fn discount(&mut self, pod: &mut PodEntry) {
        let Counted { held, promise } = std::mem::take(&mut pod.counted);
        if let Some(held) = held {
            self.held.all -= held.all;
            self.held.used -= held.used;
            self.held.by_runtime -= held.by_runtime;
            self.held.by_kernel -= held.by_kernel;
            if held.isolated {
                self.isolating.remove(&pod.pod.uid);
            }
            self.deserted.remove(&pod.pod.uid);
        }
        self.promised -= promise as u128;
    }
}

/// The pods that exist, by uid.
#[derive(Debug, Clone, Default)]
pub(super) struct Pods {
    pods: BTreeMap<PodUid, PodEntry>,
    sums: Sums,
}

impl Pods {
    pub(super) fn get(&self, uid: &PodUid) -> Option<&PodEntry> {
        self.pods.get(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PodUid, &PodEntry)> {
        self.pods.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &PodEntry> {
        self.pods.values()
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// A pod, to be changed.
    pub(super) fn change(&mut self, uid: &PodUid) -> Option<Changing<'_>> {
        let pod = self.pods.get_mut(uid)?;
        Some(Changing { pod, sums: &mut self.sums })
    }

    /// Changes a container; `None` if there is no such one.
    pub(super) fn change_entry<T>(
        &mut self,
        uid: &PodUid,
        name: &str,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        self.change(uid)?.containers.get_mut(name).map(change)
    }

    /// Changes all pods.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&PodUid, &mut PodEntry)) {
        for (uid, pod) in &mut self.pods {
            change(uid, pod);
            self.sums.recount(pod);
        }
    }

    /// Takes over what an event says of a pod, known or not.
    pub(super) fn hear_of(&mut self, pod: Pod) -> Changing<'_> {
        let pod = match self.pods.entry(pod.uid.clone()) {
            MapEntry::Vacant(place) => place.insert(PodEntry::new(pod)),
            MapEntry::Occupied(known) => {
                let known = known.into_mut();
                known.refresh(pod);
                known
            }
        };
        Changing { pod, sums: &mut self.sums }
    }

    /// Enters a pod under its uid, in place of one that had it.
    pub(super) fn insert(&mut self, mut pod: PodEntry) {
        let uid = pod.pod.uid.clone();
        self.remove(&uid);
        self.sums.recount(&mut pod);
        self.pods.insert(uid, pod);
    }

    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<PodEntry> {
        let mut pod = self.pods.remove(uid)?;
        self.sums.discount(&mut pod);
        Some(pod)
    }

    pub(super) fn clear(&mut self) {
        *self = Pods::default();
    }

    /// The exclusive CPUs of all pods.
    pub(super) fn held(&self) -> &Held {
        &self.sums.held
    }

    /// How many CPUs pods keep free for themselves, all but this one together, see [`PodEntry::promise`].
    pub(super) fn promised_beside(&self, uid: &PodUid) -> usize {
        let own = self.get(uid).map_or(0, |pod| pod.counted.promise);
        usize::try_from(self.sums.promised - own as u128).unwrap_or(usize::MAX)
    }

    /// Pods with exclusive CPUs and without an instance of any container.
    pub(super) fn deserted(&self) -> impl Iterator<Item = &PodEntry> {
        self.sums.deserted.iter().filter_map(|uid| self.pods.get(uid))
    }

    /// Containers for which SMT siblings are kept idle, and whether their CPUs are lent.
    pub(super) fn isolated(&self) -> impl Iterator<Item = (&Entry, bool)> {
        let pods = self.sums.isolating.iter().filter_map(|uid| self.pods.get(uid));
        let isolated = pods.flat_map(|pod| pod.containers.values().filter(|entry| entry.isolated));
        isolated.map(|entry| (entry, entry.is_lent()))
    }

    /// Whether the sums are those of the pods.
    ///
    /// # Errors
    /// What they are and what they should be, for the message of a failed assertion.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut anew = Sums::default();
        for pod in self.pods.values() {
            anew.recount(&mut PodEntry { counted: Counted::default(), ..pod.clone() });
        }
        match anew == self.sums {
            true => Ok(()),
            false => Err(format!("the sums are {:?}, of the pods {anew:?}", self.sums)),
        }
    }
}

/// A pod that is being changed. It is counted anew when this is dropped.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    pod: &'a mut PodEntry,
    sums: &'a mut Sums,
}

impl Deref for Changing<'_> {
    type Target = PodEntry;

    fn deref(&self) -> &PodEntry {
        self.pod
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut PodEntry {
        self.pod
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.sums.recount(self.pod);
    }
}
