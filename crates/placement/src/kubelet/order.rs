//! The order in which domains are used: those with the fewest free CPUs first, so that emptier ones
//! stay whole for larger requests.
//!
//! Domains nest. On a machine with at least as many sockets as NUMA nodes, NUMA nodes are the outer
//! level and sockets the inner one; otherwise it is the other way round. Cores are always
//! innermost. Inside a domain of the next outer level, domains are sorted by the number of free
//! CPUs, then by number.

use super::free::Free;
use topology::Place;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Core,
    Uncore,
    Node,
    Socket,
}

impl Level {
    pub(super) fn of(self, place: Place) -> usize {
        match self {
            Level::Core => place.core(),
            Level::Uncore => place.uncore(),
            Level::Node => place.node(),
            Level::Socket => place.socket(),
        }
    }

    pub(super) fn free<'a>(self, free: &'a Free<'_>) -> &'a [usize] {
        let count = &free.count;
        match self {
            Level::Core => &count.cores,
            Level::Uncore => &count.uncores,
            Level::Node => &count.nodes,
            Level::Socket => &count.sockets,
        }
    }
}

/// Ranks of the domains of one level. The lowest is used first. Domains without free CPUs come
/// last.
pub(super) enum Ranks {
    /// The level has only one domain.
    One,
    ByPosition(Level, Vec<usize>),
}

const LAST: usize = usize::MAX;

impl Ranks {
    fn of(level: Level, order: &[usize], domains: usize) -> Ranks {
        let mut by_position = vec![LAST; domains];
        for (rank, &position) in order.iter().enumerate() {
            by_position[position] = rank;
        }
        Ranks::ByPosition(level, by_position)
    }

    pub(super) fn get(&self, place: Place) -> usize {
        match self {
            Ranks::One => 0,
            Ranks::ByPosition(level, ranks) => ranks[level.of(place)],
        }
    }
}

impl Free<'_> {
    /// The outer and the inner level on this machine.
    pub(super) fn levels(&self) -> (Level, Level) {
        let topology = self.topology;
        if topology.sockets().len() >= topology.cpu_nodes() {
            (Level::Node, Level::Socket)
        } else {
            (Level::Socket, Level::Node)
        }
    }

    /// Domains of the outer level with free CPUs, sorted by free CPUs, then by number.
    pub(super) fn order(&self, level: Level) -> Vec<usize> {
        let free = level.free(self).iter().enumerate().filter(|&(_, &free)| free > 0);
        let mut keys: Vec<(usize, usize)> = free.map(|(at, &free)| (free, at)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, at)| at).collect()
    }

    /// Domains of an inner level with free CPUs, sorted by the rank of the outer domain, then by
    /// free CPUs, then by number.
    ///
    /// A domain that spans several outer ones (a cache or node in two) counts as in the one used
    /// first.
    pub(super) fn order_within(&self, level: Level, outer: &Ranks) -> Vec<usize> {
        let free = level.free(self);
        if let Ranks::One = outer {
            return self.order(level);
        }
        let mut best = vec![LAST; free.len()];
        for (_, place) in self.places() {
            let best = &mut best[level.of(place)];
            *best = outer.get(place).min(*best);
        }
        let with_free = best.iter().zip(free).enumerate().filter(|&(_, (_, &free))| free > 0);
        let mut keys: Vec<(usize, usize, usize)> =
            with_free.map(|(at, (&rank, &free))| (rank, free, at)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, _, at)| at).collect()
    }

    pub(super) fn ranks(&self, level: Level, order: &[usize]) -> Ranks {
        Ranks::of(level, order, level.free(self).len())
    }

    /// Ranks of the outer or the inner level.
    pub(super) fn ranks_of(&self, level: Level) -> Ranks {
        let (outer, _) = self.levels();
        if level.free(self).len() == 1 {
            return Ranks::One;
        }
        let order = if level == outer {
            self.order(level)
        } else {
            self.order_within(level, &self.ranks_of(outer))
        };
        self.ranks(level, &order)
    }

    /// Cores with free CPUs, in the order they are used.
    pub(super) fn cores(&self) -> Vec<usize> {
        let (_, inner) = self.levels();
        self.order_within(Level::Core, &self.ranks_of(inner))
    }
}
