//! The target setting of each container, and the updates that are due: where it differs from the
//! applied one. Nothing counts as applied before it was sent.

use super::books::{Books, Certainty, ContainerEntry, ContainerRef, PodEntry};
use super::event::{Channel, Due};
use super::node::{Node, Pool};
use super::order::{CpuChange, OrderedUpdates, in_order};
use super::policy::{Mechanism, Policy};
use super::setting::{CpuSetting, Reach, Update};
use cpuset::{CpuSet, NodeSet};
use placement::memory::{all_memory, memory_of};
use placement::memory_manager::NodeMemoryClaim;

/// The target setting of a container; `None` if it stays as it is, as under policy none, or if it is
/// left alone.
///
/// The kernel makes no partition of CPUs that a sibling cgroup names, and ends a partition when a
/// sibling names its CPUs. So the settings of a pod's other containers leave out the CPUs of its
/// partitions, though they could not run there anyway.
pub(super) fn target_setting(
    node: &Node,
    pool: &Pool,
    pod: &PodEntry,
    entry: &ContainerEntry,
) -> Option<CpuSetting> {
    if entry.left_alone.is_some() {
        return None;
    }
    let setting = match entry.claim() {
        Some(claim) if !entry.is_mixed() => CpuSetting::exclusive(claim)?,
        Some(claim) => {
            let shared = cpus_of_shared(node, pool, pod, entry) - claim;
            CpuSetting::of(Reach { exclusive: claim, shared })?
        }
        None => {
            let limit = if entry.applied.has_lifted_quota() { entry.cpu.limit } else { None };
            let cpus = cpus_of_shared(node, pool, pod, entry);
            let everywhere = node.settings.policy == Policy::None && cpus == node.topology.online();
            let has_mems = entry.memory.is_some() && mems(node, entry).is_some();
            if everywhere && !entry.applied.is_set() && !has_mems {
                return None;
            }
            CpuSetting::shared(cpus)?.with_limit(limit)
        }
    };
    Some(setting.with_mems(mems(node, entry)))
}

/// The shared CPUs that the runtime sets for a container.
///
/// If cgroups above the container keep it in the pool, its own CPUs do not depend on the pool: they
/// stay as they are, or in a pod with exclusive containers they are all possible CPUs except the
/// exclusive ones. So CPUs that the runtime sets again with an in-place resize, or systemd at a
/// daemon-reload, stay right. If these cgroups are distrusted, a new container starts in the pool,
/// and its own cgroup follows the pool.
fn cpus_of_shared(node: &Node, pool: &Pool, pod: &PodEntry, entry: &ContainerEntry) -> CpuSet {
    let is_updated = node.is_updated(&pod.pod.uid);
    let is_distrusted = node.is_distrusted(pod);
    let excluded = if pod.has_exclusive() { pod.kept_from_siblings() } else { CpuSet::EMPTY };
    // Not for a mixed container: its shared CPUs follow the pool.
    if !is_updated
        && !entry.applied.is_exclusive()
        && let Some(kept) = entry.applied.certain_cpus()
        && entry.claim().is_none()
        && (!pod.has_exclusive() || (is_distrusted && kept.is_disjoint(&excluded)))
    {
        return kept;
    }
    let cpus = if is_updated || is_distrusted { pool.bound_of(pod) } else { pool.possible };
    let rest = cpus - excluded;
    // An empty set would mean "no change" to the runtime.
    if rest.is_empty() { cpus } else { rest }
}

/// Whether a container has no setting and needs none, as cgroups above it keep it in the pool.
fn is_bound_without_cpuset(node: &Node, pod: &PodEntry, entry: &ContainerEntry) -> bool {
    !entry.applied.is_set()
        && entry.claim().is_none()
        && !pod.has_exclusive()
        && !node.is_updated(&pod.pod.uid)
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
    if let (Some(memory), Some(capacity)) = (&entry.memory, &node.settings.memory) {
        // A container that has never been bound can use all nodes anyway.
        let is_unbound = memory.nodes == capacity.all() && entry.applied.mems().is_none();
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
    node.assigns()
        && books.containers().any(|container| {
            container.entry.waits() || change(node, pool, container, &Channel::Runtime).is_some()
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
    for Update { container, setting } in &due.updates {
        books.change_by_id(container, |entry| {
            if due.written {
                entry.applied.record_written(setting);
            } else {
                entry.record_update(setting);
            }
            entry.set_waiting(false);
        });
    }
    for id in &due.waiting {
        books.change_by_id(id, |entry| entry.set_waiting(true));
    }
}

/// The change that is due for a container on a channel. A container that is being created cannot be
/// updated; the answer to its creation has its setting.
fn change<'a>(
    node: &Node,
    pool: &Pool,
    ContainerRef { pod, entry, .. }: ContainerRef<'a>,
    channel: &Channel,
) -> Option<CpuChange<'a>> {
    if !entry.is_updatable() {
        return None;
    }
    let to = target_setting(node, pool, pod, entry)?;
    let differs = match channel {
        Channel::Groups => entry.applied.differs_in_cpus(&to, Certainty::Written),
        Channel::Runtime | Channel::Update(_) => entry.applied.differs(&to),
    };
    let unset = to.mems().is_none() && to.limit().is_none();
    if differs && !(unset && is_bound_without_cpuset(node, pod, entry)) {
        Some(CpuChange { entry, to })
    } else {
        None
    }
}

fn steps(node: &Node, books: &Books, pool: &Pool, channel: &Channel) -> OrderedUpdates {
    let changes = books.containers().filter_map(|container| change(node, pool, container, channel));
    let changes: Vec<CpuChange<'_>> = changes.collect();
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
