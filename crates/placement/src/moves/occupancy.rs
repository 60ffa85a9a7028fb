//! [`Occupancy`] and [`Room`]: CPUs counted by NUMA node and uncore cache.

use cpuset::CpuSet;
use std::cmp::Reverse;
use topology::Topology;

/// The number of CPUs of a set in each cell, sorted. A cell is the CPUs with the same NUMA node and
/// uncore cache, so that caches which span nodes need no special case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Occupancy {
    cells: Vec<Share>,
}

/// A NUMA node or an uncore cache, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeOrCache {
    Node(usize),
    Cache(usize),
}

/// The CPUs in one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Share {
    /// Positions in the machine's lists.
    node: usize,
    cache: usize,
    cpus: usize,
}

impl Occupancy {
    pub(super) fn of(machine: &Topology, cpus: &CpuSet) -> Occupancy {
        let mut cells: Vec<Share> = Vec::new();
        for place in cpus.iter().filter_map(|cpu| machine.place(cpu)) {
            let node = place.node();
            let cache = place.uncore();
            match cells.iter_mut().find(|cell| cell.node == node && cell.cache == cache) {
                Some(cell) => cell.cpus += 1,
                None => cells.push(Share { node, cache, cpus: 1 }),
            }
        }
        cells.sort_unstable();
        Occupancy { cells }
    }

    /// The positions of the NUMA nodes, each once.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        // Cells are sorted by node.
        self.cells.chunk_by(|one, other| one.node == other.node).map(|cells| cells[0].node)
    }

    /// The CPUs of each cell, with the position of its NUMA node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (usize, usize)> {
        self.cells.iter().map(|cell| (cell.node, cell.cpus))
    }

    pub(super) fn in_domain(&self, domain: NodeOrCache) -> usize {
        let inside = self.cells.iter().filter(|cell| match domain {
            NodeOrCache::Node(at) => cell.node == at,
            NodeOrCache::Cache(at) => cell.cache == at,
        });
        inside.map(|cell| cell.cpus).sum()
    }

    pub(super) fn caches(&self) -> usize {
        let first = |at: &usize| self.cells[..*at].iter().all(|c| c.cache != self.cells[*at].cache);
        (0..self.cells.len()).filter(first).count()
    }
}

/// The number of free CPUs in each NUMA node and each uncore cache, by position.
#[derive(Debug, Clone)]
pub(super) struct Room {
    nodes: Vec<usize>,
    caches: Vec<usize>,
}

impl Room {
    pub(super) fn of(machine: &Topology, free: &CpuSet) -> Room {
        let tally = machine.tally(free);
        Room { nodes: tally.nodes, caches: tally.uncores }
    }

    /// Makes this a copy of `other` without an allocation.
    pub(super) fn copy(&mut self, other: &Room) {
        self.nodes.clone_from(&other.nodes);
        self.caches.clone_from(&other.caches);
    }

    pub(super) fn add(&mut self, freed: &Occupancy) {
        for cell in &freed.cells {
            self.nodes[cell.node] += cell.cpus;
            self.caches[cell.cache] += cell.cpus;
        }
    }

    /// `taken` must be free.
    pub(super) fn remove(&mut self, taken: &Occupancy) {
        for cell in &taken.cells {
            self.nodes[cell.node] = self.nodes[cell.node].saturating_sub(cell.cpus);
            self.caches[cell.cache] = self.caches[cell.cache].saturating_sub(cell.cpus);
        }
    }

    pub(super) fn domains(&self) -> impl Iterator<Item = NodeOrCache> {
        let caches = (0..self.caches.len()).map(NodeOrCache::Cache);
        caches.chain((0..self.nodes.len()).map(NodeOrCache::Node))
    }

    pub(super) fn in_domain(&self, domain: NodeOrCache) -> usize {
        match domain {
            NodeOrCache::Node(at) => self.nodes[at],
            NodeOrCache::Cache(at) => self.caches[at],
        }
    }

    /// The fewest NUMA nodes that can hold `n` CPUs; `None` if even all cannot.
    pub(super) fn fewest_nodes(&self, n: usize) -> Option<usize> {
        fewest(&self.nodes, n)
    }

    /// The fewest uncore caches that can hold `n` CPUs; `None` if even all cannot.
    pub(super) fn fewest_caches(&self, n: usize) -> Option<usize> {
        fewest(&self.caches, n)
    }
}

fn fewest(room: &[usize], n: usize) -> Option<usize> {
    // One is almost always enough, and a search calls this thousands of times.
    if room.iter().any(|&free| free >= n) {
        return Some(1);
    }
    let mut room = room.to_vec();
    room.sort_unstable_by_key(|&free| Reverse(free));
    let mut sum = 0;
    let enough = room.iter().position(|free| {
        sum += free;
        sum >= n
    });
    enough.map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::super::super::machines::{Shape, set};
    use super::*;

    #[test]
    fn nodes_and_caches_are_counted_once() {
        // Two nodes of two caches of two cores of two threads.
        let shape = Shape { sockets: 1, nodes: 2, uncores: 2, cores: 2, threads: 2 };
        let machine = shape.build();
        let occupancy = Occupancy::of(&machine, &set("0-2,4,8"));
        assert_eq!(occupancy.nodes().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(occupancy.caches(), 3);
        let mut room = Room::of(&machine, &(machine.online() - set("0-2,4,8")));
        let fewest = |room: &Room, n| (room.fewest_nodes(n), room.fewest_caches(n));
        assert_eq!(fewest(&room, 4), (Some(1), Some(1)));
        assert_eq!(fewest(&room, 8), (Some(2), Some(3)));
        assert_eq!(fewest(&room, 12), (None, None));
        room.add(&occupancy);
        assert_eq!(fewest(&room, 8), (Some(1), Some(2)));
        room.remove(&occupancy);
        assert_eq!(fewest(&room, 8), (Some(2), Some(3)));
    }
}
