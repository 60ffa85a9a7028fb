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
//! is called a limited number of times: a plan takes bounded time, and may miss something.
//!
//! Like the engine, all of this is pure. It decides nothing: who is movable, how many moves a node
//! can bear, and carrying a plan out are the ledger's business.

mod badness;
mod calls;
mod candidates;
mod occupancy;
mod plan;
mod sets;
mod steps;
#[cfg(test)]
mod tests;
mod trial;

pub use badness::badness;
pub use plan::{Limits, Move, Plan, REFUSED, Resident, Step};
pub use steps::steps;

use super::engine::Placement;
use super::request::Request;
use crate::cpuset::CpuSet;
use crate::topology::Topology;
use badness::Needs;
use calls::Calls;
use occupancy::{Occupancy, Room};
use std::cmp::Reverse;
use trial::{Profile, Search, Subject};

/// The calls to the engine for one plan. One call takes a few microseconds.
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
    arrival(&mut calls, machine, free, residents, newcomer, placed, limits)
}

fn arrival(
    calls: &mut Calls<'_>,
    machine: &Topology,
    free: CpuSet,
    residents: &[Resident],
    newcomer: &Request,
    placed: Option<&Placement>,
    limits: &Limits,
) -> Option<Plan> {
    let need = Needs::of(machine).need(newcomer);
    let badness = match placed {
        Some(placement) => {
            need.badness(&Occupancy::of(machine, &newcomer.footprint(machine, &placement.cpus)))
        }
        None => REFUSED,
    };
    if badness == 0 || limits.containers == 0 {
        return None;
    }
    let usable = ((free | newcomer.reuse.cpus()) & machine.online()) - newcomer.settings.reserved;
    if placed.is_none() && !could_be_admitted(calls, residents, newcomer, &free, &usable, machine) {
        return None;
    }
    let profiles = Profile::all(machine, residents);
    let room = Room::of(machine, &usable);
    let subject = Subject::Newcomer { request: newcomer, need, badness };
    let mut search =
        Search { machine, free, residents, profiles: &profiles, limits, subject, room, best: None };
    search.run(calls);
    search.best
}

/// Whether enough CPUs are free, and the newcomer would be admitted if all residents were gone.
fn could_be_admitted(
    calls: &mut Calls<'_>,
    residents: &[Resident],
    newcomer: &Request,
    free: &CpuSet,
    usable: &CpuSet,
    machine: &Topology,
) -> bool {
    if usable.len() < newcomer.cpus {
        return false;
    }
    let held = residents.iter().map(|one| one.request.footprint(machine, &one.held));
    let held: CpuSet = held.collect();
    let promised = newcomer.promised + held.len();
    calls.place(&Request { free: *free | held, promised, ..*newcomer }).is_some()
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
    departure(&mut calls, machine, free, residents, limits)
}

fn departure(
    calls: &mut Calls<'_>,
    machine: &Topology,
    free: CpuSet,
    residents: &[Resident],
    limits: &Limits,
) -> Option<Plan> {
    if limits.containers == 0 {
        return None;
    }
    let profiles = Profile::all(machine, residents);
    let bad = |&at: &usize| profiles[at].movable && profiles[at].badness > 0;
    let mut worst: Vec<usize> = (0..residents.len()).filter(bad).collect();
    worst.sort_by_key(|&at| (Reverse(profiles[at].badness), residents[at].held.len()));
    for at in worst.into_iter().take(MOST_SUBJECTS) {
        let own = &residents[at].request.settings.reserved;
        let usable = ((free | profiles[at].footprint) & machine.online()) - *own;
        let room = Room::of(machine, &usable);
        let subject = Subject::Resident(at);
        let mut search = Search {
            machine,
            free,
            residents,
            profiles: &profiles,
            limits,
            subject,
            room,
            best: None,
        };
        search.run(calls);
        if search.best.is_some() || calls.left() == 0 {
            return search.best;
        }
    }
    None
}
