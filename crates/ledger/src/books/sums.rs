//! [`Sums`]: totals over all pods, so that no decision has to go through all containers.
//!
//! A pod changes through a [`PodMut`] only, which counts it anew when it is dropped.

use super::entry::{ContainerEntry, Phase};
use super::pod::PodEntry;
use crate::model::{ContainerId, CpuRequest, PodUid};
use crate::policy::{Mechanism, Policy};
use cpuset::{CpuSet, NodeSet};
use placement::wishes::Margin;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

/// What decides, for all containers at once, where the shared ones run and which memory they use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    /// The CPUs that are sent for them.
    pub(crate) sent: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) policy: Policy,
    /// The memory-only nodes that containers may use, where memory follows exclusive CPUs.
    pub(crate) memory_only: Option<NodeSet>,
    /// [`Books::doubts`](super::Books::doubts).
    pub(crate) doubts: u64,
}

/// The exclusive CPUs of a pod, or of all pods: those of two pods are disjoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub(crate) all: CpuSet,
    /// Those that are not lent to the shared pool, see [`ContainerEntry::is_lent`].
    pub(crate) used: CpuSet,
    /// Those that the kernel keeps others off: it does only while the container's process runs.
    pub(crate) by_kernel: CpuSet,
}

impl Held {
    fn of<'a>(containers: impl Iterator<Item = &'a ContainerEntry>) -> Held {
        let mut held = Held::default();
        for entry in containers {
            let Some(claim) = entry.claim() else { continue };
            held.all |= claim;
            if entry.enforced_by == Mechanism::Partitions && entry.phase() == Phase::Running {
                held.by_kernel |= claim;
            }
            if !entry.is_lent() {
                held.used |= claim;
            }
        }
        held
    }

    fn add(&mut self, other: &Held) {
        self.all |= other.all;
        self.used |= other.used;
        self.by_kernel |= other.by_kernel;
    }

    fn subtract(&mut self, other: &Held) {
        self.all -= other.all;
        self.used -= other.used;
        self.by_kernel -= other.by_kernel;
    }
}

/// A pod, and what it has added to the sums.
#[derive(Debug, Clone)]
pub(super) struct CountedPod {
    pub(super) pod: PodEntry,
    counted: Counted,
}

impl CountedPod {
    /// A pod that no sum has yet.
    pub(super) fn new(pod: PodEntry) -> CountedPod {
        CountedPod { pod, counted: Counted::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Counted {
    /// `None` without exclusive CPUs, as for most pods.
    exclusive: Option<Box<PodClaims>>,
    /// See [`PodEntry::promise`].
    promise: usize,
    unsettled: bool,
    deserted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PodClaims {
    held: Held,
    /// The pod's claims as they were then.
    claims: Vec<Claimed>,
    kept_from_siblings: CpuSet,
}

/// The part of a container's claim that can change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claimed {
    id: ContainerId,
    cpus: CpuSet,
    margin: Margin,
    mixed: bool,
    cpu: CpuRequest,
    /// Decides to which sums its CPUs belong.
    held: (bool, Phase, Mechanism),
}

impl Claimed {
    fn of(entry: &ContainerEntry) -> Option<Claimed> {
        Some(Claimed {
            id: entry.id.clone(),
            cpus: entry.claim()?,
            margin: entry.margin(),
            mixed: entry.is_mixed(),
            cpu: entry.cpu,
            held: (entry.is_lent(), entry.phase(), entry.enforced_by),
        })
    }

    /// Whether the checkpoint has the same of it.
    fn is_of(&self, entry: &ContainerEntry) -> bool {
        self.id == entry.id
            && entry.claim().as_ref() == Some(&self.cpus)
            && self.margin == entry.margin()
            && self.mixed == entry.is_mixed()
            && self.cpu == entry.cpu
    }

    fn is_held_as(&self, entry: &ContainerEntry) -> bool {
        self.held == (entry.is_lent(), entry.phase(), entry.enforced_by)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sums {
    pub(super) held: Held,
    /// Pods with containers that keep CPUs idle.
    pub(super) with_margin: BTreeSet<PodUid>,
    /// Pods without an instance of any container, see [`PodEntry::is_deserted`], that have exclusive
    /// CPUs or had containers.
    pub(super) deserted: BTreeSet<PodUid>,
    /// A runtime may report budgets of any size; their sum fits in here.
    promised: u128,
    /// Pods with containers whose update is due, wherever shared ones run.
    pub(super) unsettled: BTreeSet<PodUid>,
}

/// What has changed with a pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    /// What the checkpoint has of it.
    claims: bool,
    /// The pod's other containers can have CPUs of its partitions that these lost.
    beside: bool,
}

impl Sums {
    /// How many CPUs all pods but this one keep free for themselves, see [`PodEntry::promise`].
    pub(super) fn promised_beside(&self, pod: &PodEntry) -> usize {
        usize::try_from(self.promised - pod.promise() as u128).unwrap_or(usize::MAX)
    }

    /// Replaces what a changed pod has added to the sums.
    pub(super) fn recount(&mut self, counted: &mut CountedPod) -> Changed {
        let before = std::mem::take(&mut counted.counted);
        let pod = &counted.pod;
        let mut any = false;
        let mut unsettled = false;
        for entry in pod.containers.values() {
            any |= entry.claim().is_some();
            unsettled |= entry.is_unsettled();
        }
        unsettled |= any && is_in_its_own_way(pod);
        if unsettled || before.unsettled {
            count_in(&mut self.unsettled, &pod.pod.uid, unsettled);
        }
        let deserted = (any || pod.refused) && pod.is_deserted();
        if deserted || before.deserted {
            count_in(&mut self.deserted, &pod.pod.uid, deserted);
        }
        let promise = pod.promise();
        self.promised = self.promised - before.promise as u128 + promise as u128;
        let (exclusive, changed) = match (before.exclusive, any) {
            (None, false) => (None, Changed::default()),
            (Some(before), false) => {
                self.subtract(&pod.pod.uid, &before);
                let beside = !before.kept_from_siblings.is_empty();
                (None, Changed { claims: true, beside })
            }
            (before, true) => {
                // Beside the first one, the others no longer keep what they have.
                let others = before.is_none() && pod.containers.len() > 1;
                let mut exclusive = before.unwrap_or_default();
                let Changed { claims, beside } = self.replace(pod, &mut exclusive);
                (Some(exclusive), Changed { claims, beside: beside || others })
            }
        };
        counted.counted = Counted { exclusive, promise, unsettled, deserted };
        changed
    }

    /// Counts a pod with exclusive CPUs; `exclusive` is what it added before.
    fn replace(&mut self, pod: &PodEntry, exclusive: &mut PodClaims) -> Changed {
        let uid = &pod.pod.uid;
        let held = || pod.containers.values().filter(|entry| entry.claim().is_some());
        let mut known = exclusive.claims.iter();
        let mut same_claims = true;
        let mut same_sums = true;
        for entry in held() {
            let known = known.next();
            same_claims &= known.is_some_and(|known| known.is_of(entry));
            same_sums &= known.is_some_and(|known| known.is_held_as(entry));
        }
        same_claims &= known.next().is_none();
        if same_claims && same_sums {
            return Changed::default();
        }
        exclusive.claims = held().filter_map(Claimed::of).collect();
        let before = std::mem::replace(&mut exclusive.kept_from_siblings, pod.kept_from_siblings());
        self.held.subtract(&exclusive.held);
        exclusive.held = Held::of(held());
        self.held.add(&exclusive.held);
        count_in(&mut self.with_margin, uid, held().any(ContainerEntry::has_margin));
        let beside = !before.is_subset(&exclusive.kept_from_siblings);
        Changed { claims: !same_claims, beside }
    }

    /// Takes a pod out of the sums. Returns whether it had exclusive CPUs.
    pub(super) fn discount(&mut self, CountedPod { pod, counted }: &CountedPod) -> bool {
        let Counted { exclusive, promise, unsettled, deserted } = counted;
        self.promised -= *promise as u128;
        if *unsettled {
            self.unsettled.remove(&pod.pod.uid);
        }
        if *deserted {
            self.deserted.remove(&pod.pod.uid);
        }
        if let Some(exclusive) = exclusive {
            self.subtract(&pod.pod.uid, exclusive);
        }
        exclusive.is_some()
    }

    fn subtract(&mut self, uid: &PodUid, exclusive: &PodClaims) {
        self.held.subtract(&exclusive.held);
        self.with_margin.remove(uid);
    }
}

fn count_in(pods: &mut BTreeSet<PodUid>, uid: &PodUid, counts: bool) {
    if !counts {
        pods.remove(uid);
    } else if !pods.contains(uid) {
        pods.insert(uid.clone());
    }
}

/// Whether a container of the pod that uses shared CPUs has others' CPUs of the pod's partitions in
/// its cpuset, or no cpuset at all. It must not.
fn is_in_its_own_way(pod: &PodEntry) -> bool {
    let kept = pod.kept_from_siblings();
    if kept.is_empty() {
        return false;
    }
    let shares = |entry: &&ContainerEntry| entry.claim().is_none() || entry.is_mixed();
    let mut shared = pod.containers.values().filter(|entry| entry.is_updatable()).filter(shares);
    shared.any(|entry| match entry.applied.cpus() {
        Some(cpus) => !cpus.is_disjoint(&(kept - entry.held())),
        None => true,
    })
}

#[derive(Debug)]
pub(crate) struct PodMut<'a> {
    pub(super) counted: &'a mut CountedPod,
    pub(super) sums: &'a mut Sums,
    pub(super) revision: &'a mut u64,
    pub(super) doubts: &'a mut u64,
}

impl Deref for PodMut<'_> {
    type Target = PodEntry;

    fn deref(&self) -> &PodEntry {
        &self.counted.pod
    }
}

impl DerefMut for PodMut<'_> {
    fn deref_mut(&mut self) -> &mut PodEntry {
        &mut self.counted.pod
    }
}

impl Drop for PodMut<'_> {
    fn drop(&mut self) {
        let changed = self.sums.recount(self.counted);
        *self.revision += u64::from(changed.claims);
        *self.doubts += u64::from(changed.beside);
    }
}
