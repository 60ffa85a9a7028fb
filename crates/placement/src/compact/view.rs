//! [`View`]: the CPUs that one decision can choose from, counted by core, cell and NUMA node.
//!
//! One pass over the usable CPUs counts them by part of a core (`cells::Part`); all other counts
//! follow. A decision takes a few of these passes, so no state needs to be kept between decisions.

use crate::cores::{CoreSizes, pick};
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use topology::{Cells, Topology};

/// The cores whose CPUs are usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    Any,
    /// Cores of which no other container has a CPU (`full-pcpus-only`).
    Whole,
    /// One CPU of each core that is entirely free (`smt: isolate`).
    OneCpu,
}

/// The most CPUs of a core that [`Load::partial`] distinguishes.
const MAX_THREADS: usize = 8;

/// The usable CPUs of a cell, or of all cells of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// All usable CPUs.
    pub(super) free: usize,
    /// Usable CPUs of whole cores: no other container has a CPU of these.
    pub(super) whole: usize,
    /// How many cores that are shared with others have 1, 2 ... usable CPUs.
    partial: [u16; MAX_THREADS],
    /// The most usable CPUs of a core.
    per_core: usize,
    /// The fewest usable CPUs of a whole core.
    smallest: usize,
    /// CPUs of ended containers of the pod.
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

    /// On how many cores other containers could run if `n` CPUs were taken from here.
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

    /// Whether taking `n` CPUs from here uses only a part of a whole core.
    pub(super) fn breaks_a_core(&self, n: usize) -> bool {
        let odd = n % self.per_core.max(1);
        n < self.whole && odd > 0 && self.partial.iter().skip(odd - 1).all(|&cores| cores == 0)
    }
}

pub(super) struct View<'m> {
    pub(super) cells: &'m Cells,
    usable: CpuSet,
    pub(super) reusable: CpuSet,
    cores: Cores,
    /// Usable CPUs by part.
    free: Vec<u16>,
    /// The number of CPUs that the container holds, by part; empty if it holds none.
    held: Vec<u16>,
    /// By cell.
    pub(super) loads: Vec<Load>,
    /// The number of usable CPUs of each NUMA node, by position.
    pub(super) nodes: Vec<usize>,
    /// The nodes of held CPUs, by position.
    pub(super) held_nodes: NodeSet,
    /// The caches of held CPUs, by position.
    pub(super) held_caches: Vec<usize>,
    /// The number of usable CPUs.
    pub(super) total: usize,
    /// Where only whole cores are used and they have several sizes: what each cell has of them.
    /// Empty where the number of usable CPUs says what a cell can give.
    pub(super) sizes: Vec<CoreSizes>,
}

impl<'m> View<'m> {
    /// For a container that holds `held` and can get the other CPUs of `usable`.
    pub(super) fn new(
        machine: &'m Topology,
        usable: &CpuSet,
        held: &CpuSet,
        reusable: &CpuSet,
        cores: Cores,
    ) -> View<'m> {
        let cells = machine.cells();
        let usable = *usable - *held;
        let held = if held.is_empty() { Vec::new() } else { count_by_part(cells, held) };
        let mut view = View {
            cells,
            usable,
            reusable: *reusable,
            cores,
            free: count_by_part(cells, &usable),
            held,
            loads: vec![Load::default(); cells.all().len()],
            nodes: vec![0; machine.nodes().len()],
            held_nodes: NodeSet::EMPTY,
            held_caches: Vec::new(),
            total: 0,
            sizes: Vec::new(),
        };
        for cell in 0..view.loads.len() {
            view.count_cell(cell);
        }
        view.sizes = view.core_sizes();
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
            let held = self.held_in(part);
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

    /// See [`View::sizes`].
    fn core_sizes(&self) -> Vec<CoreSizes> {
        if self.cores != Cores::Whole {
            return Vec::new();
        }
        let mut loads = self.loads.iter().filter(|load| load.free > 0);
        let first = loads.next().map_or(0, |load| load.smallest);
        let is_equal = |load: &Load| load.smallest == first && load.per_core == first;
        if self.loads.iter().all(|load| load.free == 0 || is_equal(load)) {
            return Vec::new();
        }
        let cells = self.cells.all().iter();
        cells
            .map(|cell| cell.parts.clone().map(|part| usize::from(self.free[part])).collect())
            .collect()
    }

    /// Whether `n` of the usable CPUs can be taken: with whole cores, whether these add up.
    pub(super) fn can_give(&self, n: usize) -> bool {
        let Some(size) = self.loads.iter().find(|load| load.free > 0).map(|load| load.per_core)
        else {
            return n == 0;
        };
        if self.cores != Cores::Whole {
            return n <= self.total;
        }
        if self.sizes.is_empty() {
            return n <= self.total && n.is_multiple_of(size);
        }
        let mut all = CoreSizes::default();
        self.sizes.iter().for_each(|sizes| all.extend(sizes));
        all.add_up_to(n)
    }

    /// The usable CPUs of each core of a cell. Cores that the container holds a part of come first,
    /// then those that its pod holds anyway.
    pub(super) fn cores_of(&self, cell: usize) -> impl Iterator<Item = CpuSet> + '_ {
        let mut parts: Vec<usize> =
            self.cells.all()[cell].parts.clone().filter(|&part| self.free[part] > 0).collect();
        parts.sort_by_key(|&part| self.core_use(part));
        parts.into_iter().map(move |part| {
            let mut cpus = CpuSet::EMPTY;
            self.take_part(part, usize::MAX, &mut cpus);
            cpus
        })
    }

    /// The usable CPUs, without those of cores that may not be used.
    pub(super) fn usable_cpus(&self) -> CpuSet {
        self.usable_cores().collect()
    }

    /// The cores that may be used, each with its usable CPUs.
    pub(super) fn usable_cores(&self) -> impl Iterator<Item = CpuSet> + '_ {
        (0..self.loads.len()).flat_map(|cell| self.cores_of(cell))
    }

    /// Adds `n` usable CPUs to `cpus`, of one cell after the other. `false` if there are too few, or
    /// cores do not add up.
    pub(super) fn take_anywhere(&self, n: usize, cpus: &mut CpuSet) -> bool {
        if !self.can_give(n) {
            return false;
        }
        if self.sizes.is_empty() {
            (0..self.loads.len()).fold(n, |left, cell| self.take(cell, left, cpus)) == 0
        } else {
            let cores: Vec<CpuSet> = self.usable_cores().collect();
            pick(&cores, n).map(|picked| *cpus |= picked).is_some()
        }
    }

    /// This view, but a request that is no multiple of a core's CPUs may use a part of a core.
    pub(super) fn breaking_cores(mut self) -> View<'m> {
        if self.cores == Cores::Whole {
            self.cores = Cores::Any;
            self.sizes = Vec::new();
        }
        self
    }

    /// All NUMA nodes whose position fits a [`NodeSet`].
    pub(super) fn all_nodes(&self) -> NodeSet {
        (0..self.nodes.len().min(MAX_NODES)).collect()
    }

    /// Adds `n` CPUs of a cell to `cpus`, or all if it has fewer. The order is: cores that the
    /// container holds a part of; then whole cores; then, for a rest smaller than a core, a core
    /// with exactly that many CPUs, otherwise the one with the smallest remainder.
    ///
    /// Returns how many it could not add.
    pub(super) fn take(&self, cell: usize, n: usize, cpus: &mut CpuSet) -> usize {
        let mut left = n.min(self.loads[cell].free);
        let short = n - left;
        for core_use in [CoreUse::Held, CoreUse::Reusable, CoreUse::Whole] {
            self.take_whole(cell, core_use, &mut left, cpus);
        }
        while left > 0 {
            let Some(part) = self.next_part(cell, left, cpus) else { break };
            left -= self.take_part(part, left, cpus);
        }
        short + left
    }

    fn take_whole(&self, cell: usize, core_use: CoreUse, left: &mut usize, cpus: &mut CpuSet) {
        let skip = match core_use {
            CoreUse::Held => self.held.is_empty(),
            CoreUse::Reusable => self.loads[cell].reusable == 0,
            CoreUse::Whole | CoreUse::Partial => false,
        };
        if skip || *left == 0 {
            return;
        }
        // Where cores are of several sizes, the largest come first, so that smaller ones can fill
        // up.
        let Load { smallest, per_core, .. } = self.loads[cell];
        for size in (smallest.max(1)..=per_core).rev() {
            for part in self.cells.all()[cell].parts.clone() {
                let is_next = usize::from(self.free[part]) == size && size <= *left;
                if is_next && self.core_use(part) == core_use && !self.is_taken(part, cpus) {
                    *left -= self.take_part(part, size, cpus);
                }
            }
        }
    }

    /// How many CPUs of a part the container holds.
    fn held_in(&self, part: usize) -> usize {
        if self.held.is_empty() { 0 } else { usize::from(self.held[part]) }
    }

    fn core_use(&self, part: usize) -> CoreUse {
        let held = self.held_in(part);
        let whole = self.cores == Cores::OneCpu
            || usize::from(self.free[part]) + held == self.cells.cpus_of(part).len();
        match (held > 0, whole) {
            (true, _) => CoreUse::Held,
            (false, false) => CoreUse::Partial,
            (false, true) if self.first(part).is_some_and(|cpu| self.reusable.contains(cpu)) => {
                CoreUse::Reusable
            }
            (false, true) => CoreUse::Whole,
        }
    }

    /// The part from which to take the rest of a request.
    fn next_part(&self, cell: usize, left: usize, cpus: &CpuSet) -> Option<usize> {
        if self.cores == Cores::Whole {
            return None;
        }
        let parts = self.cells.all()[cell].parts.clone();
        let open = parts.filter(|&part| self.free[part] > 0 && !self.is_taken(part, cpus));
        open.min_by_key(|&part| {
            let free = usize::from(self.free[part]);
            // Too few for the rest: take the largest such part, to use the fewest cores.
            if free < left {
                (1, CoreUse::Held, usize::MAX - free)
            } else {
                (0, self.core_use(part), free)
            }
        })
    }

    /// All parts but the last are taken entirely, so the first CPU stands for its part.
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
            // CPUs of the machine are within the limit of a set.
            let _ = cpus.insert(cpu);
            taken += 1;
        }
        taken
    }
}

/// What taking CPUs of a core means. The order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CoreUse {
    /// The container holds other CPUs of the core already.
    Held,
    /// Other containers have CPUs of the core.
    Partial,
    /// The pod holds the CPUs of the core anyway.
    Reusable,
    Whole,
}

fn count_by_part(cells: &Cells, cpus: &CpuSet) -> Vec<u16> {
    let mut counts = vec![0; cells.parts().len()];
    for part in cpus.iter().filter_map(|cpu| cells.part_of(cpu)) {
        counts[part] += 1;
    }
    counts
}
