//! What each container should have, and what has to be said to bring it there: the difference from
//! what was applied.

use super::adjustment::{Adjustment, Update};
use super::books::{Books, Certainty, ContainerEntry, ContainerRef, PodEntry};
use super::model::{Container, ContainerId};
use super::node::{Node, Pool};
use super::order::{Change, Steps, in_order};
use super::policy::{Exclusivity, Policy};
use crate::nodeset::NodeSet;
use crate::placement::memory::{all_memory, memory_of};

/// What a container should have; `None` if it is left as it is.
///
/// Under policy none that is one that may run everywhere. The kernel makes no partition of CPUs
/// that a group beside it names, and unmakes one when they are written there: so the other
/// containers of a pod do without the CPUs that the kernel keeps for one of them, though they could
/// not run there anyway.
pub(super) fn desired(
    node: &Node,
    pool: &Pool,
    pod: &PodEntry,
    entry: &ContainerEntry,
) -> Option<Adjustment> {
    let adjustment = match entry.claim {
        Some(claim) => Adjustment::exclusive(claim)?,
        None => {
            let mut cpus = pool.open;
            if pod.has_exclusive() {
                let beside = cpus - pod.partitioned();
                cpus = if beside.is_empty() { cpus } else { beside };
            }
            let everywhere = node.settings.policy == Policy::None && cpus == node.topology.online();
            if everywhere && !entry.applied.is_set() {
                return None;
            }
            let limit = entry.cpu.limit.filter(|_| entry.applied.lacks_quota());
            Adjustment::shared(cpus)?.with_limit(limit)
        }
    };
    Some(adjustment.with_mems(mems(node, entry)))
}

/// `cpuset.mems` of a container: with exclusive CPUs the NUMA nodes of these, where the
/// administrator wants it; `None` leaves it as it is.
///
/// One whose memory follows no CPUs, as it shares them or because that is no longer wanted, may use
/// all memory once it was bound. Memory nodes that were set elsewhere (the kubelet's memory manager
/// does, under its policy `Static`) are left alone for the container's life.
fn mems(node: &Node, entry: &ContainerEntry) -> Option<NodeSet> {
    if entry.applied.keeps_mems() {
        return None;
    }
    match entry.claim.filter(|_| node.settings.mems_follow_cpus) {
        Some(claim) => memory_of(&node.topology, &claim),
        None => entry.applied.has_mems().then(|| all_memory(&node.topology)).flatten(),
    }
}

/// Whether the memory nodes of a container that is found running were set here, as far as can be
/// told: they are those of its CPUs.
pub(super) fn mems_are_ours(node: &Node, container: &Container) -> bool {
    let follow = || memory_of(&node.topology, &container.cpus?);
    node.settings.mems_follow_cpus && container.mems.is_some() && container.mems == follow()
}

/// Everything that containers which exist have to be told now, each thing once, in the order in
/// which it must be done. The runtime changes `last` after all others, wherever it stands.
pub(super) fn updates(
    node: &Node,
    books: &mut Books,
    pool: &Pool,
    last: Option<&ContainerId>,
) -> Vec<Update> {
    let basis = node.basis(pool);
    if !node.assigns() || !books.owes(&basis) {
        return Vec::new();
    }
    books.tell(basis);
    let due = |entry: &ContainerEntry, to: &Adjustment| entry.applied.differs(to);
    let steps = steps(node, books, pool, due, last);
    carry(books, steps, |entry, to| {
        entry.applied.record(to);
        entry.updated_early = entry.phase == super::Phase::Created;
    })
}

/// What has to be written into the groups of containers, where no answer can carry it, in the order
/// in which it must be done. It stays to be told with the next answer. One that does not run yet
/// may have no group; but it is as much in the way of others as one that does.
pub(super) fn writes(node: &Node, books: &mut Books, pool: &Pool) -> Vec<Update> {
    if !node.assigns() || !books.owes(&node.basis(pool)) {
        return Vec::new();
    }
    let due = |entry: &ContainerEntry, to: &Adjustment| {
        // What a partition is the kernel's way sees to.
        let partition = to.is_exclusive() && entry.enforced_by == Exclusivity::Kernel;
        !partition && !entry.applied.is_on(&to.cpus(), Certainty::Written)
    };
    let steps = steps(node, books, pool, due, None);
    carry(books, steps, |entry, to| entry.applied.record_written(to))
}

/// The steps to where containers should run, of those that have to be told.
fn steps(
    node: &Node,
    books: &Books,
    pool: &Pool,
    due: impl Fn(&ContainerEntry, &Adjustment) -> bool + Copy,
    last: Option<&ContainerId>,
) -> Steps {
    let changes = || {
        let alive = books.containers().filter(|found| found.entry.is_alive());
        alive.filter_map(move |ContainerRef { pod, entry, .. }| {
            let to = desired(node, pool, pod, entry).filter(|to| due(entry, to))?;
            Some(Change { entry, to })
        })
    };
    let mut updates = Vec::new();
    let (mut leave, mut exclusive) = (false, 0);
    // With `for`, each change would be copied from iterator to iterator.
    changes().for_each(|change| {
        leave |= change.leaves().is_some();
        exclusive += usize::from(change.to.is_exclusive());
        updates.push(change.update());
    });
    // Mostly a new container's CPUs are taken from those that share: these leave, and nothing is in
    // the way.
    if leave || exclusive > 1 {
        return in_order(changes().collect(), last);
    }
    if exclusive > 0 {
        updates.sort_by_key(|update| update.adjustment.is_exclusive());
    }
    Steps { updates, waiting: Vec::new() }
}

/// Takes note of what is told or written now, and what waits.
fn carry(
    books: &mut Books,
    steps: Steps,
    record: impl Fn(&mut ContainerEntry, &Adjustment),
) -> Vec<Update> {
    let Steps { updates, waiting } = steps;
    for Update { container, adjustment } in &updates {
        books.change_found(container, |entry| {
            record(entry, adjustment);
            entry.waits = !waiting.is_empty() && waiting.contains(container);
        });
    }
    updates
}
