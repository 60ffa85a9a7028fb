//! Which sets of containers a [`Search`] lifts, and in which order.

use super::calls::Calls;
use super::occupancy::Room;
use super::plan::Plan;
use super::trial::{Lying, Search, Subject};
use crate::cpuset::CpuSet;
use crate::placement::request::Request;
use std::cmp::Reverse;

/// Pairs are made of this many containers at most, those that make the most room first.
const MOST_IN_PAIRS: usize = 96;

/// Movable residents that are alike: the same request, the same cells. It makes no difference which
/// of them is lifted, and a pair needs two at most.
struct Class {
    first: usize,
    second: Option<usize>,
}

/// A set of residents to lift.
struct Candidate {
    /// The largest first.
    lifted: Vec<usize>,
    /// What the subject's badness is at least when they are lifted.
    least: u32,
    /// How many CPUs would be lifted.
    cpus: usize,
}

impl Search<'_> {
    /// Tries sets of none, one and two other residents, as long as there is something to gain.
    pub(super) fn run(&mut self, calls: &mut Calls<'_>) {
        let own = usize::from(self.resident().is_some());
        if own == 1 && self.need().least(&self.room).is_some_and(|least| least < self.badness()) {
            self.try_lifting(&[], calls);
        }
        let others = self.limits.containers.saturating_sub(own);
        if others == 0 {
            return;
        }
        let classes = self.classes();
        let singles = self.candidates(classes.iter().map(|class| vec![class.first]));
        self.try_each(&singles, calls);
        if others >= 2 && self.gain() < self.badness() {
            let pairs = self.pairs(classes);
            self.try_each(&pairs, calls);
        }
    }

    fn resident(&self) -> Option<usize> {
        match self.subject {
            Subject::Newcomer { .. } => None,
            Subject::Resident(at) => Some(at),
        }
    }

    fn try_each(&mut self, candidates: &[Candidate], calls: &mut Calls<'_>) {
        for candidate in candidates {
            if calls.left() == 0 {
                return;
            }
            // The least badness is the first in the order: the others can gain no more.
            let bound = self.badness().saturating_sub(candidate.least);
            let enough = |best: &Plan| {
                bound < best.gain || bound == best.gain && best.cost <= candidate.cpus
            };
            if self.best.as_ref().is_some_and(enough) {
                continue;
            }
            self.try_lifting(&candidate.lifted, calls);
        }
    }

    /// The movable residents but for the subject, by class.
    fn classes(&self) -> Vec<Class> {
        let movable = |&at: &usize| self.lying[at].movable && self.resident() != Some(at);
        let mut all: Vec<usize> = (0..self.lying.len()).filter(movable).collect();
        all.sort_by_key(|&at| &self.lying[at].occupancy);
        let mut classes: Vec<Class> = Vec::new();
        for at in all {
            let lying = &self.lying[at];
            let near = classes.iter_mut().rev();
            let mut near =
                near.take_while(|class| self.lying[class.first].occupancy == lying.occupancy);
            match near.find(|class| is_alike(lying, &self.lying[class.first])) {
                Some(class) => class.second = class.second.or(Some(at)),
                None => classes.push(Class { first: at, second: None }),
            }
        }
        classes
    }

    fn pairs(&self, mut classes: Vec<Class>) -> Vec<Candidate> {
        if classes.len() > MOST_IN_PAIRS {
            classes.sort_by_cached_key(|class| {
                self.candidate(vec![class.first], &mut self.room.clone())
                    .map_or((u32::MAX, 0), |one| (one.least, one.cpus))
            });
            classes.truncate(MOST_IN_PAIRS);
        }
        let pairs = classes.iter().enumerate().flat_map(|(place, class)| {
            let twins = class.second.map(|second| vec![class.first, second]);
            let others = classes[place + 1..].iter().map(|other| vec![class.first, other.first]);
            others.chain(twins)
        });
        self.candidates(pairs)
    }

    /// Those of the sets that could gain more than the best plan so far, the most promising first.
    fn candidates(&self, sets: impl Iterator<Item = Vec<usize>>) -> Vec<Candidate> {
        let mut room = self.room.clone();
        let candidates = sets.filter_map(|lifted| self.candidate(lifted, &mut room));
        let bound = self.badness().saturating_sub(self.gain());
        let mut candidates: Vec<Candidate> = candidates.filter(|one| one.least < bound).collect();
        candidates.sort_by_key(|candidate| (candidate.least, candidate.cpus));
        candidates
    }

    /// `None` if the subject has no room even then. `room` is scratch space.
    fn candidate(&self, mut lifted: Vec<usize>, room: &mut Room) -> Option<Candidate> {
        room.copy(&self.room);
        lifted.iter().for_each(|&at| room.add(&self.lying[at].occupancy));
        let least = self.need().least(room)?;
        lifted.sort_by_key(|&at| Reverse(self.lying[at].need.cpus));
        let cpus = lifted.iter().map(|&at| self.lying[at].need.cpus).sum();
        Some(Candidate { lifted, least, cpus })
    }
}

/// Whether two residents on the same cells also have the same request.
fn is_alike(one: &Lying<'_>, other: &Lying<'_>) -> bool {
    let request =
        |lying: &Lying<'_>| Request { free: CpuSet::EMPTY, promised: 0, ..lying.resident.request };
    one.need.cpus == other.need.cpus && request(one) == request(other)
}
