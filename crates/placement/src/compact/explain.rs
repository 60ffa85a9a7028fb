//! What the engine considered for a request. It is computed again from the request.

use super::affinity::is_strict;
use super::capacity::{cores, fewest_nodes};
use super::cost::Cost;
use super::place::Supply;
use super::sets::{NodeBounds, others, sets};
use super::view::View;
use crate::engine::{CacheCandidate, NumaCandidate, Placement, Weighed};
use crate::hint::Hint;
use crate::request::Request;
use cpuset::{CpuSet, NodeSet};
use topology::{Domain, Topology};

/// The most sets of NUMA nodes that an explanation names.
const MAX_SETS: usize = 8;

pub(super) fn explain(
    machine: &Topology,
    request: &Request,
    placement: Option<&Placement>,
) -> Weighed {
    let supply = Supply::of(machine, request);
    let view = supply.view(machine, request);
    let costs = match supply.place(machine, request) {
        Ok((_, cost, second)) => Some((cost, second)),
        Err(_) => None,
    };
    let mut weighed =
        Weighed { uncores: caches(machine, &view, request, placement), ..Weighed::default() };
    if let Some(placement) = placement {
        weighed.reasons = reasons(machine, request, placement, costs);
    }
    weigh_nodes(machine, request, &view, placement, &mut weighed);
    weighed
}

/// Adds the smallest sets of nodes with room, the nearest ones first.
fn weigh_nodes(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    placement: Option<&Placement>,
    weighed: &mut Weighed,
) {
    let nodes = NodeBounds::all(view);
    let others = others(view, &nodes);
    let width = fewest_nodes(machine, cores(request), request.cpus);
    let taken = placement.map(|placement| nodes_of(machine, &placement.cpus));
    let base: usize = nodes.base.iter().map(|node| view.nodes[node]).sum();
    let fewest = usize::from(nodes.base.is_empty());
    for size in fewest..=others.len() {
        let candidates = sets(view, &nodes, &others, size, request.cpus, false);
        if candidates.is_empty() {
            continue;
        }
        let preferred = if size + nodes.base.len() <= width { candidates.len() } else { 0 };
        weighed.numa_sets = Some((candidates.len(), preferred));
        for (at, candidate) in candidates.iter().enumerate() {
            let all = candidate.nodes.union(nodes.base);
            let ids: NodeSet = all.iter().map(|at| machine.nodes()[at].id).collect();
            let chosen = taken == Some(ids);
            if at < MAX_SETS || chosen {
                let hint = Hint { nodes: Some(ids), preferred: size + nodes.base.len() <= width };
                weighed.numa.push(NumaCandidate { hint, free: base + candidate.free, chosen });
            }
        }
        return;
    }
}

fn nodes_of(machine: &Topology, cpus: &CpuSet) -> NodeSet {
    let nodes = machine.nodes().iter().filter(|node| !node.cpus.is_disjoint(cpus));
    nodes.map(|node| node.id).collect()
}

fn caches(
    machine: &Topology,
    view: &View<'_>,
    request: &Request,
    placement: Option<&Placement>,
) -> Vec<CacheCandidate> {
    let room = super::capacity::by_cache(machine, view);
    let free = ((request.free | request.reuse.cpus) & machine.online()) - request.settings.reserved;
    let taken = placement.map(|placement| placement.cpus).unwrap_or_default();
    let candidate = |(uncore, room): (&Domain, &usize)| CacheCandidate {
        id: uncore.id,
        free: uncore.cpus & free,
        fits: *room >= request.cpus,
        taken: (uncore.cpus & taken).len(),
    };
    machine.uncores().iter().zip(&room).map(candidate).collect()
}

fn reasons(
    machine: &Topology,
    request: &Request,
    placement: &Placement,
    costs: Option<(Cost, Option<Cost>)>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let nodes = nodes_of(machine, &placement.cpus);
    if let Some((cost, second)) = costs {
        let room = if is_strict(request) { " most room for large requests," } else { "" };
        reasons.push(format!(
            "placement compact: fewest NUMA nodes, then fewest sockets, nearest nodes,{room} fewest uncore caches, fewest shared cores, most CPUs of ended init containers, fewest broken cores, smallest remainders. Chosen: {cost}."
        ));
        if let Some(second) = second {
            let why = cost.advantage(&second);
            reasons.push(format!("Best other place: {second}; {why}."));
        }
    }
    let manager = &request.settings.topology_manager;
    if is_strict(request) {
        let n = request.pod.map_or(request.cpus, |pod| pod.cpus);
        let width = fewest_nodes(machine, cores(request), n);
        reasons.push(format!(
            "topologyManagerPolicy {} admits {}.",
            manager.policy.name(),
            counted(width, "NUMA node")
        ));
    }
    if request.pod_options.takes_caches() {
        reasons.push("Whole uncore caches: the fewest that are free.".to_owned());
    }
    if request.pod.is_some()
        && let Some(affinity) = placement.hint.nodes
    {
        reasons.push(format!("The NUMA affinity of its pod: {affinity}; it is on {nodes}."));
    }
    if !request.devices.is_empty() {
        reasons.push(format!("Its devices are on NUMA node {}.", request.devices.all()));
    }
    reasons
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
