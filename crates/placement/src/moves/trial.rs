//! [`Search`]: tries sets of containers, each lifted from its CPUs and placed again after the
//! container that the plan is for.

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
    Newcomer {
        request: &'a Request,
        need: Need,
        /// Where it would go without moves, or [`REFUSED`](super::plan::REFUSED).
        badness: u32,
    },
    /// The index of a resident.
    Resident(usize),
}

/// The search for the best plan for one container.
pub(super) struct Search<'a> {
    pub(super) ctx: Ctx<'a>,
    pub(super) profiles: &'a [Profile<'a>],
    pub(super) subject: Subject<'a>,
    pub(super) room: Room,
    pub(super) best: Option<Plan>,
}

/// A plan in the making: what is free when the containers placed so far are on their new CPUs, and
/// those still lifted on none.
struct Draft {
    free: CpuSet,
    room: Room,
    newcomer: Option<Placement>,
    taken: CpuSet,
    moves: Vec<Move>,
    badness: u32,
    cost: usize,
}

impl<'a> Search<'a> {
    /// `usable` is what the subject can use: free CPUs, and its own.
    pub(super) fn new(
        ctx: &Ctx<'a>,
        profiles: &'a [Profile<'a>],
        subject: Subject<'a>,
        usable: &CpuSet,
    ) -> Search<'a> {
        let room = Room::of(ctx.machine, usable);
        Search { ctx: *ctx, profiles, subject, room, best: None }
    }

    /// The subject's badness without a plan.
    pub(super) fn badness(&self) -> u32 {
        match self.subject {
            Subject::Newcomer { badness, .. } => badness,
            Subject::Resident(at) => self.profiles[at].badness,
        }
    }

    pub(super) fn need(&self) -> &Need {
        match &self.subject {
            Subject::Newcomer { need, .. } => need,
            Subject::Resident(at) => &self.profiles[*at].need,
        }
    }

    pub(super) fn gain(&self) -> u32 {
        self.best.as_ref().map_or(0, |plan| plan.gain)
    }

    /// Lifts these residents, the largest first, places the subject, then them, and keeps the plan
    /// if it is the best so far.
    pub(super) fn try_lifting(&mut self, others: &[usize], calls: &mut Calls<'_>) {
        if let Some(plan) = self.better_plan(others, calls) {
            self.best = Some(plan);
        }
    }

    /// The plan that lifts these; `None` if it gains nothing, cannot be carried out, or is no better
    /// than the best so far.
    fn better_plan(&self, others: &[usize], calls: &mut Calls<'_>) -> Option<Plan> {
        let lifted = others.iter().map(|&at| self.profiles[at].badness).sum::<u32>();
        let before = self.badness() + lifted;
        let mut draft = self.lift(others);
        self.place_subject(&mut draft, others, calls)?;
        for (placed, &at) in others.iter().enumerate() {
            // Give up as soon as the best that can still follow is no gain.
            let left = others[placed..].iter().map(|&at| self.profiles[at].need.least(&draft.room));
            let least = left.sum::<Option<u32>>()?;
            if before < draft.badness + least + self.gain().max(1) {
                return None;
            }
            self.place_resident(&mut draft, at, calls)?;
        }
        self.place_newcomer_again(&mut draft, calls)?;
        let gain = before.checked_sub(draft.badness).filter(|&gain| gain > 0)?;
        let Draft { newcomer, taken, moves, cost, .. } = draft;
        if moves.is_empty() || moves.len() > self.ctx.limits.containers {
            return None;
        }
        let rank = (Reverse(gain), cost, moves.len());
        if self.best.as_ref().is_some_and(|best| best.rank() <= rank) {
            return None;
        }
        let steps = steps(calls, &self.ctx, &moves, &taken)?;
        Some(Plan { moves, steps, newcomer, taken, gain, cost })
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
            newcomer: None,
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
            Subject::Newcomer { request, need, .. } => (*request, need),
            Subject::Resident(at) => return self.place_resident(draft, *at, calls),
        };
        // Lifted CPUs are promised to the containers that they were lifted from.
        let lifted = others.iter().map(|&at| self.profiles[at].footprint.len()).sum::<usize>();
        let promised = request.promised + lifted;
        let placement = calls.place(&Request { free: draft.free, promised, ..*request })?;
        let taken = request.footprint(self.ctx.machine, &placement.cpus);
        let (badness, occupancy) = need.weigh(self.ctx.machine, &placement.cpus, &taken);
        draft.badness += badness;
        draft.free -= taken;
        draft.room.remove(&occupancy);
        draft.taken = taken;
        draft.newcomer = Some(placement);
        Some(())
    }

    /// When the newcomer is created, the engine decides again, without the CPUs that were lifted: it
    /// may choose others, and only that counts.
    fn place_newcomer_again(&self, draft: &mut Draft, calls: &mut Calls<'_>) -> Option<()> {
        let Subject::Newcomer { request, need, .. } = &self.subject else { return Some(()) };
        let free = draft.free | (draft.taken - request.reuse.cpus());
        let placement = calls.place(&Request { free, ..**request })?;
        let first = draft.newcomer.as_ref()?.cpus;
        if first == placement.cpus {
            return Some(());
        }
        let badness = |cpus| need.badness(&Occupancy::of(self.ctx.machine, cpus));
        let taken = request.footprint(self.ctx.machine, &placement.cpus);
        draft.badness = (draft.badness + badness(&placement.cpus)).checked_sub(badness(&first))?;
        draft.free = free - taken;
        draft.taken = taken;
        draft.newcomer = Some(placement);
        Some(())
    }

    /// A container whose CPUs are still free stays, unless the plan is for it.
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
