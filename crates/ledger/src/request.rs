//! Decides what a new container gets, and builds the [`Request`] to the engine from the pod's
//! budget, its NUMA affinity and the CPUs that it can reuse.

use super::books::{Books, ContainerEntry, PodEntry};
use super::memory::{self, MemoryDemand};
use super::model::Container;
use super::node::{Node, numa_nodes};
use super::own_pool::{self, PodShare};
use super::terms::Terms;
use cpuset::{CpuSet, NodeSet};
use placement::memory_manager::{MemoryRequest, NodeMemoryClaim, place_memory, place_with_memory};
use placement::{
    self, DeviceNodes, Hint, IsolatedCpus, Placement, PodDemand, Rejection, Request, Reuse, Scope,
};
use topology::Topology;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grant {
    Shared,
    /// The exclusive CPUs of its predecessor.
    Inherited(CpuSet),
    /// Exclusive CPUs that the engine chose for this request.
    Chosen(Placement, Box<Request>),
    /// CPUs of its pod, which has an own pool.
    OfPod(PodShare),
}

/// A refusal, with the request if it is the engine's.
pub(super) type RefusedRequest = (Rejection, Option<Box<Request>>);

/// What a new container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) cpus: Grant,
    /// Its counted memory; `None` if its memory is not counted.
    pub(super) memory: Option<NodeMemoryClaim>,
    /// The NUMA affinity of its pod, if that is chosen here: see [`PodEntry::affinity`].
    pub(super) affinity: Option<(usize, Hint)>,
}

impl Grant {
    pub(super) fn claim(&self) -> Option<CpuSet> {
        match self {
            Grant::Shared => None,
            Grant::Inherited(cpus) => Some(*cpus),
            Grant::Chosen(placement, _) => Some(placement.cpus),
            Grant::OfPod(share) => share.claim(),
        }
    }

    /// What the engine chose from the node's free CPUs, and for which request.
    pub(super) fn chosen(self) -> Option<(Placement, Box<Request>)> {
        match self {
            Grant::Chosen(placement, request) => Some((placement, request)),
            Grant::OfPod(share) => share.chosen,
            Grant::Shared | Grant::Inherited(_) => None,
        }
    }
}

/// The node's CPUs for exclusive containers. All requests of one decision use the same supply.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSupply {
    /// CPUs that could become exclusive now.
    pub(super) free: CpuSet,
    /// The sum of [`PodEntry::promise`] of pods that do not require isolated CPUs. A runtime may
    /// report budgets of any size; their sum fits in a `u128`.
    promised: u128,
    /// The sum of [`PodEntry::promise`] of pods that require isolated CPUs.
    promised_isolated: u128,
}

impl NodeSupply {
    pub(super) fn of(node: &Node, books: &Books) -> NodeSupply {
        let mut supply = NodeSupply { free: node.free(books), promised: 0, promised_isolated: 0 };
        for (_, pod) in books.pods() {
            let promise = pod.promise() as u128;
            if requires_isolated(node, pod) {
                supply.promised_isolated += promise;
            } else {
                supply.promised += promise;
            }
        }
        supply
    }

    /// How many CPUs the other pods keep free for themselves, of the kind (isolated or not) that a
    /// container of this pod gets with these settings.
    fn promised_to_others(
        &self,
        node: &Node,
        pod: &PodEntry,
        settings: &placement::PlacementSettings,
    ) -> usize {
        let required = settings.isolated == IsolatedCpus::Require;
        let all = if required { self.promised_isolated } else { self.promised };
        // If the pod is of the other kind, `all` does not have its own promise.
        let own = if requires_isolated(node, pod) == required { pod.promise() } else { 0 };
        // No underflow: the pod is in the books, so `all` has its promise.
        usize::try_from(all - own as u128).unwrap_or(usize::MAX)
    }
}

/// Whether a pod promises isolated CPUs: those of its containers that no annotation names get no
/// others.
///
/// A promise is for containers that no event has named yet, so annotations of single containers
/// cannot split it. Until these are created, it may count for the wrong kind of CPUs.
fn requires_isolated(node: &Node, pod: &PodEntry) -> bool {
    // On such a node a container that requires them is refused anyway.
    if node.isolated().is_empty() {
        return false;
    }
    let pod_options = Terms::still_allowed(&node.settings, &pod.pod, "").pod_options;
    pod_options.settings(&node.settings.placement).isolated == IsolatedCpus::Require
}

/// What a new container of a pod gets. Changes nothing.
pub(super) fn granted(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
) -> Result<Granted, RefusedRequest> {
    let keeps = pod.container(&container.name).is_some_and(|entry| entry.claim().is_some());
    if !keeps
        && terms.exclusive_cpus(pod.pod.qos, &container.cpu).is_some()
        && let Some(rejection) = terms.too_many_devices(node, pod, container)
    {
        return Err((rejection, None));
    }
    let scope = terms.pod_options.settings(&node.settings.placement).topology_manager.scope;
    let demand = memory::demand(node, books, pod, container, scope);
    let open = match &demand {
        Some(MemoryDemand::Open(request)) => Some(request),
        Some(MemoryDemand::Known(_)) | None => None,
    };
    let grant = if own_pool::governs(node, pod) { own_pool::grant } else { grant };
    let (cpus, nodes) = grant(node, books, pod, container, terms, open)?;
    let chosen = match (&demand, nodes) {
        (None, _) => None,
        (Some(MemoryDemand::Known(claim)), _) => Some((claim.clone(), None)),
        (Some(MemoryDemand::Open(request)), Some(nodes)) => Some((request.claim(nodes), None)),
        (Some(MemoryDemand::Open(request)), None) => {
            // Those of its predecessor or, with an own pool, of its pod.
            let of_pod = pod.own_pool.map(|_| pod.own_cpus()).filter(|cpus| !cpus.is_empty());
            let held = cpus.claim().or(of_pod);
            let (nodes, affinity) = shared_memory(node, books, pod, terms, held, request)?;
            Some((request.claim(nodes), affinity))
        }
    };
    let (memory, affinity) = chosen.unzip();
    Ok(Granted { cpus, memory, affinity: affinity.flatten() })
}

/// The nodes of the memory of a container for which the engine chooses no CPUs. In pod scope also the
/// affinity of its pod, if that is chosen here: for all of its CPUs, as in the kubelet.
fn shared_memory(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    terms: &Terms,
    held: Option<CpuSet>,
    memory: &MemoryRequest<'_>,
) -> Result<(NodeSet, Option<(usize, Hint)>), RefusedRequest> {
    let machine = &node.topology;
    let settings = terms.pod_options.settings(&node.settings.placement);
    let in_pod_scope = settings.topology_manager.scope == Scope::Pod;
    let of_pod = pod.affinity.filter(|_| in_pod_scope).map(|(_, hint)| hint);
    let of_cpus = held.map(|cpus| {
        let nodes = Some(numa_nodes(machine, &cpus));
        Hint { nodes, preferred: false }
    });
    let chosen = of_pod.or(of_cpus);
    let demand = if node.is_static() { pod.demand().unwrap_or(0) } else { 0 };
    if in_pod_scope && chosen.is_none() && demand > 0 {
        let supply = NodeSupply::of(node, books);
        let all = exclusive_request(node, &supply, pod, Reuse::NONE, CpuSet::EMPTY, demand, terms);
        let mut all = Box::new(all);
        return match place_with_memory(machine, &mut all, memory) {
            Ok((placement, nodes)) => Ok((nodes, Some((demand, placement.hint)))),
            Err(rejection) => Err((rejection, Some(all))),
        };
    }
    let placed = place_memory(machine, &settings, terms.devices, memory, chosen);
    let (nodes, hint) = placed.map_err(|rejection| (rejection, None))?;
    let affinity = if in_pod_scope && chosen.is_none() { Some((demand, hint)) } else { None };
    Ok((nodes, affinity))
}

/// The CPUs of a new container, and the nodes of its memory where they are chosen together.
pub(super) fn grant(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
    memory: Option<&MemoryRequest<'_>>,
) -> Result<(Grant, Option<NodeSet>), RefusedRequest> {
    let Some(n) = terms.exclusive_cpus(pod.pod.qos, &container.cpu) else {
        return match terms.missing_whole_cpus(pod.pod.qos, &container.cpu) {
            Some(rejection) => Err((rejection, None)),
            None => Ok((Grant::Shared, None)),
        };
    };
    let before = pod.container(&container.name);
    // As under the kubelet, the CPUs belong to the name for the life of the pod. A new instance
    // gets them even if other CPUs would fit its pod options, its devices or the settings better by
    // now, and under policy none. The predecessor leaves them at its end, which may be reported
    // late.
    if let Some(held) = before.and_then(|entry| entry.claim()).filter(|held| held.len() == n) {
        return Ok((Grant::Inherited(held), None));
    }
    if !node.is_static() {
        return Ok((Grant::Shared, None));
    }
    let Some(reuse) = reusable(node, pod, pod.budget_cpus(), container, n) else {
        // The container shares CPUs, as under the kubelet: it has no resources in a pod with
        // pod-level resources, so the kubelet gave it the amount of the pod. A retry would not
        // help, while CPUs of the node can become free.
        let shared = terms.fall_back_to_shared().map(|()| (Grant::Shared, None));
        return shared.map_err(|rejection| (rejection, None));
    };
    let own = before.map(|entry| node.taken(entry)).unwrap_or_default();
    let supply = NodeSupply::of(node, books);
    let request = exclusive_request(node, &supply, pod, reuse, own, n, terms);
    let mut request = Box::new(request);
    match place(&node.topology, &mut request, memory) {
        Ok((placement, nodes)) => Ok((Grant::Chosen(placement, request), nodes)),
        Err(rejection) => Err((rejection, Some(request))),
    }
}

/// The engine's answer, with the nodes of the memory if it is counted.
pub(super) fn place(
    machine: &Topology,
    request: &mut Request,
    memory: Option<&MemoryRequest<'_>>,
) -> Result<(Placement, Option<NodeSet>), Rejection> {
    match memory {
        Some(memory) => {
            let (placement, nodes) = place_with_memory(machine, request, memory)?;
            Ok((placement, Some(nodes)))
        }
        None => Ok((placement::place(machine, request)?, None)),
    }
}

/// [`PodEntry::reusable`], with the CPUs that stay idle for ended containers.
pub(super) fn reusable(
    node: &Node,
    pod: &PodEntry,
    budget: Option<usize>,
    container: &Container,
    n: usize,
) -> Option<Reuse> {
    pod.reusable(budget, &container.name, n, |entry| node.taken(entry))
}

/// A request for `n` exclusive CPUs, out of the free ones, those to reuse and `own`, which the
/// container holds.
pub(super) fn exclusive_request(
    node: &Node,
    supply: &NodeSupply,
    pod: &PodEntry,
    reuse: Reuse,
    own: CpuSet,
    n: usize,
    terms: &Terms,
) -> Request {
    // CPUs of its predecessor come first, too.
    let reuse = Reuse { cpus: reuse.cpus | own, ..reuse };
    let free = supply.free | own;
    let settings = terms.pod_options.settings(&node.settings.placement);
    let in_pod_scope = settings.topology_manager.scope == Scope::Pod;
    Request {
        cpus: n,
        free,
        reuse,
        promised: supply.promised_to_others(node, pod, &settings),
        pod: if in_pod_scope { pod_demand(pod, &free, &reuse.cpus, n) } else { None },
        pod_options: terms.pod_options,
        devices: terms.devices,
        memory: None,
        settings,
    }
}

/// A request for all `n` CPUs of a pod with an own pool, which has `own` of them. The pod options are
/// those of the pod for all of its containers. It has no isolated CPUs: these are never shared.
pub(super) fn pod_request(
    node: &Node,
    supply: &NodeSupply,
    pod: &PodEntry,
    own: CpuSet,
    n: usize,
    devices: DeviceNodes,
) -> Request {
    let terms = Terms { devices, ..Terms::still_allowed(&node.settings, &pod.pod, "") };
    let request = exclusive_request(node, supply, pod, Reuse::NONE, own, n, &terms);
    Request { free: request.free - node.isolated(), ..request }
}

/// The input to the choice of a pod's NUMA affinity (KEP-693), when a container asks for `n` CPUs,
/// `free` or `reusable` ones. The affinity need not include the latter.
///
/// The engine chooses the affinity with the first exclusive container, for the pod's budget, and
/// again after the budget changes or the plugin restarts. The budget of a Burstable pod is a limit,
/// not a request: there the engine chooses again with each container, for the CPUs that the pod has
/// then. If the budget is unknown, each container has its own affinity.
fn pod_demand(pod: &PodEntry, free: &CpuSet, reusable: &CpuSet, n: usize) -> Option<PodDemand> {
    let cpus = pod.demand_with(&(*free | *reusable), n)?;
    let chosen = pod.affinity.filter(|(of, _)| *of == cpus).map(|(_, hint)| hint);
    Some(PodDemand { cpus, held: pod.held_with_pod_affinity() - *reusable, chosen })
}

/// The request of a running container, for `n` CPUs instead of those that it holds.
///
/// As under the kubelet, only a new container gets a NUMA affinity and CPUs of ended containers.
/// The kubelet has checked the pod's limit.
pub(super) fn running_request(
    node: &Node,
    supply: &NodeSupply,
    pod: &PodEntry,
    entry: &ContainerEntry,
    n: usize,
) -> Request {
    let pod_options = entry.pod_options();
    let settings = pod_options.settings(&node.settings.placement);
    Request {
        cpus: n,
        free: supply.free | node.taken(entry),
        reuse: Reuse::NONE,
        promised: supply.promised_to_others(node, pod, &settings),
        pod: None,
        pod_options,
        devices: entry.terms.devices,
        memory: None,
        settings,
    }
}
