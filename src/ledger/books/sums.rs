//! [`Sums`]: what all pods add up to. A pod is counted anew whenever it has changed, so no decision has to go through all
//! containers.

use super::counted::{Claimed, Counted, Exclusive, Held};
use super::pod::PodEntry;
use crate::ledger::model::PodUid;
use std::collections::BTreeSet;

/// What all pods have together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sums {
    pub(super) held: Held,
    /// Pods for which SMT siblings stay idle.
    pub(super) isolating: BTreeSet<PodUid>,
    /// Pods with exclusive CPUs and without an instance of any container, see
    /// [`PodEntry::is_deserted`].
    pub(super) deserted: BTreeSet<PodUid>,
    /// Promises are as large as an event says they are; as many as there can be pods fit in here.
    pub(super) promised: u128,
    /// How many pods have containers that have to be told something, wherever shared ones run.
    pub(super) unsettled: usize,
}

/// What has changed with a pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    /// What must outlive the process.
    pub(super) claims: bool,
    /// The kernel keeps fewer CPUs for the pod's containers: others of the pod can have them.
    pub(super) partitioned: bool,
}

impl Sums {
    /// A pod has changed: puts what it has now in the place of what it was counted with.
    pub(super) fn recount(&mut self, pod: &mut PodEntry) -> Changed {
        let Counted { exclusive: before, promise, unsettled } = std::mem::take(&mut pod.counted);
        self.promised -= promise as u128;
        self.unsettled -= usize::from(unsettled);
        let promise = pod.promise();
        let (mut any, mut unsettled) = (false, false);
        for entry in pod.containers.values() {
            any |= entry.claim.is_some();
            unsettled |= entry.is_unsettled();
        }
        unsettled |= any && is_in_its_own_way(pod);
        self.promised += promise as u128;
        self.unsettled += usize::from(unsettled);
        let (exclusive, changed) = match (before, any) {
            (None, false) => (None, Changed::default()),
            (Some(before), false) => {
                self.subtract(&pod.pod.uid, &before);
                let partitioned = !before.partitioned.is_empty();
                (None, Changed { claims: true, partitioned })
            }
            (before, true) => {
                let mut exclusive = before.unwrap_or_default();
                let changed = self.replace(pod, &mut exclusive);
                (Some(exclusive), changed)
            }
        };
        pod.counted = Counted { exclusive, promise, unsettled };
        changed
    }

    /// Counts a pod with exclusive CPUs; `exclusive` is what it was counted with before.
    fn replace(&mut self, pod: &PodEntry, exclusive: &mut Exclusive) -> Changed {
        let uid = &pod.pod.uid;
        count_in(&mut self.deserted, uid, pod.is_deserted());
        let held = || pod.containers.values().filter(|entry| entry.claim.is_some());
        let mut known = exclusive.claims.iter();
        let (mut claims, mut sums) = (true, true);
        for entry in held() {
            let known = known.next();
            claims &= known.is_some_and(|known| known.is_of(entry));
            sums &= known.is_some_and(|known| known.is_held_as(entry));
        }
        claims &= known.next().is_none();
        if claims && sums {
            return Changed::default();
        }
        exclusive.claims = held().filter_map(Claimed::of).collect();
        let before = std::mem::replace(&mut exclusive.partitioned, pod.partitioned());
        self.held.subtract(&exclusive.held);
        exclusive.held = Held::of(held());
        self.held.add(&exclusive.held);
        count_in(&mut self.isolating, uid, held().any(|entry| entry.isolated));
        Changed { claims: !claims, partitioned: !before.is_subset(&exclusive.partitioned) }
    }

    /// Takes a pod out of the sums. Says whether it had exclusive CPUs.
    pub(super) fn discount(&mut self, pod: &mut PodEntry) -> bool {
        let Counted { exclusive, promise, unsettled } = std::mem::take(&mut pod.counted);
        self.promised -= promise as u128;
        self.unsettled -= usize::from(unsettled);
        if let Some(exclusive) = &exclusive {
            self.subtract(&pod.pod.uid, exclusive);
        }
        exclusive.is_some()
    }

    fn subtract(&mut self, uid: &PodUid, exclusive: &Exclusive) {
        self.held.subtract(&exclusive.held);
        self.isolating.remove(uid);
        self.deserted.remove(uid);
    }
}

/// Whether a pod is in a set from now on.
fn count_in(pods: &mut BTreeSet<PodUid>, uid: &PodUid, is: bool) {
    match is {
        true if !pods.contains(uid) => drop(pods.insert(uid.clone())),
        true => {}
        false => drop(pods.remove(uid)),
    }
}

/// Whether a container that shares CPUs names some that the kernel keeps for another one of the
/// pod. It must not.
fn is_in_its_own_way(pod: &PodEntry) -> bool {
    let partitioned = pod.partitioned();
    if partitioned.is_empty() {
        return false;
    }
    let shared = pod.containers.values();
    let shared = shared.filter(|entry| entry.is_alive() && entry.claim.is_none());
    let mut told = shared.filter_map(|entry| entry.applied.told());
    told.any(|told| !told.is_disjoint(&partitioned))
}
