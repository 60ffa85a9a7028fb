//! [`Sums`]: totals over all pods. Every change of a pod counts it anew, so no decision has to go
//! through all containers.

use super::counted::{Claimed, Counted, Exclusive, Held};
use super::pod::PodEntry;
use crate::ledger::model::PodUid;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sums {
    pub(super) held: Held,
    pub(super) isolating: BTreeSet<PodUid>,
    /// Pods with exclusive CPUs and without an instance of any container, see
    /// [`PodEntry::is_deserted`].
    pub(super) deserted: BTreeSet<PodUid>,
    /// A runtime may report budgets of any size; their sum fits in here.
    pub(super) promised: u128,
    /// How many pods have containers whose update is due, wherever shared ones run.
    pub(super) unsettled: usize,
}

/// What has changed with a pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    /// What the checkpoint has of it.
    pub(super) claims: bool,
    /// The pod's partitions lost CPUs: its other containers can have them.
    pub(super) partitioned: bool,
}

impl Sums {
    /// Replaces what a changed pod has added to the sums.
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

    /// Counts a pod with exclusive CPUs; `exclusive` is what it added before.
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

    /// Takes a pod out of the sums. Returns whether it had exclusive CPUs.
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

fn count_in(pods: &mut BTreeSet<PodUid>, uid: &PodUid, is: bool) {
    match is {
        true if !pods.contains(uid) => drop(pods.insert(uid.clone())),
        true => {}
        false => drop(pods.remove(uid)),
    }
}

/// Whether a shared container of the pod has CPUs of the pod's partitions in its cpuset. It must
/// not.
fn is_in_its_own_way(pod: &PodEntry) -> bool {
    let partitioned = pod.partitioned();
    if partitioned.is_empty() {
        return false;
    }
    let shared = pod.containers.values();
    let shared = shared.filter(|entry| entry.is_alive() && entry.claim.is_none());
    let mut set = shared.filter_map(|entry| entry.applied.certain_cpus());
    set.any(|cpus| !cpus.is_disjoint(&partitioned))
}
