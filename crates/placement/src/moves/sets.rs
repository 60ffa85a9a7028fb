//! Sets of one, two and three residents that may be lifted together.

use super::occupancy::Room;
use super::profile::Profile;
use crate::request::Request;
use cpuset::CpuSet;

/// Only this many classes form pairs.
pub(super) const MOST_IN_PAIRS: usize = 96;

/// The most sets of three.
const MOST_TRIPLES: usize = 4_000;

/// Movable residents with the same request in the same cells. It makes no difference which of them
/// are lifted, and at most three are, so a class has at most three.
pub(super) struct Class {
    pub(super) first: usize,
    others: Vec<usize>,
}

/// All movable residents except one.
pub(super) fn classes(profiles: &[Profile<'_>], except: Option<usize>) -> Vec<Class> {
    let movable = |&at: &usize| profiles[at].movable && except != Some(at);
    let mut all: Vec<usize> = (0..profiles.len()).filter(movable).collect();
    all.sort_by_key(|&at| &profiles[at].occupancy);
    let mut classes: Vec<Class> = Vec::new();
    for at in all {
        let one = &profiles[at];
        let last = classes.iter_mut().rev();
        let mut on_same_cells =
            last.take_while(|class| profiles[class.first].occupancy == one.occupancy);
        match on_same_cells.find(|class| asks_the_same(one, &profiles[class.first])) {
            Some(class) if class.others.len() < 2 => class.others.push(at),
            Some(_) => {}
            None => classes.push(Class { first: at, others: Vec::new() }),
        }
    }
    classes
}

fn asks_the_same(one: &Profile<'_>, other: &Profile<'_>) -> bool {
    // The planner sets these two fields, so their values do not matter.
    let request = |profile: &Profile<'_>| Request {
        free: CpuSet::EMPTY,
        promised: 0,
        ..profile.resident.request
    };
    one.need.cpus == other.need.cpus && request(one) == request(other)
}

pub(super) fn singles(classes: &[Class]) -> impl Iterator<Item = Vec<usize>> {
    classes.iter().map(|class| vec![class.first])
}

pub(super) fn pairs(classes: &[Class]) -> impl Iterator<Item = Vec<usize>> {
    let classes = &classes[..classes.len().min(MOST_IN_PAIRS)];
    classes.iter().enumerate().flat_map(|(place, class)| {
        let alike = class.others.first().map(|&second| vec![class.first, second]);
        let unlike = classes[place + 1..].iter().map(|other| vec![class.first, other.first]);
        unlike.chain(alike)
    })
}

/// Sets of three residents that make room for `n` CPUs in one NUMA node or uncore cache, if no two
/// of them do. All sets of three would be too many.
pub(super) fn triples(
    classes: &[Class],
    profiles: &[Profile<'_>],
    room: &Room,
    n: usize,
) -> Vec<Vec<usize>> {
    let mut triples = Vec::new();
    for domain in room.domains() {
        // If nothing is missing in a domain and the subject is not there, lifting does not help.
        let missing = n.saturating_sub(room.in_domain(domain));
        let members = classes
            .iter()
            .flat_map(|class| [class.first].into_iter().chain(class.others.iter().copied()));
        // A resident with all missing CPUs is enough alone.
        let held = members.map(|at| (at, profiles[at].occupancy.in_domain(domain)));
        let held: Vec<(usize, usize)> = held.filter(|(_, n)| (1..missing).contains(n)).collect();
        for (first, &(one, a)) in held.iter().enumerate() {
            for (second, &(two, b)) in held.iter().enumerate().skip(first + 1) {
                for &(three, c) in &held[second + 1..] {
                    let is_enough = a + b + c >= missing;
                    let two_are_enough = a + b + c - a.min(b).min(c) >= missing;
                    if !is_enough || two_are_enough {
                        continue;
                    }
                    triples.push(vec![one, two, three]);
                    if triples.len() == MOST_TRIPLES {
                        return triples;
                    }
                }
            }
        }
    }
    triples
}
