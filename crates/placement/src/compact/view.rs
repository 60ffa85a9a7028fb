//! [`View`]: what one decision can choose from, counted by core, cell and NUMA node.
//!
//! One pass over the usable CPUs counts them by the part of a core that they are in; everything
//! else follows from these counts. A decision is a few of these passes, so there is no state to
//! keep between decisions.

use cpuset::{CpuSet, MAX_NODES, NodeSet};
use topology::{Cells, Topology};

/// Which cores' CPUs are usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cores {
    Any,
    /// Those that nobody else has CPUs of (`full-pcpus-only`).
    Whole,
    /// One CPU of each core that is entirely free (`smt: isolate`).
    OneCpu,
}

/// The most CPUs of a core that [`Load::partial`] tells apart.
const MAX_THREADS: usize = 8;

/// What a cell, or all cells of a cache, can give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// All usable CPUs.
    pub(super) free: usize,
    /// Those of cores of which nobody else has a CPU.
    pub(super) whole: usize,
    /// How many cores are shared with others and have 1, 2 ... usable CPUs.
    partial: [u16; MAX_THREADS],
    /// The most usable CPUs of a core.
    per_core: usize,
    /// The fewest usable CPUs of a core of which nobody else has a CPU.
    smallest: usize,
    /// Those of ended containers of the pod.
    pub(super) reusable: usize,
}

impl Load {
    pub(super) fn add(&mut self, other: &Load) {
        if other.whole > 0 {
            self.smallest =
                if self.whole > 0 { self.smallest.min(other.smallest) } else { other.smallest };
        }
        self.free += other.free;
        self.whole += other.whole;
        self.per_core = self.per_core.max(other.per_core);
        self.reusable += other.reusable;
        for (one, other) in self.partial.iter_mut().zip(other.partial) {
            *one += other;
        }
    }

    fn add_part(&mut self, free: usize, is_whole: bool) {
        self.free += free;
        self.per_core = self.per_core.max(free);
        if is_whole {
            self.smallest = if self.whole == 0 { free } else { self.smallest.min(free) };
            self.whole += free;
        } else {
            self.partial[free.min(MAX_THREADS) - 1] += 1;
        }
    }

    /// On how many cores others could run beside `n` CPUs from here.
    pub(super) fn shared(&self, n: usize) -> usize {
        if n <= self.whole {
            return usize::from(!n.is_multiple_of(self.per_core.max(1)));
        }
        let mut left = n - self.whole;
        let mut shared = 0;
        for free in (1..=MAX_THREADS).rev() {
            let cores = usize::from(self.partial[free - 1]).min(left.div_ceil(free));
            shared += cores;
            left = left.saturating_sub(cores * free);
        }
        shared
    }

    /// Whether `n` CPUs from here break a core of which nobody else has a CPU.
    pub(super) fn breaks_a_core(&self, n: usize) -> bool {
        let odd = n % self.per_core.max(1);
        n < self.whole && odd > 0 && self.partial.iter().skip(odd - 1).all(|&cores| cores == 0)
    }
}

pub(super) struct View<'m> {
    pub(super) cells: &'m Cells,
    usable: CpuSet,
    reusable: CpuSet,
    cores: Cores,
    /// Usable CPUs by part.
    free: Vec<u16>,
    /// CPUs that the container holds, by part; empty if it holds none.
    held: Vec<u16>,
    /// By cell.
    pub(super) loads: Vec<Load>,
    /// Usable CPUs by position of a NUMA node.
    pub(super) nodes: Vec<usize>,
    /// Nodes and caches, by position, of the CPUs that the container holds.
    pub(super) held_nodes: NodeSet,
    pub(super) held_caches: Vec<usize>,
    /// The number of usable CPUs.
    pub(super) total: usize,
}

impl<'m> View<'m> {
    /// The CPUs of `usable` that are not in `held`, for a container that holds these.
    pub(super) fn new(
        machine: &'m Topology,
        usable: &CpuSet,
        held: &CpuSet,
        reusable: &CpuSet,
        cores: Cores,
    ) -> View<'m> {
        let cells = machine.cells();
        let usable = *usable - *held;
        let held = if held.is_empty() { Vec::new() } else { count(cells, held) };
        let mut view = View {
            cells,
            usable,
            reusable: *reusable,
            cores,
            free: count(cells, &usable),
            held,
            loads: vec![Load::default(); cells.all().len()],
            nodes: vec![0; machine.nodes().len()],
            held_nodes: NodeSet::EMPTY,
            held_caches: Vec::new(),
            total: 0,
        };
        for cell in 0..view.loads.len() {
            view.count_cell(cell);
        }
        if !reusable.is_empty() {
            let parts = reusable.iter().filter(|cpu| usable.contains(*cpu));
            for part in parts.filter_map(|cpu| cells.part_of(cpu)) {
                view.loads[cells.parts()[part].cell].reusable += 1;
            }
        }
        view
    }

    fn count_cell(&mut self, at: usize) {
        let cell = &self.cells.all()[at];
        let mut load = Load::default();
        let mut holds = false;
        for part in cell.parts.clone() {
            let held = usize::from(self.held.get(part).copied().unwrap_or(0));
            holds |= held > 0;
            let mut free = usize::from(self.free[part]);
            if free == 0 {
                continue;
            }
            let is_whole = free + held == self.cells.cpus_of(part).len();
            let is_split = self.cells.parts()[part].is_split;
            free = match self.cores {
                Cores::Any => free,
                Cores::Whole if is_whole && !is_split => free,
                Cores::OneCpu if is_whole && !is_split && held == 0 => 1,
                Cores::Whole | Cores::OneCpu => 0,
            };
            self.free[part] = free as u16;
            if free > 0 {
                load.add_part(free, is_whole);
            }
        }
        if holds {
            self.held_nodes = self.held_nodes.union(NodeSet::of(cell.node));
            if !self.held_caches.contains(&cell.uncore) {
                self.held_caches.push(cell.uncore);
            }
        }
        self.nodes[cell.node] += load.free;
        self.total += load.free;
        self.loads[at] = load;
    }

    /// The same, but the odd rest of a request may break a core.
    pub(super) fn breaking_cores(mut self) -> View<'m> {
        if self.cores == Cores::Whole {
            self.cores = Cores::Any;
        }
        self
    }

    /// All NUMA nodes that an affinity can name, by position.
    pub(super) fn all_nodes(&self) -> NodeSet {
        (0..self.nodes.len().min(MAX_NODES)).collect()
    }

    /// Adds `n` CPUs of a cell to `cpus`, or as many as there are: cores that the container holds a
    /// part of first, then whole cores. The odd rest is from a core with exactly that many, else from
    /// the one with the smallest remainder, else from a new core.
    ///
    /// Returns how many it could not add.
    pub(super) fn take(&self, cell: usize, n: usize, cpus: &mut CpuSet) -> usize {
        let mut left = n.min(self.loads[cell].free);
        let short = n - left;
        for kind in [Kind::Held, Kind::Reusable, Kind::Whole] {
            self.take_whole(cell, kind, &mut left, cpus);
        }
        while left > 0 {
            let Some(part) = self.next_part(cell, left, cpus) else { break };
            left -= self.take_part(part, left, cpus);
        }
        short + left
    }

    fn take_whole(&self, cell: usize, kind: Kind, left: &mut usize, cpus: &mut CpuSet) {
        let skip = match kind {
            Kind::Held => self.held.is_empty(),
            Kind::Reusable => self.loads[cell].reusable == 0,
            Kind::Whole | Kind::Partial => false,
        };
        if skip || *left == 0 {
            return;
        }
        // Cores of several sizes, the largest first: then every number that adds up is found.
        let Load { smallest, per_core, .. } = self.loads[cell];
        for size in (smallest.max(1)..=per_core).rev() {
            for part in self.cells.all()[cell].parts.clone() {
                let is_next = usize::from(self.free[part]) == size && size <= *left;
                if is_next && self.kind(part) == kind && !self.is_taken(part, cpus) {
                    *left -= self.take_part(part, size, cpus);
                }
            }
        }
    }

    fn kind(&self, part: usize) -> Kind {
        let held = usize::from(self.held.get(part).copied().unwrap_or(0));
        let whole = self.cores == Cores::OneCpu
            || usize::from(self.free[part]) + held == self.cells.cpus_of(part).len();
        match (held > 0, whole) {
            (true, _) => Kind::Held,
            (false, false) => Kind::Partial,
            (false, true) if self.first(part).is_some_and(|cpu| self.reusable.contains(cpu)) => {
                Kind::Reusable
            }
            (false, true) => Kind::Whole,
        }
    }

    /// Where the odd rest is from.
    fn next_part(&self, cell: usize, left: usize, cpus: &CpuSet) -> Option<usize> {
        if self.cores == Cores::Whole {
            return None;
        }
        let parts = self.cells.all()[cell].parts.clone();
        let open = parts.filter(|&part| self.free[part] > 0 && !self.is_taken(part, cpus));
        open.min_by_key(|&part| {
            let free = usize::from(self.free[part]);
            // None has that many: the fewest cores.
            if free < left {
                (1, Kind::Held, usize::MAX - free)
            } else {
                (0, self.kind(part), free)
            }
        })
    }

    /// A part is taken as a whole, except for the last one.
    fn is_taken(&self, part: usize, cpus: &CpuSet) -> bool {
        self.first(part).is_some_and(|cpu| cpus.contains(cpu))
    }

    fn first(&self, part: usize) -> Option<usize> {
        self.cells.cpus_of(part).find(|&cpu| self.usable.contains(cpu))
    }

    fn take_part(&self, part: usize, most: usize, cpus: &mut CpuSet) -> usize {
        let usable = self.cells.cpus_of(part).filter(|&cpu| self.usable.contains(cpu));
        let mut taken = 0;
        for cpu in usable.take(most.min(usize::from(self.free[part]))) {
            // Its number is one of the machine's, so it is within the limit.
            let _ = cpus.insert(cpu);
            taken += 1;
        }
        taken
    }
}

/// What taking CPUs of a core means, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The container holds others of it already.
    Held,
    /// Others have CPUs of it.
    Partial,
    /// The pod would hold its CPUs anyway.
    Reusable,
    Whole,
}

fn count(cells: &Cells, cpus: &CpuSet) -> Vec<u16> {
    let mut counts = vec![0; cells.parts().len()];
    for part in cpus.iter().filter_map(|cpu| cells.part_of(cpu)) {
        counts[part] += 1;
    }
    counts
}
