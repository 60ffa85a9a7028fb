//! [`MoveSearch`]: lifts a set of containers off their CPUs, places the subject, and then places
//! the lifted containers again.

use super::badness::Need;
use super::calls::Calls;
use super::occupancy::{Occupancy, Room};
use super::plan::{Ctx, Move, Plan};
use super::profile::Profile;
use super::steps::steps;
use crate::engine::Placement;
use crate::request::Request;
use cpuset::CpuSet;
use std::cmp::Reverse;

/// The container that a plan is for.
pub(super) enum Subject<'a> {
    /// A container that starts.
    New {
        request: &'a Request,
        need: Need,
        /// The badness without moves, or [`REFUSED`](super::plan::REFUSED).
        badness: u32,
    },
    /// The index of a resident.
    Resident(usize),
}

pub(super) struct MoveSearch<'a> {
    pub(super) ctx: Ctx<'a>,
    pub(super) profiles: &'a [Profile<'a>],
    pub(super) subject: Subject<'a>,
    pub(super) room: Room,
    pub(super) best: Option<Plan>,
}

/// An unfinished plan. The containers placed so far are on their new CPUs, the lifted ones on none.
struct Draft {
    free: CpuSet,
    room: Room,
    new_placement: Option<Placement>,
    taken: CpuSet,
    moves: Vec<Move>,
    badness: u32,
    cost: usize,
}

impl<'a> MoveSearch<'a> {
    /// `usable` are the CPUs that the subject can use: free ones and its own.
    pub(super) fn new(
        ctx: &Ctx<'a>,
        profiles: &'a [Profile<'a>],
        subject: Subject<'a>,
        usable: &CpuSet,
    ) -> MoveSearch<'a> {
        let room = Room::of(ctx.machine, usable);
        MoveSearch { ctx: *ctx, profiles, subject, room, best: None }
    }

    /// The subject's badness without moves.
    pub(super) fn badness(&self) -> u32 {
        match self.subject {
            Subject::New { badness, .. } => badness,
            Subject::Resident(at) => self.profiles[at].badness,
        }
    }

    pub(super) fn need(&self) -> &Need {
        match &self.subject {
            Subject::New { need, .. } => need,
            Subject::Resident(at) => &self.profiles[*at].need,
        }
    }

    pub(super) fn gain(&self) -> u32 {
        self.best.as_ref().map_or(0, |plan| plan.gain)
    }

    /// Lifts these residents, places the subject, then them in this order, and keeps the plan if it
    /// is the best so far.
    pub(super) fn try_lifting(&mut self, others: &[usize], calls: &mut Calls<'_>) {
        if let Some(plan) = self.better_plan(others, calls) {
            self.best = Some(plan);
        }
    }

    /// The plan that lifts these residents; `None` if it gains nothing, cannot be carried out, or
    /// is no better than the best so far.
    fn better_plan(&self, others: &[usize], calls: &mut Calls<'_>) -> Option<Plan> {
        let lifted = others.iter().map(|&at| self.profiles[at].badness).sum::<u32>();
        let before = self.badness() + lifted;
        let mut draft = self.lift(others);
        self.place_subject(&mut draft, others, calls)?;
        for (number, &at) in others.iter().enumerate() {
            // Give up as soon as even the best placement of the rest would gain nothing.
            let left = others[number..].iter().map(|&at| self.profiles[at].need.least(&draft.room));
            let least = left.sum::<Option<u32>>()?;
            if before < draft.badness + least + self.gain().max(1) {
                return None;
            }
            self.place_resident(&mut draft, at, calls)?;
        }
        self.place_new_again(&mut draft, calls)?;
        let gain = before.checked_sub(draft.badness).filter(|&gain| gain > 0)?;
        let Draft { new_placement, taken, moves, cost, .. } = draft;
        if moves.is_empty() || moves.len() > self.ctx.limits.containers {
            return None;
        }
        let rank = (Reverse(gain), cost, moves.len());
        if self.best.as_ref().is_some_and(|best| best.rank() <= rank) {
            return None;
        }
        let steps = steps(calls, &self.ctx, &moves, &taken)?;
        Some(Plan { moves, steps, new_placement, taken, gain, cost })
    }

    fn lift(&self, others: &[usize]) -> Draft {
        let mut free = self.ctx.free;
        let mut room = self.room.clone();
        if let Subject::Resident(at) = self.subject {
            free |= self.profiles[at].footprint;
        }
        for &at in others {
            free |= self.profiles[at].footprint;
            room.add(&self.profiles[at].occupancy);
        }
        Draft {
            free,
            room,
            new_placement: None,
            taken: CpuSet::EMPTY,
            moves: Vec::new(),
            badness: 0,
            cost: 0,
        }
    }

    fn place_subject(
        &self,
        draft: &mut Draft,
        others: &[usize],
        calls: &mut Calls<'_>,
    ) -> Option<()> {
        let (request, need) = match &self.subject {
            Subject::New { request, need, .. } => (*request, need),
            Subject::Resident(at) => return self.place_resident(draft, *at, calls),
        };
        // As many CPUs as were lifted must stay free for the lifted containers.
        let lifted = others.iter().map(|&at| self.profiles[at].footprint.len()).sum::<usize>();
        let promised = request.promised + lifted;
        let placement = calls.place(&Request { free: draft.free, promised, ..*request })?;
        let taken = request.footprint(self.ctx.machine, &placement.cpus);
        let (badness, occupancy) = need.weigh(self.ctx.machine, &placement.cpus, &taken);
        draft.badness += badness;
        draft.free -= taken;
        draft.room.remove(&occupancy);
        draft.taken = taken;
        draft.new_placement = Some(placement);
        Some(())
    }

    /// When the container is created after the moves, the engine decides again, with other CPUs
    /// free. It may choose other CPUs than before, and only these count.
    fn place_new_again(&self, draft: &mut Draft, calls: &mut Calls<'_>) -> Option<()> {
        let Subject::New { request, need, .. } = &self.subject else { return Some(()) };
        let free = draft.free | (draft.taken - request.reuse.cpus);
        let placement = calls.place(&Request { free, ..**request })?;
        let first = draft.new_placement.as_ref()?.cpus;
        if first == placement.cpus {
            return Some(());
        }
        let badness = |cpus| need.badness(&Occupancy::of(self.ctx.machine, cpus));
        let taken = request.footprint(self.ctx.machine, &placement.cpus);
        draft.badness = (draft.badness + badness(&placement.cpus)).checked_sub(badness(&first))?;
        draft.free = free - taken;
        draft.taken = taken;
        draft.new_placement = Some(placement);
        Some(())
    }

    /// Places a lifted container. It stays if its CPUs are still free, unless it is the subject.
    fn place_resident(&self, draft: &mut Draft, at: usize, calls: &mut Calls<'_>) -> Option<()> {
        let profile = &self.profiles[at];
        let is_subject = matches!(self.subject, Subject::Resident(subject) if subject == at);
        if !is_subject && profile.footprint.is_subset(&draft.free) {
            draft.badness += profile.badness;
            draft.free -= profile.footprint;
            draft.room.remove(&profile.occupancy);
            return Some(());
        }
        let to = calls.place_again(profile.resident, &draft.free, self.ctx.limits)?;
        let taken = profile.resident.request.footprint(self.ctx.machine, &to);
        let (badness, occupancy) = profile.need.weigh(self.ctx.machine, &to, &taken);
        draft.badness += badness;
        draft.free -= taken;
        draft.room.remove(&occupancy);
        draft.cost += profile.cost(self.ctx.machine, &to, self.ctx.limits);
        if to != profile.resident.held {
            draft.moves.push(Move { resident: at, to });
        }
        Some(())
    }
}
