//! [`Counted`]: what a pod adds to the sums of all pods.

use super::entry::{ContainerEntry, Phase};
use crate::cpuset::CpuSet;
use crate::ledger::model::{ContainerId, CpuRequest};
use crate::ledger::policy::Mechanism;

/// The exclusive CPUs of a pod, or of all pods: those of two pods are disjoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub(crate) all: CpuSet,
    /// Those that are not lent to the shared pool, see [`ContainerEntry::is_lent`].
    pub(crate) used: CpuSet,
    /// Those of `used` whose containers are partitions, or will be when they run.
    pub(crate) partitioned: CpuSet,
    /// Those that the kernel keeps others off: it does only while the container's process runs.
    pub(crate) by_kernel: CpuSet,
}

impl Held {
    pub(super) fn of<'a>(containers: impl Iterator<Item = &'a ContainerEntry>) -> Held {
        let mut held = Held::default();
        for entry in containers {
            let Some(claim) = &entry.claim else { continue };
            held.all |= *claim;
            if entry.enforced_by == Mechanism::Partitions && entry.phase == Phase::Running {
                held.by_kernel |= *claim;
            }
            if !entry.is_lent() {
                held.used |= *claim;
                if entry.enforced_by == Mechanism::Partitions {
                    held.partitioned |= *claim;
                }
            }
        }
        held
    }

    pub(super) fn add(&mut self, other: &Held) {
        self.all |= other.all;
        self.used |= other.used;
        self.partitioned |= other.partitioned;
        self.by_kernel |= other.by_kernel;
    }

    pub(super) fn subtract(&mut self, other: &Held) {
        self.all -= other.all;
        self.used -= other.used;
        self.partitioned -= other.partitioned;
        self.by_kernel -= other.by_kernel;
    }
}

/// What a pod with exclusive CPUs has added to the sums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Exclusive {
    pub(super) held: Held,
    /// Its claims as they were then.
    pub(super) claims: Vec<Claimed>,
    pub(super) partitioned: CpuSet,
}

/// The part of a container's claim that can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claimed {
    id: ContainerId,
    cpus: CpuSet,
    isolated: bool,
    cpu: CpuRequest,
    /// Decides to which sums its CPUs belong.
    held: (bool, Phase, Mechanism),
}

impl Claimed {
    pub(super) fn of(entry: &ContainerEntry) -> Option<Claimed> {
        let (id, isolated, cpu) = (entry.id.clone(), entry.isolated, entry.cpu);
        let held = (entry.is_lent(), entry.phase, entry.enforced_by);
        Some(Claimed { id, cpus: entry.claim?, isolated, cpu, held })
    }

    /// Whether the checkpoint has the same of it.
    pub(super) fn is_of(&self, entry: &ContainerEntry) -> bool {
        self.id == entry.id
            && entry.claim.as_ref() == Some(&self.cpus)
            && (self.isolated, self.cpu) == (entry.isolated, entry.cpu)
    }

    pub(super) fn is_held_as(&self, entry: &ContainerEntry) -> bool {
        self.held == (entry.is_lent(), entry.phase, entry.enforced_by)
    }
}

/// What a pod has added to the sums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// `None` without exclusive CPUs, as for most pods.
    pub(super) exclusive: Option<Box<Exclusive>>,
    /// CPUs that the pod keeps free for itself, see
    /// [`PodEntry::promise`](super::pod::PodEntry::promise).
    pub(super) promise: usize,
    /// Whether updates of its containers are due, wherever shared ones run.
    pub(super) unsettled: bool,
}
