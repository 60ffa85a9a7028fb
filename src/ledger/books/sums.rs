//! [`Sums`]: what all pods add up to. A pod is counted anew whenever it has changed, so no decision has to go through all
//! containers.

use super::entry::{Entry, Phase};
use super::pod::PodEntry;
use crate::cpuset::CpuSet;
use crate::ledger::claim::Claim;
use crate::ledger::model::PodUid;
use crate::ledger::policy::Exclusivity;
use std::collections::BTreeSet;

/// Exclusive CPUs of a pod, or of all pods: no two pods have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// All of them.
    pub(crate) all: CpuSet,
    /// Those that are not lent to the shared pool, see [`Entry::is_lent`].
    pub(crate) used: CpuSet,
    /// Those of `used` that the runtime keeps others off, by updating these.
    pub(crate) by_runtime: CpuSet,
    /// Those that the kernel keeps others off now: it does as long as the container's process runs, not longer.
    pub(crate) by_kernel: CpuSet,
}

impl Held {
    fn of(pod: &PodEntry) -> Held {
        let mut held = Held::default();
        for entry in pod.containers.values() {
            let Some(claim) = entry.claim else { continue };
            held.all |= claim;
            if entry.enforced_by == Exclusivity::Kernel && entry.phase == Phase::Running {
                held.by_kernel |= claim;
            }
            if !entry.is_lent() {
                held.used |= claim;
                if entry.enforced_by == Exclusivity::Runtime {
                    held.by_runtime |= claim;
                }
            }
        }
        held
    }

    fn add(&mut self, other: &Held) {
        self.all |= other.all;
        self.used |= other.used;
        self.by_runtime |= other.by_runtime;
        self.by_kernel |= other.by_kernel;
    }

    fn subtract(&mut self, other: &Held) {
        self.all -= other.all;
        self.used -= other.used;
        self.by_runtime -= other.by_runtime;
        self.by_kernel -= other.by_kernel;
    }
}

/// What a pod with exclusive CPUs was counted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exclusive {
    held: Held,
    /// All that must outlive the process.
    claims: Vec<Claim>,
    /// CPUs that the kernel keeps for containers of the pod, whether or not they run.
    partitioned: CpuSet,
}

/// What a pod was counted with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// `None` without exclusive CPUs, as of most pods.
    pub(super) held: Option<Box<Exclusive>>,
    promise: usize,
    unsettled: bool,
}

impl Counted {
    /// The claims of the pod.
    pub(super) fn claims(&self) -> &[Claim] {
        self.held.as_ref().map_or(&[], |exclusive| &exclusive.claims)
    }

    /// CPUs that the pod keeps free for itself, by count.
    pub(super) fn promise(&self) -> usize {
        self.promise
    }
}

/// What all pods have together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sums {
    pub(super) held: Held,
    /// Pods for which SMT siblings stay idle.
    pub(super) isolating: BTreeSet<PodUid>,
    /// Pods with exclusive CPUs and without an instance of any container, see [`PodEntry::is_deserted`].
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
    /// A pod has changed: takes out what it was counted with, and counts what it has now.
    pub(super) fn recount(&mut self, pod: &mut PodEntry) -> Changed {
        let before = self.discount(pod);
        let promise = pod.promise();
        let unsettled = pod.is_unsettled();
        self.promised += promise as u128;
        self.unsettled += usize::from(unsettled);
        let any = pod.containers.values().any(|entry| entry.claim.is_some());
        let (known, partitioned) = match before {
            Some(before) => (before.claims, before.partitioned),
            None => (Vec::new(), CpuSet::EMPTY),
        };
        let same = pod.is_as_claimed(&known);
        let held = any.then(|| Exclusive {
            held: Held::of(pod),
            claims: if same { known } else { pod.claims() },
            partitioned: pod.partitioned(),
        });
        let now = held.as_ref().map(|held| held.partitioned).unwrap_or_default();
        let changed = Changed { claims: !same, partitioned: !partitioned.is_subset(&now) };
        if let Some(Exclusive { held, .. }) = &held {
            self.held.add(held);
            if pod.containers.values().any(|entry| entry.claim.is_some() && entry.isolated) {
                self.isolating.insert(pod.pod.uid.clone());
            }
            if pod.is_deserted() {
                self.deserted.insert(pod.pod.uid.clone());
            }
        }
        pod.counted = Counted { held: held.map(Box::new), promise, unsettled };
        changed
    }

    /// Takes a pod out of the sums; what it had exclusively.
    pub(super) fn discount(&mut self, pod: &mut PodEntry) -> Option<Box<Exclusive>> {
        let Counted { held, promise, unsettled } = std::mem::take(&mut pod.counted);
        if let Some(exclusive) = &held {
            self.held.subtract(&exclusive.held);
            self.isolating.remove(&pod.pod.uid);
            self.deserted.remove(&pod.pod.uid);
        }
        self.promised -= promise as u128;
        self.unsettled -= usize::from(unsettled);
        held
    }
}

impl PodEntry {
    /// Whether any of its containers has to be told something, wherever shared ones run. One that shares CPUs must not name
    /// those that the kernel keeps for another one of the pod.
    fn is_unsettled(&self) -> bool {
        let kernel =
            |entry: &Entry| entry.claim.is_some() && entry.enforced_by == Exclusivity::Kernel;
        let names = |partitioned: CpuSet| {
            let shared = self.containers.values();
            let shared = shared.filter(|entry| entry.is_alive() && entry.claim.is_none());
            let mut told = shared.filter_map(|entry| entry.applied.told());
            told.any(|told| !told.is_disjoint(&partitioned))
        };
        self.containers.values().any(Entry::is_unsettled)
            || (self.containers.values().any(kernel) && names(self.partitioned()))
    }

    fn claimed(&self) -> impl Iterator<Item = (&String, &Entry, CpuSet)> {
        self.containers.iter().filter_map(|(name, entry)| Some((name, entry, entry.claim?)))
    }

    fn is_as_claimed(&self, claims: &[Claim]) -> bool {
        let mut known = claims.iter();
        let same = |(name, entry, cpus): (&String, &Entry, CpuSet)| {
            known.next().is_some_and(|known| {
                (&known.container, &known.id) == (name, &entry.id)
                    && (known.cpus, known.isolated, known.cpu) == (cpus, entry.isolated, entry.cpu)
                    && (&known.pod_uid, &known.pod) == (&self.pod.uid, &self.pod.name)
                    && known.namespace == self.pod.namespace
            })
        };
        self.claimed().all(same) && known.next().is_none()
    }

    fn claims(&self) -> Vec<Claim> {
        let claim = |(name, entry, cpus): (&String, &Entry, CpuSet)| Claim {
            pod_uid: self.pod.uid.clone(),
            namespace: self.pod.namespace.clone(),
            pod: self.pod.name.clone(),
            container: name.clone(),
            id: entry.id.clone(),
            cpus,
            isolated: entry.isolated,
            cpu: entry.cpu,
        };
        self.claimed().map(claim).collect()
    }
}
