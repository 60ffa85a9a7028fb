//! Which sets of residents a [`MoveSearch`] lifts, and in which order.

use super::calls::Calls;
use super::occupancy::Room;
use super::plan::Plan;
use super::sets;
use super::trial::{MoveSearch, Subject};
use std::cmp::Reverse;

struct LiftCandidate {
    /// The largest resident comes first, because it is the hardest to place again.
    lifted: Vec<usize>,
    /// A lower bound of the subject's badness when these are lifted.
    least: u32,
    /// The number of CPUs of the lifted residents.
    cpus: usize,
}

impl MoveSearch<'_> {
    /// Tries sets of up to three other residents, larger ones only while they could gain more.
    pub(super) fn run(&mut self, calls: &mut Calls<'_>) {
        // A subject that is a resident moves, too, and counts against the limit.
        let own = usize::from(self.resident().is_some());
        if own == 1 {
            self.try_each([vec![]].into_iter(), calls);
        }
        let others = self.ctx.limits.containers.saturating_sub(own);
        if others == 0 {
            return;
        }
        let mut classes = sets::classes(self.profiles, self.resident());
        self.try_each(sets::singles(&classes), calls);
        if others >= 2 && self.gain() < self.badness() {
            if classes.len() > sets::MOST_IN_PAIRS {
                // Only the first classes are paired, so put the most promising ones first.
                let mut room = self.room.clone();
                classes.sort_by_cached_key(|class| {
                    let alone = self.candidate(vec![class.first], &mut room);
                    alone.map_or((u32::MAX, 0), |alone| (alone.least, alone.cpus))
                });
            }
            self.try_each(sets::pairs(&classes), calls);
        }
        if others >= 3 && self.gain() < self.badness() {
            let triples = sets::triples(&classes, self.profiles, &self.room, self.need().cpus);
            self.try_each(triples.into_iter(), calls);
        }
    }

    fn resident(&self) -> Option<usize> {
        match self.subject {
            Subject::New { .. } => None,
            Subject::Resident(at) => Some(at),
        }
    }

    /// Tries the sets that could be better than the best plan so far, the most promising first.
    fn try_each(&mut self, sets: impl Iterator<Item = Vec<usize>>, calls: &mut Calls<'_>) {
        let mut room = self.room.clone();
        let candidates = sets.filter_map(|lifted| self.candidate(lifted, &mut room));
        let most = self.badness();
        let limit = most.saturating_sub(self.gain());
        let mut candidates: Vec<LiftCandidate> =
            candidates.filter(|one| one.least < limit).collect();
        candidates.sort_by_key(|candidate| (candidate.least, candidate.cpus));
        for candidate in candidates {
            if calls.left() == 0 {
                return;
            }
            let bound = most.saturating_sub(candidate.least);
            let is_beaten = |best: &Plan| {
                bound < best.gain || bound == best.gain && candidate.cpus >= best.cost
            };
            if !self.best.as_ref().is_some_and(is_beaten) {
                self.try_lifting(&candidate.lifted, calls);
            }
        }
    }

    /// `None` if the subject has no room even when these are lifted. `room` is a buffer.
    fn candidate(&self, mut lifted: Vec<usize>, room: &mut Room) -> Option<LiftCandidate> {
        room.copy(&self.room);
        lifted.iter().for_each(|&at| room.add(&self.profiles[at].occupancy));
        let least = self.need().least(room)?;
        lifted.sort_by_key(|&at| Reverse(self.profiles[at].need.cpus));
        let cpus = lifted.iter().map(|&at| self.profiles[at].need.cpus).sum();
        Some(LiftCandidate { lifted, least, cpus })
    }
}
