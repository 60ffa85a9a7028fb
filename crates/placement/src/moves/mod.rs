//! Plans of moves: containers that run on exclusive CPUs make room for a new container, or for one
//! of them that is placed badly.
//!
//! Placement alone cannot keep a machine in order: containers end, and the CPUs that they leave are
//! scattered. A few moves can. A plan lifts up to three containers off their CPUs, has the engine
//! place the new container and then the lifted ones, and sums up the gains and losses of all
//! ([`badness()`]):
//!
//! ```text
//! sets ── lift one ── place the new one ── place the lifted ── gain? ── can it be done? ── the best
//! (sets, candidates)           (trial, calls)              (badness)      (steps)
//! ```
//!
//! Sets are tried in the order of their possible gain, by numbers of CPUs alone. The engine does
//! only a limited amount of work, so a plan takes bounded time, and a better one may exist.
//!
//! Like the engines, this is pure. The ledger decides which containers are movable and how many
//! moves a node can bear, and carries plans out.

mod badness;
mod calls;
mod candidates;
mod occupancy;
mod plan;
mod profile;
mod sets;
mod steps;
#[cfg(test)]
mod tests;
mod trial;

pub use badness::badness;
pub use plan::{Limits, Move, Plan, REFUSED, Resident, Step};

use super::engine::Placement;
use super::request::Request;
use badness::Needs;
use calls::Calls;
use cpuset::CpuSet;
use occupancy::Occupancy;
use plan::Ctx;
use profile::Profile;
use std::cmp::Reverse;
use topology::Topology;
use trial::{MoveSearch, Subject};

/// The limit of the engine's work for one plan, in calls for a request that fits one NUMA node.
/// Such a call takes a few microseconds.
const MOST_CALLS: usize = 1_000;

/// How many badly placed containers are tried for one plan.
const MOST_SUBJECTS: usize = 8;

/// The best plan for a container that starts with `request`; `None` if moves gain nothing.
///
/// `free` are the CPUs that are exclusive to no container; they replace [`Request::free`].
/// `unmoved` is the placement without moves; `None` if the container is refused without them.
pub fn for_arrival(
    machine: &Topology,
    free: CpuSet,
    residents: &[Resident],
    request: &Request,
    unmoved: Option<&Placement>,
    limits: &Limits,
) -> Option<Plan> {
    let mut calls = Calls::at_most(machine, MOST_CALLS);
    let ctx = Ctx { machine, free, residents, limits };
    arrival(&mut calls, &ctx, request, unmoved)
}

fn arrival(
    calls: &mut Calls<'_>,
    ctx: &Ctx<'_>,
    request: &Request,
    unmoved: Option<&Placement>,
) -> Option<Plan> {
    let Ctx { machine, free, residents, limits } = *ctx;
    let need = Needs::of(machine).need(request);
    let badness = match unmoved {
        Some(placement) => need.badness(&Occupancy::of(machine, &placement.cpus)),
        None => REFUSED,
    };
    if badness == 0 || limits.containers == 0 {
        return None;
    }
    let usable = ((free | request.reuse.cpus) & machine.online()) - request.settings.reserved;
    let usable = request.settings.isolated.allowed(machine, &usable);
    // Moves leave the number of free CPUs as it is, so a container that is refused needs enough of
    // them.
    if unmoved.is_none() && (usable.len() < request.cpus || !could_be_admitted(calls, ctx, request))
    {
        return None;
    }
    let profiles = Profile::all(machine, residents);
    let subject = Subject::New { request, need, badness };
    let mut search = MoveSearch::new(ctx, &profiles, subject, &usable);
    search.run(calls);
    search.best
}

/// Whether the new container would be admitted on the machine without residents. The CPUs of these
/// are promised, so that only their placement changes.
fn could_be_admitted(calls: &mut Calls<'_>, ctx: &Ctx<'_>, request: &Request) -> bool {
    let held = ctx.residents.iter().map(|one| one.request.footprint(ctx.machine, &one.held));
    let held: CpuSet = held.collect();
    let isolated = request.settings.isolated;
    let promised = request.promised + isolated.allowed(ctx.machine, &held).len();
    calls.place(&Request { free: ctx.free | held, promised, ..*request }).is_some()
}

/// The best plan for the worst placed container for which there is one; `None` if moves gain
/// nothing.
///
/// `free` is as in [`for_arrival`].
pub fn for_departure(
    machine: &Topology,
    free: CpuSet,
    residents: &[Resident],
    limits: &Limits,
) -> Option<Plan> {
    let mut calls = Calls::at_most(machine, MOST_CALLS);
    departure(&mut calls, &Ctx { machine, free, residents, limits })
}

fn departure(calls: &mut Calls<'_>, ctx: &Ctx<'_>) -> Option<Plan> {
    let Ctx { machine, free, residents, limits } = *ctx;
    if limits.containers == 0 {
        return None;
    }
    let profiles = Profile::all(machine, residents);
    let is_bad = |&at: &usize| profiles[at].movable && profiles[at].badness > 0;
    let mut worst: Vec<usize> = (0..residents.len()).filter(is_bad).collect();
    worst.sort_by_key(|&at| (Reverse(profiles[at].badness), residents[at].held.len()));
    for at in worst.into_iter().take(MOST_SUBJECTS) {
        let reserved = residents[at].request.settings.reserved;
        let usable = ((free | profiles[at].footprint) & machine.online()) - reserved;
        let mut search = MoveSearch::new(ctx, &profiles, Subject::Resident(at), &usable);
        search.run(calls);
        if search.best.is_some() || calls.left() == 0 {
            return search.best;
        }
    }
    None
}
