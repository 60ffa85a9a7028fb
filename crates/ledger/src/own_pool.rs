//! The own pool of a pod (KEP-5526): the only place that decides about the CPUs of pods that have
//! one.
//!
//! With [`PodLevelResources::OwnPool`] and the topology manager's scope `pod`, the CPUs of a
//! Guaranteed pod are chosen as a whole with its first container, under one NUMA affinity.
//! Containers that ask for whole CPUs get exclusive slices of them. All others share the rest, on
//! which no other pod runs: the own pool. Slices and own pool together are the pod's CPUs until it
//! ends.
//!
//! NRI does not show whether a pod has `spec.resources`
//! ([`Pod::own_resources`](super::Pod::own_resources)). A pod whose containers' requests add up to
//! whole CPUs looks the same and is treated the same: its containers without whole CPUs share the
//! rest of the pod's CPUs, and not the node's shared pool.
//!
//! A container without resources arrives with the amount of the whole pod, as under KEP-2837. Alone
//! it gets all CPUs exclusively. When another container arrives, it shares them.
//!
//! Unlike in the kubelet, a pod's CPUs are never chosen a second time after a restart, they are
//! free exactly when the pod ends, and no container of the pod shares a slice.

use super::books::{Books, ContainerEntry, PodEntry};
use super::model::{Container, ContainerKind, CpuRequest, MilliCpu, PodUid, PoolKind, Qos};
use super::node::Node;
use super::note::{Subject, What};
use super::policy::Policy;
use super::request::{NodeSupply, RefusedRequest, place, pod_request};
use super::settings::PodLevelResources;
use super::terms::{Terms, keeps_cpus_idle};
use cpuset::{CpuSet, NodeSet};
use placement::memory_manager::MemoryRequest;
use placement::pod_options::Smt;
use placement::{
    self, DeviceNodes, NotEnough, Placement, Rejection, Request, Running, Scope, TopologyPolicy,
};

/// What a new container gets of its pod's CPUs, and what that changes for the rest of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodShare {
    /// The engine's choice of all CPUs of the pod, with its first container.
    pub(super) chosen: Option<(Placement, Box<Request>)>,
    /// The exclusive CPUs of the container; `None` if it shares the own pool.
    pub(super) slice: Option<(Placement, Box<Request>)>,
    /// The own pool from now on.
    pub(super) own_pool: CpuSet,
    /// Containers that return their exclusive CPUs to the own pool.
    returning: Vec<String>,
}

const NONE_LEFT: &str = "the exclusive containers of its pod leave none of the pod's CPUs";

/// Whether the CPUs of a new container are the pod's. A pod with containers that were created under
/// other settings stays as it is.
pub(super) fn governs(node: &Node, pod: &PodEntry) -> bool {
    let has_whole_budget = || pod.pod.budget.is_some_and(|budget| budget.whole_cpus().is_some());
    pod.own_pool.is_some()
        || (may_have(node, pod)
            && has_whole_budget()
            && pod.containers().next().is_none()
            && pod.pod.own_resources != Some(false)
            // They would be more than the pod's budget.
            && !keeps_cpus_idle(&node.settings, &pod.pod))
}

/// Whether the settings allow the pod an own pool.
pub(super) fn may_have(node: &Node, pod: &PodEntry) -> bool {
    let settings = &node.settings;
    settings.pod_level_resources == PodLevelResources::OwnPool
        && settings.policy == Policy::Static
        && settings.placement.topology_manager.scope == Scope::Pod
        && pod.pod.qos == Qos::Guaranteed
        && pod.pool == PoolKind::General
        && !pod.opted_out
}

/// What a new container of a pod that [has CPUs of its own](governs) gets of them, and the nodes of the
/// pod's memory where they are chosen together. `None` if it keeps the CPUs of its predecessor.
///
/// # Errors
/// If the pod's CPUs cannot be chosen, or are not enough for the container. A restarted container
/// is never refused: it shares what there is.
pub(super) fn part(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
    memory: Option<&MemoryRequest<'_>>,
) -> Result<(Option<PodShare>, Option<NodeSet>), RefusedRequest> {
    let asks = terms.exclusive_cpus(pod.pod.qos, &container.cpu);
    let before = pod.container(&container.name);
    let held = before.map(ContainerEntry::held).unwrap_or_default();
    if asks == Some(held.len()) {
        return Ok((None, None));
    }
    let Some(own_pool) = pod.own_pool else {
        let (placement, request, nodes) = choose(node, books, pod, asks, terms, memory)?;
        let share = share(node, pod, container, terms, placement.cpus, placement.cpus.len())?;
        let chosen = Some((placement, request));
        return Ok((Some(PodShare { chosen, ..share }), nodes));
    };
    let budget = pod.budget_cpus().unwrap_or(0);
    let share = share(node, pod, container, terms, own_pool | held, budget)?;
    Ok((Some(share), None))
}

/// Has the engine choose all CPUs of a pod. A container that asks for more than the pod's budget
/// was resized before its creation.
fn choose(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    asks: Option<usize>,
    terms: &Terms,
    memory: Option<&MemoryRequest<'_>>,
) -> Result<(Placement, Box<Request>, Option<NodeSet>), RefusedRequest> {
    let n = pod.budget_cpus().max(asks).unwrap_or(0);
    let supply = NodeSupply::of(node, books);
    let request = pod_request(node, &supply, pod, CpuSet::EMPTY, n, terms.devices);
    let mut request = Box::new(request);
    match place(&node.topology, &mut request, memory) {
        Ok((placement, nodes)) => Ok((placement, request, nodes)),
        Err(rejection) => Err((rejection, Some(request))),
    }
}

/// The part of a new container, out of the `free` CPUs of its pod and those of containers that
/// return theirs. The pod has `budget` CPUs.
pub(super) fn share(
    node: &Node,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
    free: CpuSet,
    budget: usize,
) -> Result<PodShare, RefusedRequest> {
    let is_restart = pod.container(&container.name).is_some();
    let others = || pod.containers().filter(|(other, _)| **other != container.name);
    let asks = terms.exclusive_cpus(pod.pod.qos, &container.cpu);
    // A container with the amount of the pod shares, unless it is the only one.
    let is_alone = !others().any(|(_, entry)| stays(entry));
    let wants = if is_alone { asks } else { asks.filter(|n| *n < budget) };
    if wants.is_none() && !is_restart {
        let refused = match asks {
            Some(_) => terms.fall_back_to_shared().err(),
            None => terms.missing_whole_cpus(pod.pod.qos, &container.cpu),
        };
        if let Some(rejection) = refused {
            return Err((rejection, None));
        }
    }
    let mut own_pool = free;
    let mut returning = Vec::new();
    // The restart of a container that shares changes nothing.
    if !is_restart || wants.is_some() || own_pool.is_empty() {
        let returning_now = others().filter(|(_, entry)| returns(pod, entry, budget));
        for (other, entry) in returning_now {
            own_pool |= entry.held();
            returning.push(other.clone());
        }
    }
    let shares = |(other, entry): (&String, &ContainerEntry)| {
        stays(entry) && (entry.claim().is_none() || returning.contains(other))
    };
    let kept = usize::from(others().any(shares));
    let slice = match wants {
        Some(n) if n + kept <= own_pool.len() => match cut(node, terms, own_pool, n) {
            Err(_) if is_restart => None,
            slice => Some(slice?),
        },
        _ if is_restart => None,
        Some(n) if n > own_pool.len() && !own_pool.is_empty() => {
            let available = own_pool.len();
            return Err((NotEnough { requested: n, available }.into(), None));
        }
        None if !own_pool.is_empty() => None,
        Some(_) | None => return Err((Rejection::empty_pod_shared_pool(), None)),
    };
    if let Some((placement, _)) = &slice {
        own_pool -= placement.cpus;
    }
    Ok(PodShare { chosen: None, slice, own_pool, returning })
}

/// Whether a container's exclusive CPUs return to the own pool when another container is created:
/// it has ended, or it has all CPUs of the pod and does not insist on having them exclusively.
fn returns(pod: &PodEntry, entry: &ContainerEntry, budget: usize) -> bool {
    let has_all = || entry.asks(pod.pod.qos).is_some_and(|n| n >= budget);
    entry.claim().is_some()
        && (!stays(entry) || (has_all() && entry.terms.fall_back_to_shared().is_ok()))
}

/// Whether a container runs, or may be restarted. One that ended and was never restarted is taken
/// for an init container when another one is created: events do not say which ones are.
fn stays(entry: &ContainerEntry) -> bool {
    let may_be_init = match entry.kind {
        ContainerKind::Init => true,
        ContainerKind::Unknown => !entry.was_restarted(),
        ContainerKind::RestartableInit | ContainerKind::App => false,
    };
    entry.is_alive() || !may_be_init
}

/// Has the engine choose a slice. As under the kubelet, rules about NUMA affinity and whole cores
/// are for the pod's CPUs, and have been met with these.
fn cut(
    node: &Node,
    terms: &Terms,
    free: CpuSet,
    n: usize,
) -> Result<(Placement, Box<Request>), RefusedRequest> {
    let request = Box::new(slice_request(node, terms, free, n));
    match placement::place(&node.topology, &request) {
        Ok(placement) => Ok((placement, request)),
        Err(rejection) => Err((rejection, Some(request))),
    }
}

fn slice_request(node: &Node, terms: &Terms, free: CpuSet, n: usize) -> Request {
    let mut request = Request::new(n, free, terms.pod_options, &node.settings.placement);
    request.devices = terms.devices;
    request.settings.topology_manager.policy = TopologyPolicy::None;
    // The node's option is for the pod's CPUs, the pod option for this container's.
    request.settings.options.full_pcpus_only = terms.pod_options.smt == Some(Smt::FullCores);
    request
}

impl PodShare {
    /// The exclusive CPUs of the container.
    pub(super) fn claim(&self) -> Option<CpuSet> {
        self.slice.as_ref().map(|(placement, _)| placement.cpus)
    }

    /// Changes the pod of a container that has been entered. Returns the notes.
    pub(super) fn enter(self, pod: &mut PodEntry, subject: Subject) -> Vec<(Subject, What)> {
        let mut notes = Vec::new();
        let mut slice = self.slice;
        if let Some((placement, request)) = self.chosen {
            pod.raise_budget(&placement.cpus);
            pod.affinity = pod.demand().map(|total| (total, placement.hint));
            if self.own_pool.is_empty() {
                // The container has all of them.
                slice = Some((placement, request));
            } else {
                notes.push((pod.own_subject(), What::PodAssigned { placement, request }));
            }
        }
        pod.own_pool = Some(self.own_pool);
        for name in self.returning {
            let Some(entry) = pod.container_mut(&name) else { continue };
            entry.release();
            if entry.is_alive() {
                let id = entry.id().clone();
                let subject = Subject { container: name, id, ..subject.clone() };
                notes.push((subject, What::SharesOwnPool(self.own_pool)));
            }
        }
        let what = match slice {
            Some((placement, request)) => {
                // A slice has the affinity of its pod.
                let hint = pod.affinity.map_or(placement.hint, |(_, hint)| hint);
                What::Assigned { placement: Placement { hint, ..placement }, request }
            }
            None if self.own_pool.is_empty() => What::LeftShared(NONE_LEFT.to_owned()),
            None => What::SharesOwnPool(self.own_pool),
        };
        notes.push((subject, what));
        notes
    }
}

/// What a resize changes in a pod.
#[derive(Debug)]
pub(super) struct Resized {
    budget: MilliCpu,
    /// With the CPUs that the pod gets. Those that it loses leave it with [`exchange`].
    own_pool: CpuSet,
    /// The exclusive CPUs of the container; `None` if it shares the own pool then.
    claim: Option<CpuSet>,
}

impl Resized {
    /// Changes the pod. Returns the claim that the container gets.
    pub(super) fn record(self, books: &mut Books, uid: &PodUid) -> Option<CpuSet> {
        if let Some(pod) = books.pod_mut(uid) {
            pod.pod.budget = Some(self.budget);
            pod.own_pool = Some(self.own_pool);
        }
        self.claim
    }
}

/// A resize of a container of a pod with an own pool. A slice grows out of the own pool and shrinks
/// back into it. If the pod's budget grows, the own pool grows from free CPUs first.
///
/// # Errors
/// If there are no CPUs for it, or the own pool would be empty and is shared.
pub(super) fn resized(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    name: &str,
    entry: &ContainerEntry,
    cpu: CpuRequest,
) -> Result<Resized, Rejection> {
    let asks = entry.asks_with(pod.pod.qos, &cpu);
    if asks.is_none()
        && let Some(rejection) = entry.terms.missing_whole_cpus(pod.pod.qos, &cpu)
    {
        return Err(rejection);
    }
    let held = entry.held();
    let others = || pod.containers().filter(|(other, _)| *other != name);
    let is_alone = !others().any(|(_, other)| stays(other));
    let others_share = others().any(|(_, other)| stays(other) && other.claim().is_none());
    let spare = (pod.own_pool() | held).len().saturating_sub(usize::from(others_share));
    let budget = resized_budget(pod, entry, cpu, asks.unwrap_or(0).saturating_sub(spare));
    let size = budget.cpus_floor();
    let own_pool = pod.own_pool() | growth(node, books, pod, size)?;
    // Only a container without CPUs of its own can have the amount of the pod.
    let has_own = is_alone || entry.claim().is_some();
    let wants = if has_own { asks } else { asks.filter(|n| *n < size) };
    let of_others: usize = others().map(|(_, other)| other.held().len()).sum();
    let shares = wants.is_none() || others_share;
    // What the own pool has after the resize.
    let n = wants.unwrap_or(0);
    let left = (own_pool | held).len().min(size.saturating_sub(of_others)).checked_sub(n);
    let claim = match (wants, left) {
        (_, Some(0)) if shares => return Err(Rejection::empty_pod_shared_pool()),
        (Some(n), None) => {
            let available = (own_pool | held).len();
            return Err(NotEnough { requested: n, available }.into());
        }
        (Some(n), Some(_)) => {
            let terms = Terms { pod_options: entry.pod_options(), ..entry.terms.clone() };
            let request = slice_request(node, &terms, own_pool | held, n);
            let running = entry.claim().map_or(Running::Shared, Running::Exclusive);
            Some(placement::resize(&node.topology, &request, &running)?)
        }
        (None, _) => None,
    };
    Ok(Resized { budget, own_pool, claim })
}

/// The pod's budget after a resize of one of its containers. A runtime that reports resized pods
/// has already reported it. A container without resources shows the pod's budget, so its resize is
/// the pod's. Any other one resizes the pod if the own pool lacks CPUs for it: `lacks`.
fn resized_budget(
    pod: &PodEntry,
    entry: &ContainerEntry,
    cpu: CpuRequest,
    lacks: usize,
) -> MilliCpu {
    let budget = pod.pod.budget.unwrap_or_default();
    let amount = |cpu: CpuRequest| cpu.amount().unwrap_or_default();
    let (before, after) = (amount(entry.cpu), amount(cpu));
    if pod.resized || (entry.claim().is_none() && after == budget) {
        budget
    } else if before == budget {
        after
    } else {
        MilliCpu(budget.0.saturating_add(lacks as u64 * 1000))
    }
}

/// The CPUs that a pod with an own pool gets to have `size` of them; none if it has as many.
fn growth(node: &Node, books: &Books, pod: &PodEntry, size: usize) -> Result<CpuSet, Rejection> {
    let own = pod.own_cpus();
    if size <= own.len() {
        return Ok(CpuSet::EMPTY);
    }
    let supply = NodeSupply::of(node, books);
    let request = pod_request(node, &supply, pod, own, size, DeviceNodes::NONE);
    let request = Request { pod: None, ..request };
    let all = placement::resize(&node.topology, &request, &Running::Exclusive(own))?;
    Ok(all - own)
}

/// The CPUs that a container leaves return to the own pool of its pod, and those that it gets leave
/// it.
pub(super) fn exchange(node: &Node, pod: &mut PodEntry, before: CpuSet, after: CpuSet) {
    if let Some(own_pool) = &mut pod.own_pool {
        *own_pool = (*own_pool | before) - after;
        trim(node, pod);
    }
}

/// Takes from the own pool what the pod has beyond its budget. While containers share it, one CPU
/// stays.
fn trim(node: &Node, pod: &mut PodEntry) {
    let (Some(own_pool), Some(budget)) = (pod.own_pool, pod.budget_cpus()) else { return };
    // A container with notice of a resize keeps its CPUs until this has ended.
    let keeps = |entry: &ContainerEntry| entry.notice().map_or(entry.held(), |notice| notice.to);
    let exclusive: usize = pod.containers().map(|(_, entry)| keeps(entry).len()).sum();
    let shares = pod.containers().any(|(_, entry)| stays(entry) && entry.claim().is_none());
    let size = budget.saturating_sub(exclusive).max(usize::from(shares));
    if size >= own_pool.len() {
        return;
    }
    let kept = if size == 0 {
        CpuSet::EMPTY
    } else {
        let request = slice_request(node, &Terms::default(), own_pool, size);
        let running = Running::Exclusive(own_pool);
        // To keep fewer CPUs needs no free ones, so an engine has no reason to refuse.
        placement::resize(&node.topology, &request, &running).unwrap_or(own_pool)
    };
    pod.own_pool = Some(kept);
}

/// The own pool follows a new budget of its pod, as far as CPUs are free.
pub(super) fn follow_budget(node: &Node, books: &mut Books, uid: &PodUid) {
    let Some(pod) = books.pod(uid).filter(|pod| pod.own_pool.is_some()) else { return };
    let size = pod.budget_cpus().unwrap_or(0);
    let more = growth(node, books, pod, size).unwrap_or_default();
    if let Some(pod) = books.pod_mut(uid) {
        pod.own_pool = Some(pod.own_pool() | more);
        trim(node, pod);
    }
}

/// Replaces CPUs of a pod that went offline by the nearest free ones, if there are enough.
pub(super) fn complete(node: &Node, books: &mut Books, uid: &PodUid, broken: &CpuSet) {
    let Some(pod) = books.pod(uid).filter(|pod| pod.own_pool.is_some()) else { return };
    let size = pod.budget_cpus().unwrap_or(0);
    let left = pod.own_cpus();
    if size <= left.len() {
        return;
    }
    let supply = NodeSupply::of(node, books);
    // Running containers have precedence over pods that are about to start.
    let request = pod_request(node, &supply, pod, left, size, DeviceNodes::NONE);
    let request = Request { promised: 0, pod: None, ..request };
    let reduced = Running::Reduced { left, broken: *broken };
    if let Ok(cpus) = placement::resize(&node.topology, &request, &reduced)
        && let Some(pod) = books.pod_mut(uid)
    {
        let exclusive = left - pod.own_pool();
        pod.own_pool = Some(cpus - exclusive);
    }
}
