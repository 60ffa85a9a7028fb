//! Builds the [`Request`] to the engine from the pod's budget, its NUMA affinity and the CPUs that a
//! container can reuse.

use super::books::{Books, ContainerEntry, PodEntry};
use super::model::Container;
use super::node::Node;
use super::terms::Terms;
use cpuset::{CpuSet, NodeSet};
use placement::memory_manager::{MemoryRequest, place_with_memory};
use placement::{
    self, DeviceNodes, IsolatedCpus, Placement, PlacementSettings, PodDemand, Rejection, Request,
    Reuse, Scope,
};
use topology::Topology;

/// A refusal, with the request if it is the engine's.
pub(super) type RefusedRequest = (Rejection, Option<Box<Request>>);

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
        settings: &PlacementSettings,
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

/// Whether a pod needs whole cores and cannot get them. As in the kubelet, the container that lacks
/// them is refused, and none for the CPUs of the pod.
pub(super) fn lacks_cores(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    settings: &PlacementSettings,
) -> bool {
    settings.options.full_pcpus_only
        && pod.lacks_cores(&node.topology, node.free(books), settings.reserved)
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
