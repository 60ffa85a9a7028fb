//! [`Node`]: the machine, the settings, and the arithmetic of its CPUs.

use super::books::{Books, ContainerEntry, PodEntry};
use super::model::{PodUid, PoolKind};
use super::policy::{Mechanism, Policy, Stance};
use super::setting::Reach;
use super::settings::Settings;
use core::time::Duration;
use cpuset::{CgroupPath, CpuSet, NodeSet};
use placement::pod_options::Margin;
use std::collections::BTreeSet;
use std::ops::BitOr;
use std::sync::Arc;
use topology::Topology;

/// Everything except the books that a decision depends on.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) topology: Arc<Topology>,
    pub(super) settings: Arc<Settings>,
    pub(super) stance: Stance,
    pub(super) mechanism: Mechanism,
    /// See [`Event::Unbound`](super::Event::Unbound).
    pub(super) unbound: BTreeSet<PodUid>,
    /// See [`Event::Distrusted`](super::Event::Distrusted).
    pub(super) distrusted: BTreeSet<CgroupPath>,
    /// See [`Event::Time`](super::Event::Time).
    pub(super) now: Duration,
}

/// Where containers that share CPUs may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pool {
    /// Online CPUs that are exclusive to no container and in no own pool, without the isolated
    /// ones, and without the reserved ones under strict reservation. CPUs of an ended container are
    /// in it while they are lent, see [`ContainerEntry::is_lent`].
    pub(super) cpus: CpuSet,
    /// The CPUs that it lacks because containers or own pools have them.
    pub(super) exclusive: CpuSet,
    /// Where cgroups, or the runtime's updates, keep these containers: in the pool.
    ///
    /// With strict reservation, or if all other CPUs are isolated, the pool can be empty. A
    /// container without a cpuset would then run on the exclusive CPUs of others, as under the
    /// kubelet (kubernetes/kubernetes#141196). So these are the reserved CPUs then, or if they are
    /// offline the isolated ones that no container has. If there are none either, the set is empty,
    /// and shared containers keep their CPUs.
    pub(super) bound: Arc<Reach>,
    /// Where those of [`PoolKind::Reserved`] are kept: on reserved CPUs, or if all are offline on
    /// `bound`.
    pub(super) reserved: Arc<Reach>,
    /// All CPUs that the machine has, online or not. Containers that cgroups keep in the pool have
    /// these in their own cpusets.
    pub(super) possible: Arc<Reach>,
}

impl Pool {
    /// Where the containers of a pod that share CPUs are kept. An own pool can be empty after its
    /// CPUs went offline: then they are kept where those of other pods are.
    pub(super) fn bound_of(&self, pod: &PodEntry) -> Arc<Reach> {
        let own_pool = pod.own_pool();
        if !own_pool.is_empty() {
            return Reach::shared(own_pool).into();
        }
        let (bound, reserved) = (&self.bound, &self.reserved);
        match pod.pool {
            PoolKind::General if reserved.shared.is_subset(&bound.shared) => Arc::clone(bound),
            // Under strict reservation no other container of the pool is there.
            PoolKind::General => {
                Reach::shared(bound.shared | (pod.left_alone_on() & reserved.shared)).into()
            }
            PoolKind::Reserved => Arc::clone(reserved),
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

    /// CPUs that the kernel was booted to isolate (`isolcpus=`): it does not balance threads
    /// between them, so none is ever shared. Without a policy containers stay as the runtime makes
    /// them.
    pub(super) fn isolated(&self) -> CpuSet {
        if self.is_static() { self.topology.isolated() } else { CpuSet::EMPTY }
    }

    pub(super) fn with_idle(&self, cpus: &CpuSet, margin: Margin) -> CpuSet {
        margin.footprint(&self.topology, &self.reserved(), cpus)
    }

    /// The exclusive CPUs of a container, and those that stay idle for it.
    pub(super) fn taken(&self, entry: &ContainerEntry) -> CpuSet {
        self.with_idle(&entry.held(), entry.margin())
    }

    /// All CPUs that are exclusive to a container, including idle and lent ones, or in the own pool
    /// of a pod.
    pub(super) fn exclusive(&self, books: &Books) -> CpuSet {
        let of_containers = books.holders().map(|entry| self.taken(entry));
        of_containers.chain(books.pods().map(|(_, pod)| pod.own_pool())).collect()
    }

    /// CPUs that could become exclusive now; the isolated ones among them may need a pod option.
    pub(super) fn free(&self, books: &Books) -> CpuSet {
        let free = self.unclaimed(books);
        match self.min_shared() {
            0 => free,
            shared => free - (free - self.isolated()).lowest(shared),
        }
    }

    /// The free CPUs that a container without a pod option could get.
    pub(super) fn free_without_pod_option(&self, books: &Books) -> CpuSet {
        self.settings.placement.isolated.allowed(&self.topology, &self.free(books))
    }

    /// How many unclaimed CPUs have to stay shared: one, if all reserved CPUs are offline.
    pub(super) fn min_shared(&self) -> usize {
        let reserved = self.reserved();
        usize::from(reserved.is_disjoint(&self.topology.online()) && !reserved.is_empty())
    }

    /// CPUs that other programs have set for containers that are left alone, and that are no shared ones of these
    /// programs: shared CPUs include the reserved ones.
    fn pinned_by_others(&self, books: &Books) -> CpuSet {
        let sets = books.pods().map(|(_, pod)| pod.left_alone_on());
        sets.filter(|cpus| cpus.is_disjoint(&self.reserved())).collect()
    }

    /// CPUs that no container and no own pool has. A running container may keep any of these, even
    /// one that is not [free](Node::free).
    pub(super) fn unclaimed(&self, books: &Books) -> CpuSet {
        let taken = self.exclusive(books) | self.remembered(books) | self.pinned_by_others(books);
        self.topology.online() - self.reserved() - taken
    }

    /// The CPUs of claims whose containers no event has named yet. They stay reserved for these:
    /// some runtimes never list running containers to a plugin that they launched.
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
        for (_, pod) in books.pods() {
            cpus -= pod.own_pool();
        }
        let with_isolated = cpus;
        let isolated = self.isolated();
        cpus -= isolated;
        let reserved = reserved & online;
        let first_nonempty = |sets: &[CpuSet]| {
            sets.iter().copied().find(|cpus| !cpus.is_empty()).unwrap_or_default()
        };
        let bound = first_nonempty(&[cpus, reserved - isolated, reserved, with_isolated]);
        let reserved = first_nonempty(&[reserved - isolated, reserved, bound]);
        let exclusive = online - self.reserved() - with_isolated;
        let [bound, reserved, possible] =
            [bound, reserved, self.possible()].map(|cpus| Reach::shared(cpus).into());
        Pool { cpus, exclusive, bound, reserved, possible }
    }

    /// Whether the runtime has to update a pod's shared containers when the pool changes.
    pub(super) fn is_updated(&self, pod: &PodUid) -> bool {
        self.mechanism == Mechanism::Runtime || self.unbound.contains(pod)
    }

    /// Whether the own cgroups of a pod's containers have to keep them in the pool.
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

/// The NUMA nodes of these CPUs.
pub(super) fn numa_nodes(machine: &Topology, cpus: &CpuSet) -> NodeSet {
    let touched = machine.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus));
    touched.map(|node| node.id).collect()
}
