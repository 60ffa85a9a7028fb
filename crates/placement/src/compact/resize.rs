//! [`resize()`]: the CPUs of a running container. One that grows keeps its CPUs and gets more by
//! the same cost as at its start. One that shrinks keeps the cheapest part of its CPUs.
//!
//! The NUMA affinity is no reason to refuse: the topology manager's policy decides where a
//! container may start (KEP-693), and a resize is no start.

use super::capacity::{by_cache, cores, fewest_caches};
use super::place::{has_enough, place};
use super::search::{SearchDemand, search};
use super::sets::NodeBounds;
use super::view::{Cores, View};
use crate::caches::{fewest, whole_caches};
use crate::rejection::{NotEnough, Rejection};
use crate::request::{Request, Running};
use crate::topology_manager::TopologyPolicy;
use crate::wishes::Uncore;
use cpuset::CpuSet;
use topology::Topology;

pub(super) fn resize(
    machine: &Topology,
    request: &Request,
    running: &Running,
) -> Result<CpuSet, Rejection> {
    let mut request = *request;
    let policy = &mut request.settings.topology_manager.policy;
    if *policy != TopologyPolicy::None {
        *policy = TopologyPolicy::BestEffort;
    }
    match running {
        Running::Shared => Ok(place(machine, &request)?.cpus),
        Running::Exclusive(held) if request.cpus < held.len() => shrink(machine, &request, held),
        Running::Exclusive(held) => grow(machine, &request, held),
        Running::Reduced { left, broken } => Ok(complete(machine, &request, left, broken)?),
    }
}

fn grow(machine: &Topology, request: &Request, held: &CpuSet) -> Result<CpuSet, Rejection> {
    let view = growth_view(machine, request, held);
    if request.wishes.takes_caches() {
        return grow_in_whole_caches(machine, request, &view, held);
    }
    has_enough(machine, request, &view, held.len())?;
    let mut most_caches = usize::MAX;
    if request.wishes.uncore == Some(Uncore::Require) {
        let fewest = fewest_caches(machine, request);
        most_caches = fewest.saturating_sub(view.held_caches.len());
        // Growth never leaves a cache, so CPUs in too many caches cannot meet the wish.
        if fewest < view.held_caches.len() {
            return Err(too_few_in_caches(machine, request, &view, held, fewest));
        }
    }
    let demand = SearchDemand {
        cpus: request.cpus - held.len(),
        nodes: NodeBounds::all(&view),
        most_caches,
        align: request.wishes.uncore != Some(Uncore::Ignore),
    };
    match add(machine, &view, demand, held) {
        Some(cpus) => Ok(cpus),
        None if most_caches < usize::MAX => {
            let fewest = most_caches + view.held_caches.len();
            Err(too_few_in_caches(machine, request, &view, held, fewest))
        }
        None => Err(Rejection::cores_of_other_sizes(request.cpus)),
    }
}

fn grow_in_whole_caches(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    held: &CpuSet,
) -> Result<CpuSet, Rejection> {
    let n = request.cpus;
    if view.total + held.len() < n {
        let usable = (request.free & machine.online()) - request.settings.reserved;
        return Err(request.too_few_caches(machine, &usable, held));
    }
    has_enough(machine, request, view, held.len())?;
    let own = own_caches_view(machine, request, held);
    add_whole_caches(machine, view, &own, held, n - held.len())
        .ok_or_else(|| Rejection::cores_of_other_sizes(n))
}

/// Adds `more` CPUs to `held`: of its own uncore caches, and if these have too few, of the fewest
/// other caches that are entirely free.
fn add_whole_caches(
    machine: &Topology,
    view: &View<'_>,
    own: &View<'_>,
    held: &CpuSet,
    more: usize,
) -> Option<CpuSet> {
    let demand = SearchDemand {
        cpus: more,
        nodes: NodeBounds::all(view),
        most_caches: usize::MAX,
        align: true,
    };
    if more <= own.total {
        return add(machine, own, demand, held);
    }
    let rooms = by_cache(machine, view).into_iter().enumerate();
    let others: Vec<usize> =
        rooms.filter(|(at, n)| *n > 0 && !view.held_caches.contains(at)).map(|(_, n)| n).collect();
    let most = others.len();
    let mut counts = fewest(others, more - own.total)..=most;
    counts.find_map(|most_caches| add(machine, view, SearchDemand { most_caches, ..demand }, held))
}

/// The CPUs that a container which holds `held` can get in the uncore caches of `held`.
fn own_caches_view<'m>(machine: &'m Topology, request: &Request, held: &CpuSet) -> View<'m> {
    let own = whole_caches(machine, held);
    growth_view(machine, &Request { free: request.free & own, ..*request }, held)
}

fn too_few_in_caches(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    held: &CpuSet,
    fewest: usize,
) -> Rejection {
    let cells = machine.cells().all().iter().zip(&view.loads);
    let own = cells.filter(|(cell, _)| view.held_caches.contains(&cell.uncore));
    let room: usize = own.map(|(_, load)| load.free).sum();
    Rejection::uncore_alignment(request.cpus, fewest, held.len() + room)
}

/// The CPUs that a container which holds `held` can get.
fn growth_view<'m>(machine: &'m Topology, request: &Request, held: &CpuSet) -> View<'m> {
    let usable = (request.free & machine.online()) - request.settings.reserved;
    let usable = request.wishes.in_its_caches(machine, &usable, held);
    View::new(machine, &usable, held, &CpuSet::EMPTY, cores(request))
}

/// Adds the CPUs of a demand to `held`; `None` if they do not add up, or are in too many caches.
fn add(machine: &Topology, view: &View<'_>, demand: SearchDemand, held: &CpuSet) -> Option<CpuSet> {
    if demand.cpus == 0 {
        return Some(*held);
    }
    let mut cpus = *held;
    let mut missing = demand.cpus;
    if let Some((choice, _)) = search(view, demand) {
        missing = choice.take(view, &mut cpus);
    } else if demand.most_caches < machine.uncores().len() {
        return None;
    }
    if missing > 0 {
        // Cores are of several sizes, or only nodes with numbers past the limit of a `NodeSet` have
        // room: take whatever is free.
        cpus = *held;
        missing = demand.cpus;
        for cell in 0..view.loads.len() {
            missing = view.take(cell, missing, &mut cpus);
        }
    }
    if missing == 0 { Some(cpus) } else { None }
}

/// The cheapest part of `held` with the requested number of CPUs.
fn shrink(machine: &Topology, request: &Request, held: &CpuSet) -> Result<CpuSet, Rejection> {
    let n = request.cpus;
    let per_core = machine.cpus_per_core();
    let wants_whole = cores(request) == Cores::Whole;
    if wants_whole && !n.is_multiple_of(per_core) {
        return Err(Rejection::partial_core(n, per_core));
    }
    let part = |cores: Cores| {
        let view = View::new(machine, held, &CpuSet::EMPTY, &CpuSet::EMPTY, cores);
        let demand = SearchDemand {
            cpus: n,
            nodes: NodeBounds::all(&view),
            most_caches: usize::MAX,
            align: true,
        };
        if n <= view.total { add(machine, &view, demand, &CpuSet::EMPTY) } else { None }
    };
    // A container may hold parts of cores if it started before the option was set.
    let whole = if wants_whole { part(Cores::Whole) } else { None };
    let remaining = whole.or_else(|| part(Cores::Any));
    remaining.ok_or_else(|| NotEnough { requested: n, available: held.len() }.into())
}

/// Replaces the CPUs that a container lost, by whole cores or not. The container did not ask for a
/// change, so rules about requests do not refuse it.
fn complete(
    machine: &Topology,
    request: &Request,
    left: &CpuSet,
    broken: &CpuSet,
) -> Result<CpuSet, NotEnough> {
    // With `full-pcpus-only`, first try to replace cores that lost a thread by whole ones.
    let whole = if request.settings.options.full_pcpus_only { *left - *broken } else { *left };
    let completed = [whole, *left].into_iter().find_map(|base| {
        let view = growth_view(machine, request, &base).breaking_cores();
        let demand = SearchDemand {
            cpus: request.cpus.checked_sub(base.len())?,
            nodes: NodeBounds::all(&view),
            most_caches: usize::MAX,
            align: true,
        };
        if request.wishes.takes_caches() && !base.is_empty() {
            let own = own_caches_view(machine, request, &base).breaking_cores();
            return add_whole_caches(machine, &view, &own, &base, demand.cpus);
        }
        if demand.cpus <= view.total { add(machine, &view, demand, &base) } else { None }
    });
    let available = (request.free | *left).len();
    completed.ok_or(NotEnough { requested: request.cpus, available })
}
