//! [`Counted`]: what a pod adds to the sums of all pods.

use super::entry::{ContainerEntry, Phase};
use crate::cpuset::CpuSet;
use crate::ledger::model::{ContainerId, CpuRequest};
use crate::ledger::policy::Exclusivity;

/// Exclusive CPUs of a pod, or of all pods: no two pods have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// All of them.
    pub(crate) all: CpuSet,
    /// Those that are not lent to the shared pool, see [`ContainerEntry::is_lent`].
    pub(crate) used: CpuSet,
    /// Those of `used` that the runtime keeps others off, by updating these.
    pub(crate) by_runtime: CpuSet,
    /// Those that the kernel keeps others off now: it does as long as the container's process runs,
    /// not longer.
    pub(crate) by_kernel: CpuSet,
}

impl Held {
    /// The same of these containers.
    pub(super) fn of<'a>(containers: impl Iterator<Item = &'a ContainerEntry>) -> Held {
        let mut held = Held::default();
        for entry in containers {
            let Some(claim) = &entry.claim else { continue };
            held.all |= *claim;
            if entry.enforced_by == Exclusivity::Kernel && entry.phase == Phase::Running {
                held.by_kernel |= *claim;
            }
            if !entry.is_lent() {
                held.used |= *claim;
                if entry.enforced_by == Exclusivity::Runtime {
                    held.by_runtime |= *claim;
                }
            }
        }
        held
    }

    pub(super) fn add(&mut self, other: &Held) {
        self.all |= other.all;
        self.used |= other.used;
        self.by_runtime |= other.by_runtime;
        self.by_kernel |= other.by_kernel;
    }

    pub(super) fn subtract(&mut self, other: &Held) {
        self.all -= other.all;
        self.used -= other.used;
        self.by_runtime -= other.by_runtime;
        self.by_kernel -= other.by_kernel;
    }
}

/// What a pod with exclusive CPUs was counted with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Exclusive {
    pub(super) held: Held,
    /// What of its claims can change while it lives.
    pub(super) claims: Vec<Claimed>,
    /// CPUs that the kernel keeps for containers of the pod, whether or not they run.
    pub(super) partitioned: CpuSet,
}

/// What of a claim can change while its container lives, or comes back under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claimed {
    id: ContainerId,
    cpus: CpuSet,
    isolated: bool,
    cpu: CpuRequest,
    /// What else decides to which sums its CPUs belong.
    held: (bool, Phase, Exclusivity),
}

impl Claimed {
    pub(super) fn of(entry: &ContainerEntry) -> Option<Claimed> {
        let (id, isolated, cpu) = (entry.id.clone(), entry.isolated, entry.cpu);
        let held = (entry.is_lent(), entry.phase, entry.enforced_by);
        Some(Claimed { id, cpus: entry.claim?, isolated, cpu, held })
    }

    /// Whether what must outlive the process is the same.
    pub(super) fn is_of(&self, entry: &ContainerEntry) -> bool {
        self.id == entry.id
            && entry.claim.as_ref() == Some(&self.cpus)
            && (self.isolated, self.cpu) == (entry.isolated, entry.cpu)
    }

    /// Whether its CPUs belong to the same sums.
    pub(super) fn is_held_as(&self, entry: &ContainerEntry) -> bool {
        self.held == (entry.is_lent(), entry.phase, entry.enforced_by)
    }
}

/// What a pod was counted with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// `None` without exclusive CPUs, as of most pods.
    pub(super) exclusive: Option<Box<Exclusive>>,
    /// CPUs that the pod keeps free for itself, see
    /// [`PodEntry::promise`](super::pod::PodEntry::promise).
    pub(super) promise: usize,
    /// Whether containers of it have to be told something, wherever shared ones run.
    pub(super) unsettled: bool,
}
