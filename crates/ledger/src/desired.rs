//! What each container should have, and the updates that bring it there: the difference from what
//! was applied. Nothing counts as applied before it has gone out.

use super::books::{Books, Certainty, ContainerEntry, ContainerRef, PodEntry};
use super::event::{Channel, Due};
use super::node::{Node, Pool};
use super::order::{CpuChange, OrderedUpdates, in_order};
use super::policy::{Mechanism, Policy};
use super::setting::{CpuSetting, Reach, Update};
use cpuset::{CpuSet, NodeSet};
use placement::memory::{all_memory, memory_of};

/// What a container should have; `None` if it stays as it is.
///
/// Under policy none a container that may run everywhere stays as it is. The kernel makes no
/// partition of CPUs that a sibling group names, and ends a partition when a sibling names its
/// CPUs. So the updates of a pod's other containers leave out the CPUs of its partitions, though
/// they could not run there anyway.
pub(super) fn desired(
    node: &Node,
    pool: &Pool,
    pod: &PodEntry,
    entry: &ContainerEntry,
) -> Option<CpuSetting> {
    let setting = match entry.claim() {
        Some(claim) if !entry.is_mixed() => CpuSetting::exclusive(claim)?,
        Some(claim) => {
            let shared = cpus_of_shared(node, pool, pod, entry) - claim;
            CpuSetting::of(Reach { exclusive: claim, shared })?
        }
        None => {
            let limit = entry.cpu.limit.filter(|_| entry.applied.lacks_quota());
            let cpus = cpus_of_shared(node, pool, pod, entry);
            let everywhere = node.settings.policy == Policy::None && cpus == node.topology.online();
            if everywhere && !entry.applied.is_set() {
                return None;
            }
            CpuSetting::shared(cpus)?.with_limit(limit)
        }
    };
    Some(setting.with_mems(mems(node, entry)))
}

/// The CPUs of the shared pool that the runtime sets for a container.
///
/// Where cgroups keep it in the pool, that does not depend on the pool: beside exclusive containers
/// of its own pod it gets all other CPUs that there are, and elsewhere it keeps what it has. So what
/// a runtime sets again with an in-place resize, or systemd at a daemon-reload,
/// stays right. Where these cgroups are not relied on, a new container begins in the pool, and its
/// own cgroup follows that.
fn cpus_of_shared(node: &Node, pool: &Pool, pod: &PodEntry, entry: &ContainerEntry) -> CpuSet {
    let is_updated = node.is_updated(&pod.pod.uid);
    let is_distrusted = node.is_distrusted(pod);
    let apart = if pod.has_exclusive() { pod.kept_from_siblings() } else { CpuSet::EMPTY };
    // What a mixed container has besides its own CPUs follows the pool.
    if !is_updated
        && !entry.applied.is_exclusive()
        && let Some(kept) = entry.applied.certain_cpus()
        && entry.claim().is_none()
        && (!pod.has_exclusive() || (is_distrusted && kept.is_disjoint(&apart)))
    {
        return kept;
    }
    let cpus = if is_updated || is_distrusted { pool.bound_of(pod) } else { pool.possible };
    let beside = cpus - apart;
    if beside.is_empty() { cpus } else { beside }
}

/// Whether nothing is set for a container, and cgroups keep it in the pool all the same.
fn is_bound_as_it_is(node: &Node, pod: &PodEntry, entry: &ContainerEntry) -> bool {
    !entry.applied.is_set()
        && entry.claim().is_none()
        && !pod.has_exclusive()
        && !node.is_updated(&pod.pod.uid)
}

/// `cpuset.mems` of a container: the NUMA nodes of its exclusive CPUs, if the settings say so;
/// `None` leaves it as it is.
///
/// A container that was bound and is no longer, because it shares CPUs now or because the settings
/// have changed, may use all memory. Memory nodes that something else has set (the kubelet's memory
/// manager, under its policy `Static`) stay for the container's life.
fn mems(node: &Node, entry: &ContainerEntry) -> Option<NodeSet> {
    if entry.applied.keeps_mems() {
        return None;
    }
    let claim = if node.settings.mems_follow_cpus { entry.claim() } else { None };
    match claim {
        Some(claim) => memory_of(&node.topology, &claim, node.settings.memory_only_nodes),
        None => entry.applied.has_mems().then(|| all_memory(&node.topology)).flatten(),
    }
}

/// Whether the ledger has probably set the memory nodes of a container that is found running: they
/// are those of its CPUs.
pub(super) fn mems_are_ours(node: &Node, exclusive: Option<CpuSet>, mems: Option<NodeSet>) -> bool {
    let follow = || memory_of(&node.topology, &exclusive?, node.settings.memory_only_nodes);
    node.settings.mems_follow_cpus && mems.is_some() && mems == follow()
}

/// The updates that are due on this channel, each once, in the order in which they must be made.
///
/// Writes into cgroups are what no answer can carry. A container that does not run yet may have no
/// cgroup; but it is as much in the way of others as one that runs.
pub(super) fn due(node: &Node, books: &Books, pool: &Pool, channel: &Channel) -> Due {
    let OrderedUpdates { updates, waiting } =
        if node.assigns() { steps(node, books, pool, channel) } else { OrderedUpdates::default() };
    Due { updates, waiting, written: *channel == Channel::Groups, complete: true }
}

/// Whether updates are due, or containers wait for some.
pub(super) fn owes(node: &Node, books: &Books, pool: &Pool) -> bool {
    node.assigns()
        && books.containers().any(|found| {
            found.entry.waits() || change(node, pool, found, &Channel::Runtime).is_some()
        })
}

/// Records what has gone out.
pub(super) fn record(books: &mut Books, due: &Due) {
    if due.complete {
        // What the others waited for is no longer theirs.
        for (_, pod) in books.pods_mut() {
            pod.containers_mut().for_each(|(_, entry)| entry.wait(false));
        }
    }
    for Update { container, setting } in &due.updates {
        books.change_found(container, |entry| {
            if due.written {
                entry.applied.record_written(setting);
            } else {
                entry.update(setting);
            }
            entry.wait(false);
        });
    }
    for id in &due.waiting {
        books.change_found(id, |entry| entry.wait(true));
    }
}

/// What is due for a container on a channel. One that is being created cannot be updated before its
/// answer is there, which has all that it needs.
fn change<'a>(
    node: &Node,
    pool: &Pool,
    ContainerRef { pod, entry, .. }: ContainerRef<'a>,
    channel: &Channel,
) -> Option<CpuChange<'a>> {
    if !entry.is_updatable() {
        return None;
    }
    let to = desired(node, pool, pod, entry)?;
    let differs = match channel {
        Channel::Groups => entry.applied.differs_in_cpus(&to, Certainty::Written),
        Channel::Runtime | Channel::Update(_) => entry.applied.differs(&to),
    };
    let unset = to.mems().is_none() && to.limit().is_none();
    if differs && !(unset && is_bound_as_it_is(node, pod, entry)) {
        Some(CpuChange { entry, to })
    } else {
        None
    }
}

fn steps(node: &Node, books: &Books, pool: &Pool, channel: &Channel) -> OrderedUpdates {
    let changes = books.containers().filter_map(|found| change(node, pool, found, channel));
    let changes: Vec<CpuChange<'_>> = changes.collect();
    let leave = changes.iter().any(|change| change.leaves().is_some());
    let exclusive = changes.iter().filter(|change| change.to.is_exclusive()).count();
    // In most cases the shared containers leave the CPUs of a new container, and nothing else
    // moves.
    let is_update = matches!(channel, Channel::Update(_));
    if leave || exclusive > 1 || (exclusive > 0 && is_update) {
        let bound = node.mechanism != Mechanism::Runtime && node.unbound.is_empty();
        let last = match channel {
            Channel::Update(id) => Some(id),
            Channel::Runtime | Channel::Groups => None,
        };
        return in_order(changes, last, bound);
    }
    let mut updates: Vec<Update> = changes.iter().map(CpuChange::update).collect();
    updates.sort_by_key(|update| update.setting.is_exclusive());
    OrderedUpdates { updates, waiting: Vec::new() }
}
