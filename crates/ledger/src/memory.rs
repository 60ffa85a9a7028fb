//! Memory by NUMA node (KEP-1769): whose memory is counted, how much, and on which nodes.
//!
//! As under the kubelet's policy `Static`, the memory and huge pages of containers in Guaranteed pods
//! count. A claim belongs to the container's name for the life of its pod. Which nodes it is on is
//! decided once, with the container's CPUs; they become its `cpuset.mems`. A container that ran
//! before memory was counted is counted on the nodes that are set for it, or else on all.
//!
//! [`placement::memory_manager`] has the rules about nodes.

use super::books::{Books, ContainerEntry, PodEntry};
use super::claim::MemoryClaim;
use super::model::{Container, ContainerKind, PodUid, Qos};
use super::node::Node;
use super::request::lacks_cores;
use cpuset::NodeSet;
use placement::memory::all_memory;
use placement::memory_manager::{
    Amounts, MemoryKind, MemoryRequest, NodeMemoryClaim, PodMemory, Room,
};
use placement::{PlacementSettings, Rejection, Scope};
use std::collections::BTreeMap;

/// The memory that a new container is counted with.
#[derive(Debug)]
pub(super) enum MemoryDemand<'a> {
    /// Its nodes are known: another program has set them, or its predecessor had as much.
    Known(NodeMemoryClaim),
    Open(MemoryRequest<'a>),
}

/// `None` if the memory of this container is not counted.
pub(super) fn demand<'a>(
    node: &'a Node,
    books: &'a Books,
    pod: &'a PodEntry,
    container: &Container,
    settings: &PlacementSettings,
) -> Option<MemoryDemand<'a>> {
    let capacity = node.settings.memory.as_ref()?;
    let name = container.name.as_str();
    let reusable = reusable(pod, name, &container.limits);
    let amounts = counted(pod, name, &container.limits, &reusable);
    if pod.pod.qos != Qos::Guaranteed || amounts.is_empty() {
        return None;
    }
    if let Some(nodes) = container.mems {
        return Some(MemoryDemand::Known(NodeMemoryClaim { nodes, amounts }));
    }
    let before = pod.container(name).and_then(|entry| entry.memory.as_ref());
    if let Some(before) = before.filter(|before| before.amounts == amounts) {
        return Some(MemoryDemand::Known(before.clone()));
    }
    let of_pod = pod.containers().filter(|(other, _)| *other != name);
    let of_pod = of_pod.filter_map(|(_, entry)| entry.memory.clone());
    let in_pod_scope = settings.topology_manager.scope == Scope::Pod;
    let whole = if in_pod_scope && !pod.pod.limits.is_empty() {
        // As far as they are known: runtimes do not report the huge pages of a pod.
        let mut whole = pod.pod.limits.clone();
        amounts.iter().for_each(|(kind, bytes)| {
            whole.entry(*kind).or_insert(*bytes);
        });
        let lacks_cores = lacks_cores(node, books, pod, settings);
        Some(PodMemory { amounts: whole, held: of_pod.collect(), lacks_cores })
    } else {
        None
    };
    Some(MemoryDemand::Open(MemoryRequest {
        capacity,
        claims: others(books, &pod.pod.uid, &[name]).chain(&pod.vacated).collect(),
        reusable: reusable.iter().filter_map(|(_, entry)| entry.memory.clone()).collect(),
        amounts,
        pod: whole,
    }))
}

/// The ended init containers of a pod whose memory a new container uses again.
///
/// A runtime does not say which containers are init containers: one that has ended counts as one if the
/// pod would have more than its limit otherwise. Such memory is counted no longer once another
/// container has started (unlike in the kubelet, kubernetes/kubernetes#123971).
fn reusable<'a>(
    pod: &'a PodEntry,
    name: &str,
    limits: &Amounts,
) -> Vec<(&'a String, &'a ContainerEntry)> {
    let others = || pod.containers().filter(|(other, _)| *other != name);
    // Runtimes do not report the huge pages of a pod.
    let fits = || {
        let mut known = limits
            .iter()
            .filter_map(|(kind, bytes)| Some((kind, *bytes, *pod.pod.limits.get(kind)?)));
        !pod.pod.limits.is_empty()
            && known.all(|(kind, bytes, limit)| {
                let held =
                    others().filter_map(|(_, entry)| entry.memory.as_ref()?.amounts.get(kind));
                held.fold(bytes, |sum, bytes| sum.saturating_add(*bytes)) <= limit
            })
    };
    let may_be_init = |entry: &ContainerEntry| match entry.kind {
        ContainerKind::Init => true,
        ContainerKind::Unknown => !fits(),
        ContainerKind::RestartableInit | ContainerKind::App => false,
    };
    let ended = others().filter(|(_, entry)| !entry.is_alive() && may_be_init(entry));
    ended.filter(|(_, entry)| entry.memory.is_some()).collect()
}

/// What a container counts with: its limits. But a container without limits in a pod with pod-level
/// resources shows the pod's as its own: where one does, each counts with what the others leave of the
/// pod's.
fn counted(
    pod: &PodEntry,
    name: &str,
    limits: &Amounts,
    reusable: &[(&String, &ContainerEntry)],
) -> Amounts {
    let stays = |other: &String| other != name && reusable.iter().all(|(ended, _)| *ended != other);
    let others = || pod.containers().filter(|(other, _)| stays(other));
    let counted = limits.iter().map(|(&kind, &bytes)| {
        let held = others().filter_map(|(_, entry)| entry.memory.as_ref()?.amounts.get(&kind));
        let held = held.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let whole = pod.pod.limits.get(&kind);
        let shows = |limits: &Amounts| whole.is_some() && limits.get(&kind) == whole;
        let is_shared = shows(limits) || others().any(|(_, entry)| shows(&entry.limits));
        let left = whole.filter(|_| is_shared).map(|whole| whole.saturating_sub(held));
        (kind, left.map_or(bytes, |left| bytes.min(left)))
    });
    counted.filter(|(_, bytes)| *bytes > 0).collect()
}

/// Records the claim of a container that has been entered. Its pod no longer holds memory that the
/// container uses again.
pub(super) fn enter(
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    claim: Option<NodeMemoryClaim>,
) {
    let Some(pod) = books.pod(uid) else { return };
    let reused: Vec<String> = match claim {
        Some(_) => {
            let reused = reusable(pod, &container.name, &container.limits);
            reused.into_iter().map(|(name, _)| name.clone()).collect()
        }
        None => Vec::new(),
    };
    let Some(pod) = books.pod_mut(uid) else { return };
    reused.iter().for_each(|name| pod.vacate(name));
    if let Some(entry) = pod.container_mut(&container.name) {
        entry.memory = claim;
    }
}

/// A container has ended. If another one of its pod was created before that was reported, and counts
/// with less than it asks for, it uses this memory again.
pub(super) fn ended(node: &Node, books: &mut Books, uid: &PodUid, name: &str) {
    let Some(capacity) = &node.settings.memory else { return };
    let Some(pod) = books.pod(uid) else { return };
    let Some(memory) = pod.container(name).and_then(|entry| entry.memory.clone()) else { return };
    let lacks = |entry: &ContainerEntry| {
        let counted = |kind| entry.memory.as_ref().and_then(|claim| claim.amounts.get(kind));
        entry
            .limits
            .iter()
            .any(|(kind, bytes)| memory.amounts.contains_key(kind) && counted(kind) < Some(bytes))
    };
    let next = pod.containers().find(|(_, entry)| entry.is_alive() && lacks(entry));
    let Some((next, entry)) = next.map(|(next, entry)| (next.clone(), entry)) else { return };
    let reusable: Vec<_> = reusable(pod, &next, &entry.limits)
        .into_iter()
        .filter(|(ended, _)| *ended == name)
        .collect();
    if reusable.is_empty() {
        return;
    }
    let amounts = counted(pod, &next, &entry.limits, &reusable);
    let nodes = entry.memory.as_ref().map_or(memory.nodes, |claim| claim.nodes);
    if Room::new(capacity, others(books, uid, &[name, &next])).has(&amounts, nodes) {
        if let Some(pod) = books.pod_mut(uid) {
            pod.vacate(name);
        }
        books.change_container(uid, &next, |entry| {
            entry.memory = Some(NodeMemoryClaim { nodes, amounts })
        });
    }
}

/// Claims by pod and container name.
pub(super) type Records = BTreeMap<(PodUid, String), NodeMemoryClaim>;

pub(super) fn records(claims: impl IntoIterator<Item = MemoryClaim>) -> Records {
    let record = |MemoryClaim { pod_uid, container, memory }| ((pod_uid, container), memory);
    claims.into_iter().map(record).collect()
}

/// Counts the memory of containers that run already, and of those that may be restarted. The nodes that
/// are set for a container count first, unless its earlier claim has further ones.
pub(super) fn adopt(
    node: &Node,
    books: &mut Books,
    running: &[(PodUid, Container)],
    earlier: Records,
) {
    if node.settings.memory.is_none() {
        return;
    }
    for (uid, container) in running {
        let recorded = earlier.get(&(uid.clone(), container.name.clone()));
        adopt_one(node, books, uid, container, recorded);
    }
    for ((pod_uid, container), memory) in earlier {
        keep(books, MemoryClaim { pod_uid, container, memory });
    }
}

pub(super) fn adopt_one(
    node: &Node,
    books: &mut Books,
    uid: &PodUid,
    container: &Container,
    recorded: Option<&NodeMemoryClaim>,
) {
    let Some(capacity) = &node.settings.memory else { return };
    let name = container.name.as_str();
    let Some(pod) = books.pod(uid) else { return };
    let Some(entry) = pod.container(name) else { return };
    if pod.pod.qos != Qos::Guaranteed || entry.memory.is_some() {
        return;
    }
    let set = entry.applied.mems().filter(|set| !set.intersection(capacity.all()).is_empty());
    let is_foreign = entry.applied.has_foreign_mems();
    let mut amounts = counted(pod, name, &entry.limits, &[]);
    if let Some(recorded) = recorded {
        // A claim is on disk before its nodes are set: the update is still due.
        let is_due = !is_foreign && set.is_some_and(|set| !recorded.nodes.is_subset(set));
        if container.outdated || entry.limits.is_empty() || is_due {
            amounts.clone_from(&recorded.amounts);
        }
        // Its limit may be the pod's, of which the record knows its part.
        let is_of_pod = |kind: &MemoryKind| entry.limits.get(kind) == pod.pod.limits.get(kind);
        let part = |kind: &MemoryKind| recorded.amounts.get(kind).copied();
        amounts.retain(|kind, _| !is_of_pod(kind) || part(kind).is_some());
        for (kind, bytes) in amounts.iter_mut().filter(|(kind, _)| is_of_pod(kind)) {
            // A limit below its part has been resized.
            *bytes = part(kind).map_or(*bytes, |part| part.min(*bytes));
        }
    }
    let nodes = match (set, recorded.map(|claim| claim.nodes)) {
        // With further nodes, it is that of a claim that could not be saved.
        (Some(set), Some(claimed)) if is_foreign || claimed.is_subset(set) => set,
        (_, Some(claimed)) => claimed,
        // It may use the nodes that are not counted, too.
        (set, None) => set.unwrap_or_else(|| {
            all_memory(&node.topology).unwrap_or(NodeSet::EMPTY).union(capacity.all())
        }),
    };
    if amounts.is_empty() {
        return;
    }
    books.change_container(uid, name, |entry| {
        entry.memory = Some(NodeMemoryClaim { nodes, amounts })
    });
}

/// Keeps the memory of a container that has ended for its restart, if its pod is alive.
pub(super) fn keep(books: &mut Books, MemoryClaim { pod_uid, container, memory }: MemoryClaim) {
    let Some(pod) = books.pod(&pod_uid) else { return };
    match pod.container(&container) {
        Some(entry) if entry.is_alive() || entry.memory.is_some() => {}
        Some(_) => {
            let set = |entry: &mut ContainerEntry| entry.memory = Some(memory);
            books.change_container(&pod_uid, &container, set);
        }
        None => {
            let mut entry = ContainerEntry::unlisted(&pod_uid, &container);
            entry.memory = Some(memory);
            books.enter(&pod_uid, &container, entry, |_, _| ());
        }
    }
}

/// The memory of a running container after a resize in place.
#[derive(Debug)]
pub(super) struct ResizedMemory {
    limits: Amounts,
    /// `None` if its memory is not counted.
    claim: Option<NodeMemoryClaim>,
}

/// The memory of a container after a resize to these limits; `None` if nothing changes. It stays
/// where it is, and gets further nodes if these lack room.
///
/// # Errors
/// If no nodes around its own have room.
pub(super) fn resized_memory(
    node: &Node,
    books: &Books,
    uid: &PodUid,
    name: &str,
    requested: Amounts,
) -> Result<Option<ResizedMemory>, Rejection> {
    let Some(found) = books.container(uid, name) else { return Ok(None) };
    let mut limits = found.entry.limits.clone();
    limits.extend(requested);
    limits.retain(|_, bytes| *bytes > 0);
    if limits == found.entry.limits {
        return Ok(None);
    }
    let before = found.entry.memory.as_ref();
    let (Some(capacity), Some(before)) = (&node.settings.memory, before) else {
        return Ok(Some(ResizedMemory { limits, claim: None }));
    };
    let grows = |(kind, bytes): (&MemoryKind, &u64)| before.amounts.get(kind) < Some(bytes);
    let nodes = if limits.iter().any(grows) {
        let room = Room::new(capacity, others(books, uid, &[name]));
        room.around(&limits, before.nodes)?
    } else {
        before.nodes
    };
    let claim = Some(NodeMemoryClaim { nodes, amounts: limits.clone() });
    Ok(Some(ResizedMemory { limits, claim }))
}

impl ResizedMemory {
    pub(super) fn record(self, books: &mut Books, uid: &PodUid, name: &str) {
        let Some(pod) = books.pod_mut(uid) else { return };
        let Some(entry) = pod.container_mut(name) else { return };
        let before = std::mem::replace(&mut entry.limits, self.limits.clone());
        if self.claim.is_some() {
            entry.memory = self.claim;
        }
        // A runtime that reports resized pods has already reported the new limits.
        if !pod.resized {
            for (kind, limit) in &mut pod.pod.limits {
                let of = |limits: &Amounts| limits.get(kind).copied().unwrap_or(0);
                *limit = limit.saturating_sub(of(&before)).saturating_add(of(&self.limits));
            }
        }
    }
}

/// All claims but those of the containers `names` of a pod.
fn others<'a>(
    books: &'a Books,
    uid: &PodUid,
    names: &[&str],
) -> impl Iterator<Item = &'a NodeMemoryClaim> {
    let others = books.containers().filter(move |one| one.uid != uid || !names.contains(&one.name));
    let remembered = books.remembered_memory().iter().map(|claim| &claim.memory);
    others.filter_map(|one| one.entry.memory.as_ref()).chain(remembered)
}

/// Whether a container's memory has to be on other nodes, if it runs on CPUs of `nodes`: its claim
/// for these; `None` if it can stay where it is.
///
/// # Errors
/// If `nodes` have no room for it.
pub(super) fn moved(
    node: &Node,
    books: &Books,
    pod: &PodUid,
    name: &str,
    nodes: NodeSet,
) -> Result<Option<NodeMemoryClaim>, NoRoom> {
    let Some(capacity) = &node.settings.memory else { return Ok(None) };
    let found = books.container(pod, name);
    let claim = found.and_then(|found| found.entry.memory.as_ref());
    let Some(claim) = claim.filter(|claim| !nodes.is_subset(claim.nodes)) else { return Ok(None) };
    let room = Room::new(capacity, others(books, pod, &[name]));
    if room.has(&claim.amounts, nodes) {
        Ok(Some(NodeMemoryClaim { nodes, amounts: claim.amounts.clone() }))
    } else {
        Err(NoRoom)
    }
}

/// The nodes have no room for a container's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;
