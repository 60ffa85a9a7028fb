//! The CPUs of a running container, with either engine: the kubelet has no such algorithm, because it
//! refuses to resize exclusive CPUs in place. [`grow`] keeps every CPU and chooses more by the same
//! cost as for a new container; [`shrink`] keeps the cheapest part; [`complete`] replaces CPUs that
//! went offline.
//!
//! The NUMA affinity is no reason to refuse: the topology manager's policy decides where a
//! container may start (KEP-693), and a resize is no start.

use super::capacity::{by_cache, cores, fewest_caches};
use super::place::has_enough;
use super::search::{SearchDemand, search};
use super::sets::NodeBounds;
use super::view::{Cores, View};
use crate::caches::{fewest, whole_caches};
use crate::cores::{CoreSizes, Reachable, only_whole_cores, whole_cores};
use crate::pod_options::Uncore;
use crate::rejection::{NotEnough, Rejection};
use crate::request::Request;
use crate::sizes::nearest;
use cpuset::CpuSet;
use topology::Topology;

/// `held` and the cheapest CPUs that make it as many as requested.
pub(crate) fn grow(
    machine: &Topology,
    request: &Request,
    held: &CpuSet,
) -> Result<CpuSet, Rejection> {
    let view = growth_view(machine, request, held);
    if request.pod_options.takes_caches() {
        return grow_in_whole_caches(machine, request, &view, held);
    }
    check_whole_cores(machine, request, &view, held)?;
    has_enough(machine, request, &view, held.len())?;
    let mut most_caches = usize::MAX;
    if request.pod_options.uncore == Some(Uncore::Require) {
        let fewest = fewest_caches(machine, request);
        most_caches = fewest.saturating_sub(view.held_caches.len());
        // Growth never leaves a cache, so CPUs in too many caches cannot meet the pod option.
        if fewest < view.held_caches.len() {
            return Err(too_few_in_caches(machine, request, &view, held, fewest));
        }
    }
    let demand = SearchDemand {
        cpus: request.cpus - held.len(),
        nodes: NodeBounds::all(&view),
        most_caches,
        align: request.pod_options.uncore != Some(Uncore::Ignore),
    };
    match add(machine, &view, demand, held) {
        Some(cpus) => Ok(cpus),
        None if most_caches < usize::MAX => {
            let fewest = most_caches + view.held_caches.len();
            Err(too_few_in_caches(machine, request, &view, held, fewest))
        }
        None => Err(not_enough(request, &view, held)),
    }
}

/// Checks that `held` and what can be added to it have whole cores with as many CPUs as requested.
fn check_whole_cores(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    held: &CpuSet,
) -> Result<(), Rejection> {
    if cores(request) != Cores::Whole {
        return Ok(());
    }
    let all = only_whole_cores(machine, &(view.usable_cpus() | *held));
    let all = CoreSizes::of(machine, &all);
    if all.add_up_to(request.cpus) && view.can_give(request.cpus - held.len()) {
        Ok(())
    } else {
        let more = Reachable::of(&view.usable_cores().map(|core| core.len()).collect());
        let fits = |n: usize| n >= held.len() && more.has(n - held.len()) && all.add_up_to(n);
        let fits = nearest(request.cpus, all.total(), fits);
        Err(Rejection::whole_cores(machine, request.cpus, &all, &fits))
    }
}

fn not_enough(request: &Request, view: &View<'_>, held: &CpuSet) -> Rejection {
    NotEnough { requested: request.cpus, available: view.total + held.len() }.into()
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
    check_whole_cores(machine, request, view, held)?;
    has_enough(machine, request, view, held.len())?;
    let own = own_caches_view(machine, request, held);
    add_whole_caches(machine, view, &own, held, n - held.len())
        .ok_or_else(|| not_enough(request, view, held))
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
    let usable = request.pod_options.in_its_caches(machine, &usable, held);
    View::new(machine, &usable, held, &CpuSet::EMPTY, cores(request))
}

/// Adds the CPUs of a demand to `held`; `None` if there are too few, or in too many caches.
fn add(machine: &Topology, view: &View<'_>, demand: SearchDemand, held: &CpuSet) -> Option<CpuSet> {
    if demand.cpus == 0 {
        return Some(*held);
    }
    let mut cpus = *held;
    if let Some((choice, _)) = search(view, demand) {
        choice.take(view, &mut cpus);
        return Some(cpus);
    }
    // Only nodes with numbers past the limit of a `NodeSet` have room.
    let is_limited = demand.most_caches < machine.uncores().len();
    if !is_limited && view.take_anywhere(demand.cpus, &mut cpus) { Some(cpus) } else { None }
}

/// The cheapest part of `held` with the requested number of CPUs: whole cores with
/// `full-pcpus-only`, unless the container started before that option and holds parts of cores.
pub(crate) fn shrink(
    machine: &Topology,
    request: &Request,
    held: &CpuSet,
) -> Result<CpuSet, Rejection> {
    let n = request.cpus;
    let part = |cores: Cores| {
        let view = View::new(machine, held, &CpuSet::EMPTY, &CpuSet::EMPTY, cores);
        let demand = SearchDemand {
            cpus: n,
            nodes: NodeBounds::all(&view),
            most_caches: usize::MAX,
            align: true,
        };
        if view.can_give(n) { add(machine, &view, demand, &CpuSet::EMPTY) } else { None }
    };
    let wants_whole = cores(request) == Cores::Whole;
    if wants_whole && let Some(whole) = part(Cores::Whole) {
        return Ok(whole);
    }
    if wants_whole && whole_cores(machine, held) == *held {
        let cores = CoreSizes::of(machine, held);
        let fits = nearest(n, held.len(), |other| cores.add_up_to(other));
        return Err(Rejection::whole_cores(machine, n, &cores, &fits).of_resize(n, held.len()));
    }
    part(Cores::Any).ok_or_else(|| NotEnough { requested: n, available: held.len() }.into())
}

/// `left` and replacements for the CPUs that went offline. The container did not ask for a change,
/// so rules about requests do not refuse it: with `full-pcpus-only` cores are split only where whole
/// ones do not add up. `broken` are online CPUs of cores that lost a thread; they are given back
/// where that helps.
pub(crate) fn complete(
    machine: &Topology,
    request: &Request,
    left: &CpuSet,
    broken: &CpuSet,
) -> Result<CpuSet, NotEnough> {
    let others = *left - *broken;
    let attempts: &[(CpuSet, Splits)] = if cores(request) == Cores::Whole {
        &[(*left, Splits::No), (others, Splits::No), (others, Splits::Yes), (*left, Splits::Yes)]
    } else {
        &[(*left, Splits::No)]
    };
    let completed = attempts.iter().find_map(|(base, splits)| {
        let more = request.cpus.checked_sub(base.len())?;
        let view = splits.allow(growth_view(machine, request, base));
        if request.pod_options.takes_caches() && !base.is_empty() {
            let own = splits.allow(own_caches_view(machine, request, base));
            return add_whole_caches(machine, &view, &own, base, more);
        }
        let demand = SearchDemand {
            cpus: more,
            nodes: NodeBounds::all(&view),
            most_caches: usize::MAX,
            align: true,
        };
        if view.can_give(more) { add(machine, &view, demand, base) } else { None }
    });
    let available = (request.free | *left).len();
    completed.ok_or(NotEnough { requested: request.cpus, available })
}

/// Whether replacements may be parts of cores.
#[derive(Clone, Copy)]
enum Splits {
    No,
    Yes,
}

impl Splits {
    fn allow(self, view: View<'_>) -> View<'_> {
        match self {
            Splits::No => view,
            Splits::Yes => view.breaking_cores(),
        }
    }
}
