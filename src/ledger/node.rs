//! [`Node`]: the machine and what an administrator decided about it, and the arithmetic of its CPUs.

use super::books::{Basis, Books, ContainerEntry};
use super::policy::{Exclusivity, Policy};
use super::settings::Settings;
use super::stance::Stance;
use crate::cpuset::CpuSet;
use crate::placement::Engine;
use crate::placement::cores::with_idle_siblings;
use crate::topology::Topology;
use std::sync::Arc;

/// All that decides beside the books.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) topology: Arc<Topology>,
    pub(super) settings: Arc<Settings>,
    /// Whether CPUs are assigned here, or by the kubelet's own CPU manager.
    pub(super) stance: Stance,
    /// What decides which CPUs.
    pub(super) engine: Arc<dyn Engine>,
}

/// Where containers that share CPUs may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pool {
    /// Online CPUs that are exclusive to no container, without the reserved ones under strict
    /// reservation. CPUs of a container that has ended are in it while they are lent out, see
    /// [`ContainerEntry::is_lent`].
    pub(super) cpus: CpuSet,
    /// What shared containers are told. CPUs that the kernel keeps for a container are among them:
    /// it takes them off all others by itself, and gives them back by itself. So this never changes
    /// where the kernel keeps all of them, nor where the groups above shared containers do.
    ///
    /// With strict reservation the pool can be empty. A container without a cpuset would then run
    /// on the exclusive CPUs of others (the kubelet lets it, kubernetes/kubernetes#141196); the
    /// reserved ones are the lesser evil. Should these be offline, and all others exclusive, then
    /// it is empty, and shared containers are left where they are.
    pub(super) open: CpuSet,
}

impl Pool {
    /// What the groups above shared containers are set to, where these keep exclusivity: never
    /// empty while a reserved CPU is online.
    pub(super) fn in_groups(&self, node: &Node) -> CpuSet {
        if self.cpus.is_empty() { node.reserved() & node.topology.online() } else { self.cpus }
    }
}

impl Node {
    /// Whether CPUs are assigned here.
    pub(super) fn assigns(&self) -> bool {
        self.stance == Stance::Assign
    }

    /// Whether containers may get exclusive CPUs.
    pub(super) fn is_static(&self) -> bool {
        self.settings.policy == Policy::Static
    }

    pub(super) fn reserved(&self) -> CpuSet {
        self.settings.placement.reserved
    }

    /// These CPUs, with their SMT siblings if these are to stay idle.
    pub(super) fn with_idle(&self, cpus: &CpuSet, isolated: bool) -> CpuSet {
        match isolated {
            true => with_idle_siblings(&self.topology, &self.reserved(), cpus),
            false => *cpus,
        }
    }

    /// CPUs that no other container can have because of this one: its own, and siblings that stay
    /// idle for it.
    pub(super) fn taken(&self, entry: &ContainerEntry) -> CpuSet {
        self.with_idle(&entry.claim.unwrap_or_default(), entry.isolated)
    }

    /// All CPUs that are exclusive to a container, those that are lent out too.
    pub(super) fn exclusive(&self, books: &Books) -> CpuSet {
        books.isolated().fold(books.held().all, |all, entry| all | self.taken(entry))
    }

    /// CPUs that could become exclusive now. Should all reserved ones be offline, another one takes
    /// their place.
    pub(super) fn free(&self, books: &Books) -> CpuSet {
        let (free, reserved) = (self.unclaimed(books), self.reserved());
        let gone = reserved.is_disjoint(&self.topology.online()) && !reserved.is_empty();
        if gone { free - free.lowest(1) } else { free }
    }

    /// CPUs that a container may keep which has them already, and that no other one has.
    pub(super) fn unclaimed(&self, books: &Books) -> CpuSet {
        self.topology.online() - self.reserved() - self.exclusive(books) - self.remembered(books)
    }

    /// CPUs of an earlier life whose containers no event has named yet. No other container gets
    /// them: some runtimes never tell a plugin that they launched what runs already.
    pub(super) fn remembered(&self, books: &Books) -> CpuSet {
        let remembered = books.remembered().iter();
        remembered.map(|claim| self.with_idle(&claim.cpus, claim.isolated)).collect()
    }

    /// Where shared containers may run, as the books are.
    pub(super) fn pool(&self, books: &Books) -> Pool {
        let reserved = self.reserved();
        let mut shareable = self.topology.online();
        if self.settings.placement.options.strict_cpu_reservation {
            shareable -= reserved;
        }
        let mut cpus = shareable - (self.remembered(books) - reserved);
        let by_groups = self.settings.exclusivity == Exclusivity::Groups;
        let mut open = if by_groups { shareable } else { cpus } - books.held().by_runtime;
        cpus -= books.held().used;
        for entry in books.isolated().filter(|entry| !entry.is_lent()) {
            // The kernel keeps others off the CPUs that the container runs on, and off no others.
            let idle = self.taken(entry) - entry.claim.unwrap_or_default();
            cpus -= idle;
            if !by_groups {
                open -= idle;
            }
        }
        let open = if open.is_empty() { reserved & self.topology.online() } else { open };
        Pool { cpus, open }
    }

    /// What decides where shared containers run.
    pub(super) fn basis(&self, pool: &Pool) -> Basis {
        Basis {
            open: pool.open,
            online: self.topology.online(),
            policy: self.settings.policy,
            mems_follow_cpus: self.settings.mems_follow_cpus,
        }
    }
}
