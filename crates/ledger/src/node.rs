//! [`Node`]: the machine, the settings, and the arithmetic of its CPUs.

use super::books::{Books, ContainerEntry, PodEntry};
use super::model::{PodUid, PoolKind};
use super::policy::Stance;
use super::policy::{Mechanism, Policy};
use super::settings::Settings;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet};
use placement::wishes::Margin;
use std::collections::BTreeSet;
use std::ops::BitOr;
use std::sync::Arc;
use topology::Topology;

/// Everything that a decision depends on beside the books.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) topology: Arc<Topology>,
    pub(super) settings: Arc<Settings>,
    pub(super) stance: Stance,
    pub(super) mechanism: Mechanism,
    /// Pods whose containers no cgroup can bind.
    pub(super) unbound: BTreeSet<PodUid>,
    /// Cgroups that are not relied on to keep what is in them in the pool: each container's own
    /// does.
    pub(super) distrusted: BTreeSet<CgroupPath>,
    /// As the last [`Event::Time`](super::Event::Time) said.
    pub(super) now: Duration,
}

/// Where containers that share CPUs may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pool {
    /// Online CPUs that are exclusive to no container, without the isolated ones, and without the
    /// reserved ones under strict reservation. CPUs of a container that has ended are in it while
    /// they are lent out, see [`ContainerEntry::is_lent`].
    pub(super) cpus: CpuSet,
    /// Where cgroups, or the runtime, keep these containers: the same, but never empty if that can be
    /// helped.
    ///
    /// With strict reservation, or where all other CPUs are isolated, the pool can be empty. A
    /// container without a cpuset would then run on the exclusive CPUs of others (so the kubelet,
    /// kubernetes/kubernetes#141196), so this is the reserved ones then, or if those are offline,
    /// isolated ones that nobody has. It is empty if there are none either: shared containers stay
    /// where they are.
    pub(super) bound: CpuSet,
    /// Where those of [`PoolKind::Reserved`] are kept: on the reserved CPUs that are online, or as all
    /// others where none is.
    pub(super) reserved: CpuSet,
    /// All CPUs that the machine has, online or not: what is set for containers that cgroups keep in
    /// the pool.
    pub(super) possible: CpuSet,
}

impl Pool {
    /// Where the containers of a pod are kept that share CPUs.
    pub(super) fn bound_of(&self, pod: &PodEntry) -> CpuSet {
        match pod.pool {
            PoolKind::General => self.bound,
            PoolKind::Reserved => self.reserved,
        }
    }
}

impl Node {
    pub(super) fn assigns(&self) -> bool {
        self.stance == Stance::Assign
    }

    pub(super) fn is_static(&self) -> bool {
        self.settings.policy == Policy::Static
    }

    pub(super) fn reserved(&self) -> CpuSet {
        self.settings.placement.reserved
    }

    /// CPUs that the kernel was booted to isolate (`isolcpus=`): it does not balance threads between
    /// them, so none is ever shared. Without a policy containers stay as the runtime makes them.
    pub(super) fn isolated(&self) -> CpuSet {
        if self.is_static() { self.topology.isolated() } else { CpuSet::EMPTY }
    }

    pub(super) fn with_idle(&self, cpus: &CpuSet, margin: Margin) -> CpuSet {
        margin.footprint(&self.topology, &self.reserved(), cpus)
    }

    /// CPUs that no other container can have because of this one: its own, and those that stay idle
    /// for it.
    pub(super) fn taken(&self, entry: &ContainerEntry) -> CpuSet {
        self.with_idle(&entry.held(), entry.margin())
    }

    /// All CPUs that are exclusive to a container, those that are lent out too.
    pub(super) fn exclusive(&self, books: &Books) -> CpuSet {
        books.holders().map(|entry| self.taken(entry)).collect()
    }

    /// CPUs that could become exclusive now, the isolated ones by a wish at least.
    pub(super) fn free(&self, books: &Books) -> CpuSet {
        let free = self.unclaimed(books);
        match self.kept_shared() {
            0 => free,
            kept => free - (free - self.isolated()).lowest(kept),
        }
    }

    /// Those of them that a container without a wish could get.
    pub(super) fn free_without_wish(&self, books: &Books) -> CpuSet {
        self.settings.placement.isolated.allowed(&self.topology, &self.free(books))
    }

    /// How many unclaimed CPUs stay shared: one, if all reserved ones are offline.
    pub(super) fn kept_shared(&self) -> usize {
        let reserved = self.reserved();
        usize::from(reserved.is_disjoint(&self.topology.online()) && !reserved.is_empty())
    }

    /// CPUs that no container has, and that one which runs on them already may keep.
    pub(super) fn unclaimed(&self, books: &Books) -> CpuSet {
        self.topology.online() - self.reserved() - self.exclusive(books) - self.remembered(books)
    }

    /// CPUs of the last process's claims whose containers no event has named yet. No other
    /// container gets them: some runtimes never list running containers to a plugin that they
    /// launched.
    pub(super) fn remembered(&self, books: &Books) -> CpuSet {
        let remembered = books.remembered().iter();
        remembered.map(|claim| self.with_idle(&claim.cpus, claim.margin)).collect()
    }

    pub(super) fn pool(&self, books: &Books) -> Pool {
        let (online, reserved) = (self.topology.online(), self.reserved());
        let mut cpus = online;
        if self.settings.placement.options.strict_cpu_reservation {
            cpus -= reserved;
        }
        if !books.remembered().is_empty() {
            cpus -= self.remembered(books) - reserved;
        }
        for entry in books.holders().filter(|entry| !entry.is_lent()) {
            cpus -= self.taken(entry);
        }
        let unclaimed = cpus;
        let isolated = self.isolated();
        cpus -= isolated;
        let reserved = reserved & online;
        let first = |places: &[CpuSet]| {
            places.iter().copied().find(|place| !place.is_empty()).unwrap_or_default()
        };
        let bound = first(&[cpus, reserved - isolated, reserved, unclaimed]);
        let reserved = first(&[reserved - isolated, reserved, bound]);
        Pool { cpus, bound, reserved, possible: self.possible() }
    }

    /// Whether the runtime has to keep a pod's shared containers in the pool, by an update of each
    /// whenever the pool changes.
    pub(super) fn is_updated(&self, pod: &PodUid) -> bool {
        self.mechanism == Mechanism::Runtime || self.unbound.contains(pod)
    }

    /// Whether a container of this pod is in the pool only if its own cgroup is.
    pub(super) fn is_distrusted(&self, pod: &PodEntry) -> bool {
        if self.distrusted.is_empty() {
            return false;
        }
        let Some(group) = pod.group() else { return false };
        self.distrusted.iter().any(|distrusted| group == *distrusted || group.is_below(distrusted))
    }

    fn possible(&self) -> CpuSet {
        let offline = self.topology.offline().iter();
        offline
            .filter_map(|cpu| CpuSet::of(cpu.id).ok())
            .fold(self.topology.online(), CpuSet::bitor)
    }
}
