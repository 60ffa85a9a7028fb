//! `uncore: require`: all CPUs of a container are in the fewest uncore caches that could hold them
//! on the empty machine, or the container is refused.
//!
//! The number of caches does not depend on what is free: a container that fits one cache waits
//! until one has room. The search tries sets of caches in order. Each try is an ordinary allocation
//! from these caches alone, so that all other rules hold: the topology manager's policy may admit
//! one set of caches and not another.
//!
//! `uncore: exclusive` searches the caches that are entirely free now, in the same way. It takes
//! the fewest of these that suffice, or more if the policy admits no set of that few.

use crate::caches;
use crate::combinations::next_combination;
use crate::compact::{Cores, cores, fewest_caches, fewest_nodes};
use crate::cores::{CoreSizes, Domains};
use crate::engine::Placement;
use crate::hint::Hint;
use crate::kubelet::allocate::{self, Supply, cpus_inside};
use crate::kubelet::devices::{self, Others};
use crate::rejection::Rejection;
use crate::request::Request;
use crate::strategy::UncoreOrder;
use crate::topology_manager::TopologyPolicy;
use cpuset::CpuSet;
use std::cmp::Reverse;
use topology::Topology;

/// As [`allocate()`](allocate::allocate), in the fewest uncore caches.
///
/// # Errors
/// [`Reason::UncoreAlignment`](crate::Reason::UncoreAlignment) if no set of that few caches has
/// room; otherwise the first rejection of such a set.
pub(super) fn allocate(
    topology: &Topology,
    request: &Request,
    supply: &Supply,
    within: Option<Hint>,
) -> Result<Placement, Rejection> {
    let &Request { ref settings, cpus: n, .. } = request;
    let mut left = supply.usable(topology, settings);
    let options = &settings.options;
    let near = match within {
        Some(hint) => hint.nodes,
        None if request.devices.is_empty() => None,
        None => Some(request.devices.all()),
    };
    let near = near.map(|nodes| cpus_inside(topology, nodes, options.align_by_socket));
    // Under a strict policy all CPUs must be in the nodes of the pod. Otherwise these nodes come
    // first, and so do those of devices, about which `devices::affinity` decides.
    let must = within.is_some()
        && matches!(
            settings.topology_manager.policy,
            TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode
        );
    if must && let Some(near) = near {
        left &= near;
    }
    let free = caches_of(topology, &left);
    let (fewest, most) = if request.pod_options.takes_caches() {
        (caches::fewest(free.iter().map(CpuSet::len).collect(), n), free.len())
    } else {
        let fewest = fewest_caches(topology, request);
        (fewest, fewest)
    };
    let mut why = None;
    for count in fewest..=most {
        let mut candidates =
            candidates(topology, &left, n, count, options.uncore_order, cores(request));
        if let Some(near) = near {
            candidates.sort_by_key(|caches| caches.common(&near) < n);
        }
        for caches in candidates {
            let part = Supply { free: supply.free & caches, reusable: supply.reusable & caches };
            let hint = match within {
                Some(hint) => Ok(hint),
                None => devices::affinity(topology, settings, &part, n, Others::of(request)),
            };
            let chosen =
                hint.and_then(|hint| allocate::allocate(topology, settings, &part, n, Some(hint)));
            match chosen {
                Ok(allocation) => return Ok(allocation),
                Err(rejection) => why = why.or(Some(rejection)),
            }
        }
    }
    Err(why.unwrap_or_else(|| {
        let room = roomiest(&free, fewest).len();
        Rejection::uncore_alignment(n, fewest, room)
    }))
}

/// Parts of `free` in `fewest` uncore caches that can hold `n` CPUs: within a cache, as few NUMA
/// nodes as the request needs, a socket, and the machine, in this order; on each level those with
/// the fewest CPUs first, or by number.
fn candidates(
    topology: &Topology,
    free: &CpuSet,
    n: usize,
    fewest: usize,
    order: UncoreOrder,
    cores: Cores,
) -> Vec<CpuSet> {
    let levels: [Vec<CpuSet>; 4] = [
        topology.uncores().iter().map(|cache| cache.cpus).collect(),
        node_sets(topology, fewest_nodes(topology, cores, n)),
        topology.sockets().iter().map(|socket| socket.cpus).collect(),
        vec![topology.online()],
    ];
    let mut candidates = Vec::new();
    for level in levels {
        let caches = level.iter().map(|domain| caches_of(topology, &(*free & *domain)));
        let mut sets: Vec<CpuSet> = caches
            .filter_map(|caches| match cores {
                Cores::Whole if !topology.cores_are_equal() => {
                    that_add_up(topology, &caches, n, fewest)
                }
                _ => tightest(&caches, n, fewest),
            })
            .collect();
        if order == UncoreOrder::FewestFree {
            sets.sort_by_key(CpuSet::len);
        }
        sets.retain(|set| !candidates.contains(set));
        candidates.extend(sets);
    }
    candidates
}

/// On machines with more NUMA nodes, only single ones are compared.
const MAX_NODES: usize = 8;

/// The CPUs of all sets of `size` NUMA nodes.
fn node_sets(topology: &Topology, size: usize) -> Vec<CpuSet> {
    let nodes = topology.nodes();
    let size = if nodes.len() <= MAX_NODES { size.max(1) } else { 1 };
    let mut sets = Vec::new();
    let mut chosen: Vec<usize> = (0..size).collect();
    loop {
        sets.push(chosen.iter().map(|&at| nodes[at].cpus).collect());
        if !next_combination(&mut chosen, nodes.len()) {
            return sets;
        }
    }
}

/// The free CPUs of each cache that has any, the most first.
fn caches_of(topology: &Topology, free: &CpuSet) -> Vec<CpuSet> {
    let parts = topology.uncores().iter().map(|cache| cache.cpus & *free);
    let mut parts: Vec<CpuSet> = parts.filter(|part| !part.is_empty()).collect();
    parts.sort_by_key(|part| Reverse(part.len()));
    parts
}

fn roomiest(caches: &[CpuSet], fewest: usize) -> CpuSet {
    caches.iter().take(fewest).copied().collect()
}

/// The caches with the fewest CPUs whose cores add up to `n` CPUs; `None` if these are too many.
fn that_add_up(topology: &Topology, caches: &[CpuSet], n: usize, fewest: usize) -> Option<CpuSet> {
    let sizes: Vec<CoreSizes> = caches.iter().map(|cpus| CoreSizes::of(topology, cpus)).collect();
    let smallest_first: Vec<usize> = (0..caches.len()).rev().collect();
    let chosen = Domains { sizes: &sizes, n }.first(&[], &smallest_first)?;
    if chosen.len() <= fewest { Some(chosen.iter().map(|&at| caches[at]).collect()) } else { None }
}

/// The roomiest caches, except that the last one is the smallest that suffices; `None` if they
/// cannot hold `n` CPUs.
fn tightest(caches: &[CpuSet], n: usize, fewest: usize) -> Option<CpuSet> {
    let first = roomiest(caches, fewest.saturating_sub(1));
    let rest = caches.iter().skip(fewest.saturating_sub(1));
    let last = rest.rev().find(|cache| n <= first.len() + cache.len())?;
    Some(first | *last)
}
