//! Decides what a new container gets.

use super::books::{Books, ContainerEntry, PodEntry};
use super::memory::{self, MemoryDemand};
use super::model::Container;
use super::node::{Node, numa_nodes};
use super::own_pool::{self, PodShare};
use super::request::{NodeSupply, RefusedRequest, exclusive_request, lacks_cores, place, reusable};
use super::terms::Terms;
use cpuset::{CpuSet, NodeSet};
use placement::memory_manager::{MemoryRequest, NodeMemoryClaim, place_memory, place_with_memory};
use placement::{Hint, Placement, Request, Reuse, Scope};

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
    let settings = terms.pod_options.settings(&node.settings.placement);
    let demand = memory::demand(node, books, pod, container, &settings);
    let open = match &demand {
        Some(MemoryDemand::Open(request)) => Some(request),
        Some(MemoryDemand::Known(_)) | None => None,
    };
    let (cpus, nodes) = if own_pool::governs(node, pod) {
        let (share, nodes) = own_pool::part(node, books, pod, container, terms, open)?;
        let held = || pod.container(&container.name).map(ContainerEntry::held).unwrap_or_default();
        (share.map_or_else(|| Grant::Inherited(held()), Grant::OfPod), nodes)
    } else {
        grant(node, books, pod, container, terms, open)?
    };
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
        if lacks_cores(node, books, pod, &settings) {
            all.settings.options.full_pcpus_only = false;
        }
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
