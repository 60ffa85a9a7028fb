//! The target setting of each container, and the updates that are due: where it differs from the
//! applied one. Nothing counts as applied before it was sent.

use super::books::{Books, Certainty, ContainerEntry, PodEntry};
use super::event::{Channel, Due};
use super::node::{Node, Pool};
use super::order::{CpuChange, OrderedUpdates, in_order};
use super::policy::{Mechanism, Policy};
use super::setting::{CpuSetting, Reach, Update};
use cpuset::{CpuSet, NodeSet};
use placement::memory::{all_memory, memory_of};
use placement::memory_manager::NodeMemoryClaim;
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How often a target setting was computed in this thread.
    pub(super) static COMPUTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The target settings of a pod's containers, and what they have in common.
#[derive(Debug, Clone)]
pub(super) struct Targets<'a> {
    node: &'a Node,
    pool: &'a Pool,
    pod: &'a PodEntry,
    /// Where its containers that share CPUs are kept.
    pub(super) bound: Arc<Reach>,
    has_exclusive: bool,
    /// See [`PodEntry::kept_from_siblings`].
    pub(super) kept_from_siblings: CpuSet,
    /// Whether the runtime has to update its shared containers when the pool changes.
    pub(super) is_updated: bool,
    is_distrusted: bool,
    /// See [`PodEntry::lifts_quota`].
    pub(super) lifts_quota: bool,
}

impl<'a> Targets<'a> {
    pub(super) fn of(node: &'a Node, pool: &'a Pool, pod: &'a PodEntry) -> Targets<'a> {
        let has_exclusive = pod.has_exclusive();
        // Most pods have no exclusive CPUs: these need only one look at their containers.
        let kept_from_siblings =
            if has_exclusive { pod.kept_from_siblings() } else { CpuSet::EMPTY };
        Targets {
            node,
            pool,
            pod,
            bound: pool.bound_of(pod),
            has_exclusive,
            kept_from_siblings,
            is_updated: node.is_updated(&pod.pod.uid),
            is_distrusted: node.is_distrusted(pod),
            lifts_quota: has_exclusive && pod.lifts_quota(),
        }
    }

    /// The target setting of a container; `None` if it stays as it is, as under policy none, or if it is
    /// left alone and on no exclusive CPU.
    ///
    /// The kernel makes no partition of CPUs that a sibling cgroup names, and ends a partition when a
    /// sibling names its CPUs. So the settings of a pod's other containers leave out the CPUs of its
    /// partitions, though they could not run there anyway.
    pub(super) fn setting(&self, entry: &ContainerEntry) -> Option<CpuSetting> {
        #[cfg(test)]
        COMPUTED.with(|computed| computed.set(computed.get() + 1));
        if entry.left_alone.is_some() {
            return self.off_exclusive(entry);
        }
        let node = self.node;
        let setting = match entry.claim() {
            Some(claim) if !entry.is_mixed() => CpuSetting::exclusive(claim)?,
            Some(claim) => {
                let shared = self.shared(entry).shared - claim;
                CpuSetting::of(Reach { exclusive: claim, shared })?
            }
            None => {
                let limit = if entry.applied.has_lifted_quota() { entry.cpu.limit } else { None };
                let reach = self.shared(entry);
                let everywhere =
                    node.settings.policy == Policy::None && reach.shared == node.topology.online();
                let has_mems = entry.memory.is_some() && mems(node, entry).is_some();
                if everywhere && !entry.applied.is_set() && !has_mems {
                    return None;
                }
                CpuSetting::of(reach)?.with_limit(limit)
            }
        };
        Some(setting.with_mems(mems(node, entry)))
    }

    /// Where a container that is left alone stays if other containers have got some of its CPUs, and cgroups
    /// above it do not keep it off these; `None` if it stays where it is.
    fn off_exclusive(&self, entry: &ContainerEntry) -> Option<CpuSetting> {
        let cpus = entry.applied.certain_cpus().filter(|_| self.is_updated)?;
        let exclusive = self.pool.exclusive - self.pod.own_pool();
        if cpus.is_disjoint(&exclusive) { None } else { CpuSetting::shared(cpus - exclusive) }
    }

    /// The shared CPUs that the runtime sets for a container.
    ///
    /// If cgroups above the container keep it in the pool, its own CPUs do not depend on the pool: they
    /// stay as they are, or in a pod with exclusive containers they are all possible CPUs except the
    /// exclusive ones. So CPUs that the runtime sets again with an in-place resize, or systemd at a
    /// daemon-reload, stay right. If these cgroups are distrusted, a new container starts in the pool,
    /// and its own cgroup follows the pool.
    fn shared(&self, entry: &ContainerEntry) -> Arc<Reach> {
        let excluded = &self.kept_from_siblings;
        // Not for a mixed container: its shared CPUs follow the pool.
        if !self.is_updated
            && let Some(kept) = entry.applied.certain_shared()
            && entry.claim().is_none()
            && (!self.has_exclusive || (self.is_distrusted && kept.shared.is_disjoint(excluded)))
        {
            return kept;
        }
        let is_bound = self.is_updated || self.is_distrusted;
        let all = if is_bound { &self.bound } else { &self.pool.possible };
        let rest = all.shared - *excluded;
        // An empty set would mean "no change" to the runtime.
        let keeps_all = excluded.is_empty() || rest.is_empty();
        if keeps_all { Arc::clone(all) } else { Reach::shared(rest).into() }
    }

    /// Whether a container has no setting and needs none, as cgroups above it keep it in the pool.
    fn is_bound_without_cpuset(&self, entry: &ContainerEntry) -> bool {
        !entry.applied.is_set()
            && entry.claim().is_none()
            && !self.has_exclusive
            && !self.is_updated
    }

    /// The target setting of a container, if it differs from the applied one.
    fn change(&self, entry: &ContainerEntry, channel: &Channel) -> Option<CpuSetting> {
        let to = self.setting(entry)?;
        let differs = match channel {
            Channel::Groups => entry.applied.differs_in_cpus(&to, Certainty::Written),
            Channel::Runtime | Channel::Update(_) => entry.applied.differs(&to),
        };
        let unset = to.mems().is_none() && to.limit().is_none();
        if differs && !(unset && self.is_bound_without_cpuset(entry)) { Some(to) } else { None }
    }
}

/// `cpuset.mems` of a container: the nodes of its counted memory, or with `mems_follow_cpus` those of
/// its exclusive CPUs; `None` leaves it as it is.
///
/// A container that was bound and shares CPUs now, or was bound under other settings, may use all
/// memory. Memory nodes that another program has set (the kubelet's memory manager, under its
/// policy `Static`) stay for the container's life.
fn mems(node: &Node, entry: &ContainerEntry) -> Option<NodeSet> {
    if entry.applied.has_foreign_mems() {
        return None;
    }
    if let (Some(memory), Some(_)) = (&entry.memory, &node.settings.memory) {
        // A container that has never been bound can use all nodes anyway.
        let is_all = all_memory(&node.topology).is_some_and(|all| all.is_subset(memory.nodes));
        let is_unbound = is_all && entry.applied.mems().is_none();
        return if is_unbound { None } else { Some(memory.nodes) };
    }
    let claim = if node.settings.mems_follow_cpus { entry.claim() } else { None };
    match claim {
        Some(claim) => memory_of(&node.topology, &claim, node.settings.memory_only_nodes),
        None if entry.applied.mems().is_some() => all_memory(&node.topology),
        None => None,
    }
}

/// Whether the ledger has probably set a container's memory nodes: its memory is recorded, or they
/// are those of its CPUs, or all: that is how a container is released. Nodes other than the recorded
/// ones are those of an earlier claim: the update to the recorded ones has failed.
pub(super) fn mems_are_ours(
    node: &Node,
    exclusive: Option<CpuSet>,
    recorded: Option<&NodeMemoryClaim>,
    mems: Option<NodeSet>,
) -> bool {
    let follow = || memory_of(&node.topology, &exclusive?, node.settings.memory_only_nodes);
    mems.is_some()
        && (recorded.is_some()
            || mems == all_memory(&node.topology)
            || (node.settings.mems_follow_cpus && mems == follow()))
}

/// The updates that are due on this channel, in the order in which they must be made.
pub(super) fn due(node: &Node, books: &Books, pool: &Pool, channel: &Channel) -> Due {
    let OrderedUpdates { updates, waiting } =
        if node.assigns() { steps(node, books, pool, channel) } else { OrderedUpdates::default() };
    Due { updates, waiting, written: *channel == Channel::Groups, complete: true }
}

pub(super) fn owes(node: &Node, books: &Books, pool: &Pool) -> bool {
    let mut pods = books.pods().map(|(_, pod)| pod);
    let waits = |pod: &PodEntry| pod.containers().any(|(_, entry)| entry.waits());
    node.assigns()
        && pods.any(|pod| {
            waits(pod) || changes_of(node, pod, pool, &Channel::Runtime).next().is_some()
        })
}

/// Records updates that were sent.
pub(super) fn record(books: &mut Books, due: &Due) {
    if due.complete {
        // A container that waited and is in neither list waits no longer: the CPUs that it waited
        // for may have become another container's.
        for (_, pod) in books.pods_mut() {
            pod.containers_mut().for_each(|(_, entry)| entry.set_waiting(false));
        }
    }
    let updates = due.updates.iter().map(|Update { container, setting }| (container, setting));
    books.change_each(updates, |entry, setting| {
        if due.written {
            entry.applied.record_written(setting);
        } else {
            entry.record_update(setting);
        }
        entry.set_waiting(false);
    });
    for id in &due.waiting {
        books.change_by_id(id, |entry| entry.set_waiting(true));
    }
}

/// The changes that are due on a channel. A container that is being created cannot be updated; the
/// answer to its creation has its setting.
///
/// Each event asks for these, and a node may have thousands of containers: most have the same target as
/// the one before them in their pod, which is computed once.
fn changes<'a>(
    node: &'a Node,
    books: &'a Books,
    pool: &'a Pool,
    channel: &'a Channel,
) -> impl Iterator<Item = CpuChange<'a>> {
    books.pods().flat_map(|(_, pod)| changes_of(node, pod, pool, channel))
}

fn changes_of<'a>(
    node: &'a Node,
    pod: &'a PodEntry,
    pool: &'a Pool,
    channel: &'a Channel,
) -> impl Iterator<Item = CpuChange<'a>> {
    let targets = Targets::of(node, pool, pod);
    let mut last: Option<(&ContainerEntry, Option<CpuSetting>)> = None;
    let updatable = pod.containers().filter(|(_, entry)| entry.is_updatable());
    updatable.filter_map(move |(_, entry)| {
        let to = match last.take() {
            Some((before, to)) if entry.shares_target_with(before) => to,
            _ => targets.change(entry, channel),
        };
        last = Some((entry, to.clone()));
        to.map(|to| CpuChange { entry, to })
    })
}

fn steps(node: &Node, books: &Books, pool: &Pool, channel: &Channel) -> OrderedUpdates {
    let changes: Vec<CpuChange<'_>> = changes(node, books, pool, channel).collect();
    let leave = changes.iter().any(|change| change.leaves().is_some());
    let exclusive = changes.iter().filter(|change| change.to.is_exclusive()).count();
    let is_update = matches!(channel, Channel::Update(_));
    if leave || exclusive > 1 || (exclusive > 0 && is_update) {
        let bound = node.mechanism != Mechanism::Runtime && node.unbound.is_empty();
        let last = match channel {
            Channel::Update(id) => Some(id),
            Channel::Runtime | Channel::Groups => None,
        };
        return in_order(changes, last, bound);
    }
    // The common case, without `in_order`: shared containers leave the CPUs of at most one
    // exclusive container, so their updates come first.
    let mut updates: Vec<Update> = changes.iter().map(CpuChange::update).collect();
    updates.sort_by_key(|update| update.setting.is_exclusive());
    OrderedUpdates { updates, waiting: Vec::new() }
}
