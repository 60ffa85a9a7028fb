//! What each container should have, and the updates that bring it there: the difference from what
//! was applied.

use super::adjustment::{Adjustment, Update};
use super::books::{Books, Certainty, ContainerEntry, ContainerRef, PodEntry};
use super::model::{Container, ContainerId};
use super::node::{Node, Pool};
use super::order::{Change, Steps, in_order};
use super::policy::{Mechanism, Policy};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::placement::memory::{all_memory, memory_of};

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
) -> Option<Adjustment> {
    let adjustment = match entry.claim {
        Some(claim) => Adjustment::exclusive(claim)?,
        None => {
            let cpus = told(node, pool, pod, entry);
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

/// The CPUs that the runtime sets for a shared container.
///
/// Where cgroups keep it in the pool, that does not depend on the pool: beside exclusive containers
/// of its own pod it is told all other CPUs that there are, and elsewhere it keeps whatever it has
/// been told. So what a runtime sets again with an in-place resize, or systemd at a daemon-reload,
/// stays right.
fn told(node: &Node, pool: &Pool, pod: &PodEntry, entry: &ContainerEntry) -> CpuSet {
    let is_updated = node.is_updated(&pod.pod.uid);
    if !is_updated && !pod.has_exclusive() && !entry.applied.is_exclusive() {
        return entry.applied.certain_cpus().unwrap_or_else(|| node.possible());
    }
    let cpus = if is_updated { pool.bound } else { node.possible() };
    let beside = cpus - pod.partitioned();
    if beside.is_empty() { cpus } else { beside }
}

/// Whether nothing is set for a container, and cgroups keep it in the pool all the same.
fn is_bound_as_it_is(node: &Node, pod: &PodEntry, entry: &ContainerEntry) -> bool {
    !entry.applied.is_set()
        && entry.claim.is_none()
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
    match entry.claim.filter(|_| node.settings.mems_follow_cpus) {
        Some(claim) => memory_of(&node.topology, &claim),
        None => entry.applied.has_mems().then(|| all_memory(&node.topology)).flatten(),
    }
}

/// Whether the ledger has probably set the memory nodes of a container that is found running: they
/// are those of its CPUs.
pub(super) fn mems_are_ours(node: &Node, container: &Container) -> bool {
    let follow = || memory_of(&node.topology, &container.cpus?);
    node.settings.mems_follow_cpus && container.mems.is_some() && container.mems == follow()
}

/// All updates that are due, each once, in the order in which the runtime must make them. The
/// runtime changes `last` after all others, wherever it stands.
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
    books.set_delivered(basis);
    let due = |entry: &ContainerEntry, to: &Adjustment| entry.applied.differs(to);
    let steps = steps(node, books, pool, due, last);
    carry(books, steps, |entry, to| {
        entry.applied.record(to);
        entry.updated_early = entry.phase == super::Phase::Created;
    })
}

/// What the daemon has to write into the groups of containers, in order, because no answer can carry
/// it. The next answer repeats it to the runtime. A container that does not run yet may have no
/// group; but it is as much in the way of others as one that runs.
pub(super) fn writes(node: &Node, books: &mut Books, pool: &Pool) -> Vec<Update> {
    if !node.assigns() || !books.owes(&node.basis(pool)) {
        return Vec::new();
    }
    let due = |entry: &ContainerEntry, to: &Adjustment| {
        // The enforcer writes partitions.
        let partition = to.is_exclusive() && entry.enforced_by == Mechanism::Partitions;
        !partition && !entry.applied.is_on(&to.cpus(), Certainty::Written)
    };
    let steps = steps(node, books, pool, due, None);
    carry(books, steps, |entry, to| entry.applied.record_written(to))
}

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
            let bound = is_bound_as_it_is(node, pod, entry) && to.mems().is_none();
            if bound && to.limit().is_none() {
                return None;
            }
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
    // In most cases the shared containers leave the CPUs of a new container, and nothing else
    // moves.
    if leave || exclusive > 1 {
        let bound = node.mechanism != Mechanism::Runtime && node.unbound.is_empty();
        return in_order(changes().collect(), last, bound);
    }
    if exclusive > 0 {
        updates.sort_by_key(|update| update.adjustment.is_exclusive());
    }
    Steps { updates, waiting: Vec::new() }
}

/// Records what the runtime sets or the daemon writes now, and which containers wait.
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
