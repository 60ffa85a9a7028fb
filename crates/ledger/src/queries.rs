//! Queries of the ledger; none of them changes it.

use super::Ledger;
use super::books::{ContainerRef, containers_of};
use super::claim::{Claim, MemoryClaim};
use super::due::{self, Targets};
use super::model::{ContainerId, LeftAlone, Pod, PodUid};
use super::moves::MoveTotals;
use super::policy::{Mechanism, Stance};
use super::quieting;
use super::rebalance;
use super::setting::Reach;
use super::settings::{RebalanceMode, Settings};
use super::target::{self, Deserted, Holder, PodPlace, Target};
use super::view::View;
use core::time::Duration;
use cpuset::CpuSet;
use quiet::Goal;
use std::sync::Arc;
use topology::Topology;

impl Ledger {
    pub fn topology(&self) -> &Topology {
        &self.node.topology
    }

    pub fn settings(&self) -> &Settings {
        &self.node.settings
    }

    /// Whether a pod waits for CPUs after several refusals for lack of them.
    pub fn lacks_cpus(&self) -> bool {
        self.books.pods().any(|(_, pod)| pod.lacks_cpus)
    }

    /// Whether the container stays on CPUs that another program has set for it.
    pub fn is_left_alone(&self, id: &ContainerId) -> bool {
        self.books.find(id).is_some_and(|container| container.entry.left_alone.is_some())
    }

    /// All containers of which [`Ledger::is_left_alone`] is true, and those of
    /// [`Ledger::with_left_alone`] that no event has named yet.
    pub fn left_alone(&self) -> impl Iterator<Item = (&ContainerId, LeftAlone)> {
        self.books.left_alone()
    }

    pub fn stance(&self) -> Stance {
        self.node.stance
    }

    /// Whether no process has assigned CPUs on this node yet.
    pub fn is_installing(&self) -> bool {
        self.books.journal.installing
    }

    /// First the claims of containers and own pools, in order of pod uid and container name, then
    /// those of the state file whose containers no event has named yet.
    pub fn claims(&self) -> impl Iterator<Item = Claim> {
        self.books.claims()
    }

    /// Counted memory, in the same order.
    pub fn memory_claims(&self) -> impl Iterator<Item = MemoryClaim> {
        self.books.memory_claims()
    }

    /// Whether [`Ledger::memory_claims`] has one of this container; looks it up.
    pub fn has_memory_claim(&self, pod: &PodUid, container: &str) -> bool {
        self.books.has_memory_claim(pod, container)
    }

    /// The shared pool: online CPUs that are exclusive to no container, without the isolated ones,
    /// and without the reserved ones under strict reservation.
    pub fn pool(&self) -> CpuSet {
        self.pool.cpus
    }

    /// Where cgroups, or the runtime's updates, keep shared containers: the pool, or the reserved
    /// CPUs if the pool is empty.
    pub fn bound(&self) -> CpuSet {
        self.pool.bound.shared
    }

    /// All CPUs that the machine has, online or not.
    pub fn possible(&self) -> CpuSet {
        self.pool.possible.shared
    }

    pub fn mechanism(&self) -> Mechanism {
        self.node.mechanism
    }

    /// All CPUs that are exclusive to a container, including idle and lent ones, or in the own pool
    /// of a pod.
    pub fn exclusive(&self) -> CpuSet {
        self.node.exclusive(&self.books)
    }

    /// Exclusive CPUs of running containers whose cgroups are partitions.
    pub fn held_by_kernel(&self) -> CpuSet {
        self.books.held_by_kernel()
    }

    /// CPUs that could become exclusive now; the isolated ones among them may need a pod option.
    pub fn free(&self) -> CpuSet {
        self.node.free(&self.books)
    }

    /// Whether updates are due, or containers wait for some.
    pub fn owes(&self) -> bool {
        *self.owes.get_or_init(|| due::owes(&self.node, &self.books, &self.pool))
    }

    /// Whether containers wait for CPUs that others are about to leave.
    pub fn waits(&self) -> bool {
        self.books.containers().any(|container| container.entry.waits())
    }

    /// Whether cgroups or partitions keep the containers of all pods off others' exclusive CPUs, so
    /// that exclusivity needs no updates by the runtime.
    pub fn is_bound_by_cgroups(&self) -> bool {
        self.node.mechanism != Mechanism::Runtime && self.node.unbound.is_empty()
    }

    /// Whether plans are carried out; otherwise they are only suggested.
    pub fn moves_containers(&self) -> bool {
        let rebalance = self.settings().rebalance.as_ref();
        rebalance.is_some_and(|rebalance| rebalance.mode == RebalanceMode::Move)
    }

    /// When the next `minStay` ends, as [`Event::Time`](super::Event::Time) counts; `None` if no
    /// container has to stay for that.
    pub fn next_movable(&self) -> Option<Duration> {
        rebalance::next_movable(&self.node, &self.books)
    }

    /// When the next notice of a resize ends ([`Event::NoticeOver`](super::Event::NoticeOver)), as
    /// [`Event::Time`](super::Event::Time) counts; `None` if there is none.
    pub fn next_notice(&self) -> Option<Duration> {
        self.books.containers().filter_map(|container| Some(container.entry.notice()?.at)).min()
    }

    /// The exclusive CPUs that a resized container has after its notice, empty if it shares CPUs
    /// then; `None` if it has no notice.
    pub fn announced(&self, container: &ContainerId) -> Option<CpuSet> {
        Some(self.books.find(container)?.entry.notice()?.to)
    }

    pub fn move_totals(&self) -> &MoveTotals {
        &self.books.moves.totals
    }

    pub fn is_waiting(&self, container: &ContainerId) -> bool {
        self.books.find(container).is_some_and(|container| container.entry.waits())
    }

    /// In order of pod uid and container name.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.books.pods().flat_map(move |of| {
            let targets = Targets::of(&self.node, &self.pool, of.1);
            let target =
                move |container| target::target(&self.node, &self.pool, &targets, container);
            containers_of(of).filter_map(target)
        })
    }

    /// `None` if the container is unknown or has ended, or the ledger does not decide about it.
    pub fn target(&self, id: &ContainerId) -> Option<Target> {
        let container = self.books.find(id)?;
        let targets = Targets::of(&self.node, &self.pool, container.pod);
        target::target(&self.node, &self.pool, &targets, container)
    }

    /// The CPUs that this container has once no update is due; `None` without exclusive ones.
    pub fn reach(&self, id: &ContainerId) -> Option<Reach> {
        if !self.node.assigns() {
            return None;
        }
        target::reach(&self.node, &self.pool, self.books.find(id)?)
    }

    /// The exclusive CPUs of this container on which interrupts may stay; empty unless it has
    /// `interrupts: housekeeping`.
    pub fn housekeeping(&self, id: &ContainerId) -> CpuSet {
        match self.books.find(id) {
            Some(container) => quieting::housekeeping(&self.node, container),
            None => CpuSet::EMPTY,
        }
    }

    /// What interrupts and latency knobs have to be for containers with exclusive CPUs.
    pub fn quiet_goal(&self) -> Goal {
        quieting::goal(&self.node, &self.books)
    }

    /// Whether this container has exclusive CPUs that its predecessor did not have, or is the first
    /// one of a pod with an own pool: the state file must have them before the runtime does.
    pub fn is_newly_exclusive(&self, id: &ContainerId) -> bool {
        let is_new = |container: ContainerRef<'_>| {
            let ContainerRef { pod, entry, .. } = container;
            let is_first = || {
                pod.own_pool.is_some() && pod.containers().count() == 1 && !entry.was_restarted()
            };
            (entry.claim().is_some() || is_first()) && !entry.is_inheriting()
        };
        self.node.assigns() && self.books.find(id).is_some_and(is_new)
    }

    /// Whether the pod of this container has CPUs of its own, of which the container has a part.
    pub fn is_of_own_pool(&self, id: &ContainerId) -> bool {
        self.books.find(id).is_some_and(|container| container.pod.own_pool.is_some())
    }

    pub fn knows(&self, container: &ContainerId) -> bool {
        self.books.find(container).is_some()
    }

    pub fn has_pod(&self, pod: &PodUid) -> bool {
        self.books.pod(pod).is_some()
    }

    /// In order of pod uid.
    pub fn places(&self) -> impl Iterator<Item = PodPlace<'_>> {
        self.books.pods().map(|(uid, pod)| target::place(&self.pool, uid, pod))
    }

    /// Those whose pod's cgroup is known, in order of pod uid and container name.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.books.containers().filter_map(target::holder)
    }

    /// The exclusive CPUs of each container that has not ended.
    pub fn live_exclusive(&self) -> impl Iterator<Item = CpuSet> {
        self.books
            .containers()
            .filter(|container| container.entry.is_alive())
            .filter_map(|container| container.entry.claim())
    }

    /// Pods whose end the daemon has to detect, as the runtime may not report it.
    pub fn deserted(&self) -> impl Iterator<Item = Deserted> {
        self.books.deserted().map(|pod| Deserted {
            name: name_of(&pod.pod),
            sandbox: pod.pod.sandbox.clone(),
            group: pod.group(),
            removed: pod.is_empty(),
        })
    }

    /// What is, also with [`Stance::Observe`].
    pub fn actual_view(&self) -> Arc<View> {
        match &self.shadow {
            Some(_) => Arc::new(View::of(&self.node, &self.books, &self.pool)),
            None => self.view(),
        }
    }

    /// With [`Stance::Observe`], what it would be if the ledger assigned CPUs.
    pub fn view(&self) -> Arc<View> {
        let view = || match &self.shadow {
            Some(shadow) => shadow.view(&self.books),
            None => View::of(&self.node, &self.books, &self.pool),
        };
        Arc::clone(self.view.get_or_init(|| Arc::new(view())))
    }
}

/// Namespace and name, or the sandbox of a pod of which the runtime has reported nothing else.
fn name_of(pod: &Pod) -> String {
    if pod.name.is_empty() {
        format!("pod sandbox {}", wording::short_id(&pod.sandbox.0))
    } else {
        format!("{}/{}", pod.namespace, pod.name)
    }
}
