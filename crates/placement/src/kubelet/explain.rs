//! What the engine considered for a request. It is computed again from the request.

use super::allocate::{Supply, cpus_inside};
use super::attempt::{Attempt, attempts, pod_supply};
use super::with_options::narrowed;
use crate::engine::{CacheCandidate, NumaCandidate, Placement, Weighed};
use crate::hint::Hint;
use crate::pod_options::Uncore;
use crate::request::Request;
use crate::strategy::UncoreOrder;
use crate::topology_manager::TopologyPolicy;
use cpuset::{CpuSet, NodeSet};
use std::borrow::Cow;
use topology::{Domain, Topology};

/// The most sets of NUMA nodes that an explanation names.
const MAX_SETS: usize = 8;
/// On machines with more nodes, an explanation lists no sets: their number doubles with each node.
const MAX_NODES: usize = 8;

pub(super) fn explain(
    machine: &Topology,
    request: &Request,
    placement: Option<&Placement>,
) -> Weighed {
    let attempts = attempts(machine, request);
    // The first attempt that leads to the placement decided; a refusal is the one of the kubelet.
    let decisive = |attempt: &&Attempt| match placement {
        Some(placement) => attempt.place(machine, request).as_ref() == Ok(placement),
        None => false,
    };
    let Some(attempt) = attempts.iter().find(decisive).or(attempts.first()) else {
        return Weighed::default();
    };
    let (sets, supply) = numa_sets(machine, request, &attempt.affinity_supply());
    let chosen = placement.map(|placement| placement.hint.nodes);
    let mut numa = Vec::new();
    for (at, hint) in sets.iter().flatten().enumerate() {
        let chosen = chosen == Some(hint.nodes);
        if at < MAX_SETS || chosen {
            let inside = cpus_inside(machine, hint.nodes.unwrap_or_default(), false);
            numa.push(NumaCandidate { hint: *hint, free: (inside & supply).len(), chosen });
        }
    }
    let preferred = |sets: &Vec<Hint>| sets.iter().filter(|hint| hint.preferred).count();
    Weighed {
        reasons: placement.map_or_else(Vec::new, |placement| reasons(request, placement.hint)),
        numa,
        numa_sets: sets.as_ref().map(|sets| (sets.len(), preferred(sets))),
        uncores: caches(machine, request, attempt, placement),
    }
}

/// Sets of NUMA nodes that have room, the narrowest first, and the CPUs that were counted. `None`
/// if nodes do not matter or the sets are too many to list.
fn numa_sets(
    machine: &Topology,
    request: &Request,
    supply: &Supply,
) -> (Option<Vec<Hint>>, CpuSet) {
    let settings = &request.settings;
    let (machine, supply, n) = match &request.pod {
        Some(pod) => (Cow::Borrowed(machine), pod_supply(request, pod), pod.cpus),
        None => {
            let (machine, supply) = narrowed(machine, request, supply);
            (machine, supply, request.cpus)
        }
    };
    let available = supply.free - settings.reserved;
    let listed = settings.topology_manager.policy != TopologyPolicy::None
        && machine.nodes().len() <= MAX_NODES;
    let demand = supply.demand(&machine, settings, n);
    let sets = if listed { Some(demand.enumerate()) } else { None };
    (sets, available | supply.reusable)
}

fn caches(
    machine: &Topology,
    request: &Request,
    attempt: &Attempt,
    placement: Option<&Placement>,
) -> Vec<CacheCandidate> {
    let supply = attempt.affinity_supply();
    let free = (supply.free | supply.reusable) - request.settings.reserved;
    let taken = placement.map(|placement| placement.cpus).unwrap_or_default();
    let usable = supply.usable(machine, &request.settings);
    let offered = request.pod_options.offered(machine, &usable, &CpuSet::EMPTY);
    let candidate = |uncore: &Domain| CacheCandidate {
        id: uncore.id,
        free: uncore.cpus & free,
        // `offered` has one CPU of each core if siblings must stay idle.
        fits: (uncore.cpus & offered).len() >= request.cpus,
        taken: (uncore.cpus & taken).len(),
    };
    machine.uncores().iter().map(candidate).collect()
}

fn named(nodes: NodeSet) -> String {
    format!("NUMA node{} {nodes}", if nodes.len() == 1 { "" } else { "s" })
}

fn reasons(request: &Request, hint: Hint) -> Vec<String> {
    let Request { settings, pod_options, devices, pod, .. } = request;
    let manager = &settings.topology_manager;
    let policy = manager.policy.name();
    let mut why = vec![match hint.nodes {
        _ if manager.policy == TopologyPolicy::None => {
            format!("topologyManagerPolicy {policy}: NUMA nodes had no say.")
        }
        None => format!("topologyManagerPolicy {policy}: any NUMA node was as good."),
        Some(nodes) => {
            let of = match pod {
                Some(pod) => format!(" for the {} CPUs of its pod", pod.cpus),
                None => String::new(),
            };
            let fit = if hint.preferred {
                "as good as any could be"
            } else {
                "the best there was; on an empty machine there would be better ones"
            };
            format!("topologyManagerPolicy {policy}: {}{of}, {fit}.", named(nodes))
        }
    }];
    if !devices.is_empty() && manager.policy != TopologyPolicy::None {
        why.push(format!("Its devices are on {}.", named(devices.all())));
    }
    if pod_options.takes_caches() {
        why.push("Whole uncore caches: the fewest that are free.".to_owned());
    } else if settings.options.prefer_align_cpus_by_uncorecache {
        let order = match settings.options.uncore_order {
            UncoreOrder::FewestFree => "the one with the fewest free CPUs first",
            UncoreOrder::Numerical => "by number",
        };
        let by = match pod_options.uncore {
            Some(Uncore::Prefer) => "uncore: prefer",
            Some(Uncore::Require) => "uncore: require",
            Some(Uncore::Ignore) => "uncore: ignore",
            Some(Uncore::Exclusive) | None => "prefer-align-cpus-by-uncorecache",
        };
        why.push(format!(
            "{by}: whole uncore caches first, then one that can hold the rest, {order}."
        ));
    }
    why
}
