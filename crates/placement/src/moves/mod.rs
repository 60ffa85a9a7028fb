//! Plans of moves: containers that run on exclusive CPUs make room for a newcomer, or for one of
//! them that is placed badly.
//!
//! Placement alone cannot keep a machine in order: containers end, and what they leave is
//! scattered. A few moves can. A plan lifts up to three containers, asks the engine to place the
//! newcomer, then them, and counts what everybody gains and loses ([`badness()`]):
//!
//! ```text
//! sets ── lift one ── place the newcomer ── place the lifted ── gain? ── can it be done? ── the best
//! (sets, candidates)            (trial, calls)              (badness)      (steps)
//! ```
//!
//! Sets are tried in the order of what they could gain by the number of CPUs alone, and the engine
//! is given a limited amount of work: a plan takes bounded time, and may miss something.
//!
//! Like the engine, all of this is pure. It decides nothing: who is movable, how many moves a node
//! can bear, and carrying a plan out are the ledger's business.

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
use trial::{Search, Subject};

/// The engine's work for one plan, in calls for a request that fits into one NUMA node: such a call
/// takes a few microseconds.
const MOST_CALLS: usize = 1_000;

/// How many containers that are placed badly are looked at for one plan.
const MOST_SUBJECTS: usize = 8;

/// The best plan for a container that starts; `None` if moves gain nothing.
///
/// `free` are the CPUs that are exclusive to no container, as in [`Request::free`], and take the
/// place of the newcomer's. `placed` is where it would go without moves, `None` if it is refused.
pub fn for_arrival(
    machine: &Topology,
    free: CpuSet,
    residents: &[Resident],
    newcomer: &Request,
    placed: Option<&Placement>,
    limits: &Limits,
) -> Option<Plan> {
    let mut calls = Calls::at_most(machine, MOST_CALLS);
    let ctx = Ctx { machine, free, residents, limits };
    arrival(&mut calls, &ctx, newcomer, placed)
}

fn arrival(
    calls: &mut Calls<'_>,
    ctx: &Ctx<'_>,
    newcomer: &Request,
    placed: Option<&Placement>,
) -> Option<Plan> {
    let Ctx { machine, free, residents, limits } = *ctx;
    let need = Needs::of(machine).need(newcomer);
    let badness = match placed {
        Some(placement) => need.badness(&Occupancy::of(machine, &placement.cpus)),
        None => REFUSED,
    };
    if badness == 0 || limits.containers == 0 {
        return None;
    }
    let allowed = |cpus: CpuSet| newcomer.settings.isolated.allowed(machine, &cpus);
    let usable = ((free | newcomer.reuse.cpus()) & machine.online()) - newcomer.settings.reserved;
    let usable = allowed(usable);
    let has_room = placed.is_some() || usable.len() >= newcomer.cpus;
    if !has_room || placed.is_none() && !could_be_admitted(calls, ctx, newcomer) {
        return None;
    }
    let profiles = Profile::all(machine, residents);
    let subject = Subject::Newcomer { request: newcomer, need, badness };
    let mut search = Search::new(ctx, &profiles, subject, &usable);
    search.run(calls);
    search.best
}

/// Whether the newcomer would be admitted if all residents were gone.
fn could_be_admitted(calls: &mut Calls<'_>, ctx: &Ctx<'_>, newcomer: &Request) -> bool {
    let held = ctx.residents.iter().map(|one| one.request.footprint(ctx.machine, &one.held));
    let held: CpuSet = held.collect();
    let isolated = newcomer.settings.isolated;
    let promised = newcomer.promised + isolated.allowed(ctx.machine, &held).len();
    calls.place(&Request { free: ctx.free | held, promised, ..*newcomer }).is_some()
}

/// The best plan for the container that is placed worst, or else for the next one; `None` if moves
/// gain nothing.
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
        let mut search = Search::new(ctx, &profiles, Subject::Resident(at), &usable);
        search.run(calls);
        if search.best.is_some() || calls.left() == 0 {
            return search.best;
        }
    }
    None
}
