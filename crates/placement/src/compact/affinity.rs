//! The topology manager's policies (KEP-693): which NUMA nodes a container may use, and the hint
//! of the chosen nodes.
//!
//! * `none` and `best-effort` admit any number of nodes. The container gets the fewest with room.
//! * `restricted` admits as many nodes as the CPUs need on the empty machine.
//! * `single-numa-node` admits one node.
//!
//! A container's devices narrow the choice to their nodes. As in the kubelet, the two strict
//! policies refuse a container whose CPUs need another number of nodes than its devices are on;
//! under the others its CPUs are near these nodes if they do not fit.

use super::capacity::{cores, fewest_nodes};
use super::cost::Cost;
use super::search::{Choice, SearchDemand, search};
use super::sets::NodeBounds;
use super::view::View;
use crate::hint::Hint;
use crate::rejection::Rejection;
use crate::request::{PodDemand, Request};
use crate::topology_manager::TopologyPolicy;
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

pub(super) fn is_strict(request: &Request) -> bool {
    request.settings.topology_manager.policy.is_strict()
}

/// The choice for a demand of a container or, in pod scope, of a pod. `n` is its number of CPUs,
/// including those that the view has as held. The choice includes the nodes of held CPUs.
pub(super) fn choose(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    mut demand: SearchDemand,
    n: usize,
) -> Result<(Choice, Option<Cost>, Hint), Rejection> {
    let policy = request.settings.topology_manager.policy;
    let width = fewest_nodes(machine, cores(request), n);
    demand.nodes.most = match policy {
        TopologyPolicy::None | TopologyPolicy::BestEffort => usize::MAX,
        TopologyPolicy::Restricted => width,
        TopologyPolicy::SingleNumaNode => 1,
    };
    let devices = devices(machine, request);
    let matches = devices.is_empty() || devices.len() == width;
    if is_strict(request) && !matches {
        return Err(Rejection::topology_affinity());
    }
    let mut choice = None;
    if !devices.is_empty() && demand.nodes.base.is_subset(devices) {
        let allowed = demand.nodes.allowed.intersection(devices);
        let at_devices = SearchDemand { nodes: NodeBounds { allowed, ..demand.nodes }, ..demand };
        choice = search(view, at_devices);
        // The nodes with the most devices are only a preference: they must not cost more nodes.
        if let (Some(preferred), Some((first, _))) = (request.devices.preferred(), &choice) {
            let allowed = allowed.intersection(positions_of(machine, preferred));
            let most = first.nodes.len();
            let nodes = NodeBounds { allowed, most, ..demand.nodes };
            choice = search(view, SearchDemand { nodes, ..demand }).or(choice);
        }
    }
    let is_at_devices = devices.is_empty() || choice.is_some();
    if choice.is_none() && (devices.is_empty() || !is_strict(request)) {
        demand.nodes.near = devices;
        choice = search(view, demand);
    }
    let (choice, second) = choice.ok_or_else(Rejection::topology_affinity)?;
    let preferred = matches && is_at_devices && choice.nodes.len() <= width;
    let hint = hint(machine, policy, choice.nodes, preferred);
    Ok((choice, second, hint))
}

/// The nodes of the container's devices by position.
fn devices(machine: &Topology, request: &Request) -> NodeSet {
    positions_of(machine, request.devices.all())
}

/// The positions of these nodes in [`Topology::nodes`].
fn positions_of(machine: &Topology, ids: NodeSet) -> NodeSet {
    let nodes = machine.nodes().iter().enumerate();
    nodes.filter(|(_, node)| ids.contains(node.id)).map(|(at, _)| at).collect()
}

fn hint(machine: &Topology, policy: TopologyPolicy, nodes: NodeSet, preferred: bool) -> Hint {
    if policy == TopologyPolicy::None {
        return Hint::ANY;
    }
    let all = machine.nodes();
    let ids: NodeSet = nodes.iter().map(|at| all[at].id).collect();
    // As in the kubelet, a hint of all nodes is no affinity.
    let is_all = policy == TopologyPolicy::SingleNumaNode && nodes.len() == all.len();
    Hint { nodes: if is_all { None } else { Some(ids) }, preferred }
}

/// The nodes of a hint by position; `None` if any node will do.
pub(super) fn positions(machine: &Topology, hint: Hint) -> Option<NodeSet> {
    hint.nodes.map(|ids| positions_of(machine, ids))
}

/// The affinity of a pod, chosen for all its CPUs with its first container that has exclusive CPUs.
/// It includes all nodes on which the pod holds CPUs.
pub(super) fn pod_affinity(
    machine: &Topology,
    request: &Request,
    pod: &PodDemand,
) -> Result<Hint, Rejection> {
    if request.settings.topology_manager.policy == TopologyPolicy::None {
        return Ok(Hint::ANY);
    }
    if let Some(hint) = pod.chosen {
        return Ok(hint);
    }
    let free = (request.free | request.reuse.cpus) - pod.held;
    let usable = (free & machine.online()) - request.settings.reserved;
    let view = View::new(machine, &usable, &pod.held, &CpuSet::EMPTY, cores(request));
    let demand = SearchDemand {
        cpus: pod.cpus.saturating_sub(pod.held.len()),
        nodes: NodeBounds::all(&view),
        most_caches: usize::MAX,
        align: true,
    };
    match choose(machine, request, &view, demand, pod.cpus) {
        Ok((.., hint)) => Ok(hint),
        Err(refused) if is_strict(request) => Err(refused),
        // A policy that is not strict admits the pod on any nodes.
        Err(_) => Ok(Hint { nodes: None, preferred: false }),
    }
}
