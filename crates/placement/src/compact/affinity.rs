//! The topology manager's part (KEP-693): which NUMA nodes a container may use, and the hint of
//! those chosen.
//!
//! * `none` and `best-effort` admit every choice: the fewest nodes there are room in.
//! * `restricted` admits as many nodes as the CPUs need on the empty machine.
//! * `single-numa-node` admits one.
//!
//! A container's devices narrow the choice to their nodes. As in the kubelet, the two strict policies
//! refuse a container whose CPUs need another number of nodes than its devices are on; under the
//! others its CPUs are near these nodes if they do not fit.

use super::capacity::{cores, fewest_nodes};
use super::cost::Cost;
use super::search::{Choice, Demand, search};
use super::sets::Nodes;
use super::view::View;
use crate::hint::Hint;
use crate::rejection::Rejection;
use crate::request::{PodDemand, Request};
use crate::topology_manager::TopologyPolicy;
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

/// Whether the policy refuses containers that do not have the nodes they need.
pub(super) fn is_strict(request: &Request) -> bool {
    matches!(
        request.settings.topology_manager.policy,
        TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode
    )
}

/// The choice for a demand of `n` CPUs in all, of a container or, in pod scope, of a pod. The view's
/// held CPUs are among them, and their nodes a must.
pub(super) fn choose(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    mut demand: Demand,
    n: usize,
) -> Result<(Choice, Option<Cost>, Hint), Rejection> {
    let refused = Rejection::topology_affinity;
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
        return Err(refused());
    }
    let mut choice = None;
    if !devices.is_empty() && demand.nodes.base.is_subset(devices) {
        let allowed = demand.nodes.allowed.intersection(devices);
        let at_devices = Demand { nodes: Nodes { allowed, ..demand.nodes }, ..demand };
        choice = search(view, at_devices);
        if let (Some(preferred), Some((first, _))) = (request.devices.preferred(), &choice) {
            let allowed = allowed.intersection(at_positions(machine, preferred));
            let most = first.nodes.len();
            let nodes = Nodes { allowed, most, ..demand.nodes };
            choice = search(view, Demand { nodes, ..demand }).or(choice);
        }
    }
    let is_at_devices = devices.is_empty() || choice.is_some();
    if choice.is_none() && (devices.is_empty() || !is_strict(request)) {
        demand.nodes.near = devices;
        choice = search(view, demand);
    }
    let Some((choice, second)) = choice else { return Err(refused()) };
    let preferred = matches && is_at_devices && choice.nodes.len() <= width;
    let hint = hint(machine, policy, choice.nodes, preferred);
    Ok((choice, second, hint))
}

/// The nodes of the container's devices by position.
fn devices(machine: &Topology, request: &Request) -> NodeSet {
    at_positions(machine, request.devices.all())
}

fn at_positions(machine: &Topology, ids: NodeSet) -> NodeSet {
    let nodes = machine.nodes().iter().enumerate();
    nodes.filter(|(_, node)| ids.contains(node.id)).map(|(at, _)| at).collect()
}

fn hint(machine: &Topology, policy: TopologyPolicy, nodes: NodeSet, preferred: bool) -> Hint {
    if policy == TopologyPolicy::None {
        return Hint::ANY;
    }
    let all = machine.nodes();
    let ids: NodeSet = nodes.iter().map(|at| all[at].id).collect();
    // As in the kubelet: all nodes is no affinity at all.
    let is_all = policy == TopologyPolicy::SingleNumaNode && nodes.len() == all.len();
    Hint { nodes: if is_all { None } else { Some(ids) }, preferred }
}

/// The nodes of a hint by position; `None` if any node will do.
pub(super) fn positions(machine: &Topology, hint: Hint) -> Option<NodeSet> {
    let named = hint.nodes?;
    Some(at_positions(machine, named))
}

/// The affinity of a pod: chosen for all its CPUs with its first container that has exclusive CPUs,
/// and kept then. It includes all nodes on which the pod has CPUs.
pub(super) fn of_pod(
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
    let usable = (request.free & machine.online()) - request.settings.reserved;
    let view = View::new(machine, &usable, &pod.held, &CpuSet::EMPTY, cores(request));
    let demand = Demand {
        cpus: pod.cpus.saturating_sub(pod.held.len()),
        nodes: Nodes::all(&view),
        most_caches: usize::MAX,
        align: true,
    };
    match choose(machine, request, &view, demand, pod.cpus) {
        Ok((.., hint)) => Ok(hint),
        Err(refused) if is_strict(request) => Err(refused),
        Err(_) => Ok(Hint { nodes: None, preferred: false }),
    }
}
