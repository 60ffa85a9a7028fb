//! [`Cells`]: the CPUs of the same NUMA node, uncore cache and socket, and their cores.
//!
//! Every NUMA node and every uncore cache is a union of cells: a cache across nodes (sub-NUMA
//! clusters) has a cell in each, and a node with several caches has a cell for each.

use super::tally::Place;
use std::ops::Range;

/// The cells of a machine, for decisions that count CPUs by cell: flat lists in the order of nodes,
/// caches, cores and CPU numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cells {
    cells: Vec<Cell>,
    parts: Vec<Part>,
    cpus: Vec<u16>,
    /// By CPU number; [`OFFLINE`] for CPUs of no part.
    part_of: Vec<u16>,
    /// By position of a NUMA node.
    by_node: Vec<Range<usize>>,
    /// A row for each node, by position.
    distances: Vec<u32>,
    /// By position of a NUMA node.
    sockets: Vec<Sockets>,
    caches_span_cells: bool,
}

/// Sockets, bit `n` for the one at position `n`. Sockets past the last bit are in no set: no
/// machine has that many.
pub type Sockets = u64;

/// CPUs of one NUMA node, one uncore cache and one socket; the first two are positions in the
/// topology's lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub node: usize,
    pub uncore: usize,
    pub socket: Sockets,
    pub parts: Range<usize>,
    /// The number of its online CPUs.
    pub size: usize,
}

/// The CPUs of a core in one cell: the whole core, except where a core is in several cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub cell: usize,
    /// Where its CPUs are in the list of all cells' CPUs.
    cpus: Range<usize>,
    /// Whether other CPUs of the core are in another cell. No real machine has that, but a wrong
    /// description can.
    pub is_split: bool,
}

/// In the place of a part: the CPU is not online.
const OFFLINE: u16 = u16::MAX;

/// SLIT's value for nodes that cannot reach each other; also for distances that are unknown.
const UNREACHABLE: u32 = 255;

/// Positions of a CPU's node, uncore cache, socket and core, and its number.
type Placed = (u16, u16, u16, u16, usize);

impl Cells {
    /// `cpus` are all online CPUs, ascending; `distances` are those from each node.
    pub(super) fn new<'a>(
        cpus: impl Iterator<Item = (usize, Place)>,
        distances: impl ExactSizeIterator<Item = &'a [u32]>,
    ) -> Cells {
        let mut placed: Vec<Placed> = cpus
            .map(|(cpu, place)| (place.node, place.uncore, place.socket, place.core, cpu))
            .collect();
        placed.sort_unstable();
        let rows: Vec<&[u32]> = distances.collect();
        let mut cells = Cells { distances: matrix(&rows), ..Cells::default() };
        let last = placed.iter().map(|(.., cpu)| *cpu).max().unwrap_or(0);
        cells.part_of = vec![OFFLINE; last + 1];
        for part in placed.chunk_by(|&(node, uncore, socket, core, _), other| {
            (node, uncore, socket, core) == (other.0, other.1, other.2, other.3)
        }) {
            cells.add_part(part);
        }
        cells.mark_split(&placed);
        let mut caches: Vec<usize> = cells.cells.iter().map(|cell| cell.uncore).collect();
        caches.sort_unstable();
        cells.caches_span_cells = caches.windows(2).any(|two| two[0] == two[1]);
        cells.by_node = vec![0..0; rows.len()];
        cells.sockets = vec![0; rows.len()];
        for (at, cell) in cells.cells.iter().enumerate() {
            let range = &mut cells.by_node[cell.node];
            *range = if range.end == 0 { at..at + 1 } else { range.start..at + 1 };
            cells.sockets[cell.node] |= cell.socket;
        }
        cells
    }

    fn add_part(&mut self, placed: &[Placed]) {
        let (node, uncore) = (usize::from(placed[0].0), usize::from(placed[0].1));
        let socket = Sockets::checked_shl(1, placed[0].2.into()).unwrap_or(0);
        let at = self.parts.len();
        match self.cells.last_mut() {
            Some(cell) if (cell.node, cell.uncore, cell.socket) == (node, uncore, socket) => {
                cell.parts.end = at + 1;
                cell.size += placed.len();
            }
            _ => {
                let parts = at..at + 1;
                self.cells.push(Cell { node, uncore, socket, parts, size: placed.len() });
            }
        }
        let first = self.cpus.len();
        for (.., cpu) in placed {
            // CPU numbers are below MAX_CPUS, and there are no more parts than CPUs.
            self.cpus.push(*cpu as u16);
            self.part_of[*cpu] = at as u16;
        }
        let cpus = first..self.cpus.len();
        self.parts.push(Part { cell: self.cells.len() - 1, cpus, is_split: false });
    }

    fn mark_split(&mut self, placed: &[Placed]) {
        let mut part_of_core: Vec<(u16, u16)> =
            placed.iter().map(|(.., core, cpu)| (*core, self.part_of[*cpu])).collect();
        part_of_core.sort_unstable();
        part_of_core.dedup();
        for core in part_of_core.chunk_by(|one, other| one.0 == other.0) {
            for (_, part) in core {
                self.parts[usize::from(*part)].is_split = core.len() > 1;
            }
        }
    }

    pub fn all(&self) -> &[Cell] {
        &self.cells
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether an uncore cache has several cells: CPUs of several NUMA nodes or sockets.
    pub fn caches_span_cells(&self) -> bool {
        self.caches_span_cells
    }

    /// The sockets of the NUMA node at this position: several where one node has all sockets.
    pub fn sockets_of(&self, node: usize) -> Sockets {
        self.sockets[node]
    }

    pub fn nodes_span_sockets(&self) -> bool {
        self.sockets.iter().any(|sockets| sockets.count_ones() > 1)
    }

    /// The cells of the NUMA node at this position.
    pub fn of_node(&self, node: usize) -> Range<usize> {
        self.by_node[node].clone()
    }

    /// The part that an online CPU is in.
    pub fn part_of(&self, cpu: usize) -> Option<usize> {
        self.part_of.get(cpu).copied().filter(|part| *part != OFFLINE).map(usize::from)
    }

    /// The CPUs of the part at this position, ascending.
    pub fn cpus_of(&self, part: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.cpus[self.parts[part].cpus.clone()].iter().map(|cpu| usize::from(*cpu))
    }

    /// The sum of the distances between two NUMA nodes, given by position, in both directions: SLIT
    /// need not be symmetric.
    pub fn distance(&self, one: usize, other: usize) -> u32 {
        self.distances[one * self.by_node.len() + other]
    }
}

fn matrix(rows: &[&[u32]]) -> Vec<u32> {
    let at = |from: usize, to: usize| rows[from].get(to).copied().unwrap_or(UNREACHABLE);
    let all = 0..rows.len();
    let pairs = all.clone().flat_map(|one| all.clone().map(move |other| (one, other)));
    pairs.map(|(one, other)| at(one, other).saturating_add(at(other, one))).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Cpu, Facts, Topology};

    /// CPUs by number, each as (node, cache, core).
    fn machine(cpus: &[(usize, usize, usize)]) -> Topology {
        let cpu = |(id, &(numa, uncore, core))| Cpu {
            id,
            core,
            uncore,
            numa,
            socket: 0,
            die: None,
            kind: None,
        };
        let cpus = cpus.iter().enumerate().map(cpu).collect();
        Topology::build(Facts { cpus, ..Facts::default() }).unwrap()
    }

    #[test]
    fn a_cache_across_nodes_has_a_cell_in_each() {
        let topology = machine(&[(0, 0, 0), (1, 0, 1), (0, 0, 0), (1, 0, 1), (1, 4, 4)]);
        let cells = topology.cells();
        let found: Vec<_> =
            cells.all().iter().map(|cell| (cell.node, cell.uncore, cell.size)).collect();
        assert_eq!(found, [(0, 0, 2), (1, 0, 2), (1, 1, 1)]);
        assert_eq!(cells.of_node(1), 1..3);
        assert_eq!(cells.cpus_of(1).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(cells.part_of(3), Some(1));
        assert!(cells.parts().iter().all(|part| !part.is_split));
    }

    #[test]
    fn a_core_in_two_nodes_is_split() {
        let topology = machine(&[(0, 0, 0), (1, 1, 0), (1, 1, 2)]);
        let split: Vec<bool> = topology.cells().parts().iter().map(|part| part.is_split).collect();
        assert_eq!(split, [true, true, false]);
    }
}
