//! [`View`]: the CPUs that one decision can choose from, counted by core, cell and NUMA node.
//!
//! One pass over the usable CPUs counts them by part of a core (`cells::Part`); all other counts
//! follow. A decision takes a few of these passes, so no state needs to be kept between decisions.

use crate::cores::{CoreSizes, pick};
use cpuset::{CpuSet, MAX_NODES, NodeSet};
use std::cmp::Reverse;
use topology::{Cells, Sockets, Topology};

/// The cores whose CPUs are usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    Any,
    /// Cores of which no other container has a CPU (`full-pcpus-only`).
    Whole,
    /// One CPU of each core that is entirely free (`smt: isolate`).
    OneCpu,
}

/// The most CPUs of a core that [`Load`] tells apart.
const MAX_THREADS: usize = 8;

/// How many cores have 1, 2 ... usable CPUs.
type Counts = [u16; MAX_THREADS];

/// The usable CPUs of a cell, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// All usable CPUs.
    pub(super) free: usize,
    /// Usable CPUs of whole cores: no container has a CPU of these.
    pub(super) whole: usize,
    /// The fewest and the most CPUs of a whole core.
    smallest: usize,
    largest: usize,
    whole_cores: Counts,
    /// Cores that are shared with others.
    shared_cores: Counts,
    /// Cores of which the container holds a part, and nobody else.
    own_cores: Counts,
    /// Usable CPUs of cores of which both the container and others hold a part.
    own_shared: usize,
    /// CPUs of ended containers of the pod.
    pub(super) reusable: usize,
}

/// What taking CPUs means for cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CoreCost {
    /// Cores on which other containers then run or could run, without those that the container
    /// shares anyway.
    pub(super) shared: usize,
    /// Whole cores of which only a part is taken.
    pub(super) broken: usize,
}

impl Load {
    pub(super) fn add(&mut self, other: &Load) {
        if other.whole > 0 {
            self.smallest =
                if self.whole > 0 { self.smallest.min(other.smallest) } else { other.smallest };
        }
        self.free += other.free;
        self.whole += other.whole;
        self.largest = self.largest.max(other.largest);
        self.own_shared += other.own_shared;
        self.reusable += other.reusable;
        add_counts(&mut self.whole_cores, other.whole_cores);
        add_counts(&mut self.shared_cores, other.shared_cores);
        add_counts(&mut self.own_cores, other.own_cores);
    }

    fn add_part(&mut self, free: usize, core_use: CoreUse) {
        self.free += free;
        let size = free.min(MAX_THREADS) - 1;
        match core_use {
            CoreUse::Own => self.own_cores[size] += 1,
            CoreUse::OwnShared => self.own_shared += free,
            CoreUse::Partial => self.shared_cores[size] += 1,
            CoreUse::Reusable | CoreUse::Whole => {
                self.smallest = if self.whole == 0 { free } else { self.smallest.min(free) };
                self.largest = self.largest.max(free);
                self.whole += free;
                self.whole_cores[size] += 1;
            }
        }
    }

    /// Whether all of these are whole cores of one size, so that all sets of them with the same
    /// number of CPUs are equally good.
    pub(super) fn is_regular(&self) -> bool {
        self.free == self.whole && self.smallest == self.largest && self.reusable == 0
    }

    /// How many of `n` CPUs are taken as whole cores: the most that these add up to.
    fn in_whole_cores(&self, n: usize) -> usize {
        if n >= self.whole {
            return self.whole;
        }
        if self.smallest == self.largest {
            return n - n % self.largest;
        }
        let mut sizes = CoreSizes::default();
        for (size, count) in (1..).zip(self.whole_cores) {
            sizes.add(size, count.into());
        }
        sizes.most_up_to(n)
    }

    /// What [`View::take`] of `n` CPUs of these means for cores. No way to take them shares fewer,
    /// and none that shares as few breaks fewer, if the container holds none.
    pub(super) fn core_cost(&self, n: usize) -> CoreCost {
        let mut left = n;
        if self.own_cores != Counts::default() {
            for (size, count) in (1..).zip(self.own_cores) {
                let taken = usize::from(count).min(left / size);
                left -= taken * size;
                if taken < count.into() {
                    let own = self.own_cores[size - 1..].iter().copied().map(usize::from);
                    return CoreCost { shared: own.sum::<usize>() - taken, broken: 0 };
                }
            }
        }
        let whole = self.in_whole_cores(left);
        left = (left - whole).saturating_sub(self.own_shared);
        if left == 0 {
            return CoreCost::default();
        }
        if whole < self.whole {
            let is_broken = self.shared_cores.iter().skip(left - 1).all(|&cores| cores == 0);
            return CoreCost { shared: 1, broken: is_broken.into() };
        }
        let mut shared = 0;
        for free in (1..=MAX_THREADS).rev() {
            let cores = usize::from(self.shared_cores[free - 1]).min(left.div_ceil(free));
            shared += cores;
            left = left.saturating_sub(cores * free);
        }
        CoreCost { shared, broken: 0 }
    }
}

fn add_counts(counts: &mut Counts, others: Counts) {
    for (one, other) in counts.iter_mut().zip(others) {
        *one += other;
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
    pub(super) held_sockets: Sockets,
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
            held_sockets: 0,
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
            let parts = parts.filter_map(|cpu| cells.part_of(cpu));
            for part in parts.filter(|&part| view.free[part] > 0) {
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
                load.add_part(free, CoreUse::of(held > 0, is_whole));
            }
        }
        if holds {
            self.held_nodes = self.held_nodes.union(NodeSet::of(cell.node));
            self.held_sockets |= cell.socket;
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
        let is_equal = |load: &Load| {
            load.smallest == first && load.largest == first && load.free == load.whole
        };
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
        let Some(size) = self.loads.iter().find(|load| load.free > 0).map(|load| load.largest)
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
        parts.into_iter().map(move |part| self.usable_of(part))
    }

    fn usable_of(&self, part: usize) -> CpuSet {
        let mut cpus = CpuSet::EMPTY;
        self.take_part(part, usize::MAX, &mut cpus);
        cpus
    }

    /// The usable CPUs, without those of cores that may not be used.
    pub(super) fn usable_cpus(&self) -> CpuSet {
        self.usable_cores().collect()
    }

    /// The cores that may be used, each with its usable CPUs.
    pub(super) fn usable_cores(&self) -> impl Iterator<Item = CpuSet> + '_ {
        (0..self.loads.len()).flat_map(|cell| self.cores_of(cell))
    }

    /// Adds `n` usable CPUs to `cpus`, wherever they are. `false` if there are too few, or cores do
    /// not add up.
    pub(super) fn take_anywhere(&self, n: usize, cpus: &mut CpuSet) -> bool {
        let all: Vec<usize> = (0..self.loads.len()).collect();
        self.can_give(n) && self.take(&all, n, cpus)
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

    /// Adds `n` CPUs of these cells to `cpus`, of the first ones first. The order is: cores that the
    /// container holds a part of; then whole cores; then, for a rest smaller than a core, a core
    /// with exactly that many CPUs, otherwise the one with the smallest remainder.
    ///
    /// `false` if there are too few, or cores do not add up.
    pub(super) fn take(&self, cells: &[usize], n: usize, cpus: &mut CpuSet) -> bool {
        if !self.sizes.is_empty() {
            let cores: Vec<CpuSet> = cells.iter().flat_map(|&cell| self.cores_of(cell)).collect();
            return pick(&cores, n).map(|picked| *cpus |= picked).is_some();
        }
        let mut load = Load::default();
        cells.iter().for_each(|&cell| load.add(&self.loads[cell]));
        let parts = cells.iter().flat_map(|&cell| self.cells.all()[cell].parts.clone());
        let parts: Vec<usize> = parts.filter(|&part| self.free[part] > 0).collect();
        let mut left = n - self.take_own(&parts, n, CoreUse::Own, cpus);
        left -= self.take_whole(&parts, &load, load.in_whole_cores(left), cpus);
        left -= self.take_own(&parts, left, CoreUse::OwnShared, cpus);
        while left > 0 {
            let Some(part) = self.next_part(&parts, left, cpus) else { return false };
            left -= self.take_part(part, left, cpus);
        }
        true
    }

    /// Takes up to `n` CPUs of cores that the container holds a part of, as many cores as possible.
    fn take_own(&self, parts: &[usize], n: usize, core_use: CoreUse, cpus: &mut CpuSet) -> usize {
        if self.held.is_empty() {
            return 0;
        }
        let own = parts.iter().copied().filter(|&part| self.core_use(part) == core_use);
        let mut own: Vec<usize> = own.collect();
        own.sort_by_key(|&part| self.free[part]);
        own.into_iter().fold(0, |taken, part| taken + self.take_part(part, n - taken, cpus))
    }

    /// Takes whole cores that add up to `n` CPUs: those that the pod holds anyway first.
    fn take_whole(&self, parts: &[usize], load: &Load, n: usize, cpus: &mut CpuSet) -> usize {
        let mut left = n;
        if n < load.whole && load.smallest < load.largest {
            let is_whole = |&part: &usize| self.core_use(part) >= CoreUse::Reusable;
            let mut whole: Vec<usize> = parts.iter().copied().filter(is_whole).collect();
            whole.sort_by_key(|&part| (self.core_use(part), Reverse(self.free[part])));
            let cores: Vec<CpuSet> = whole.into_iter().map(|part| self.usable_of(part)).collect();
            return pick(&cores, n).map_or(0, |picked| {
                *cpus |= picked;
                n
            });
        }
        let uses: &[CoreUse] = if load.reusable > 0 {
            &[CoreUse::Reusable, CoreUse::Whole]
        } else {
            &[CoreUse::Whole]
        };
        for core_use in uses {
            for &part in parts {
                if left == 0 {
                    return n;
                }
                if self.core_use(part) == *core_use {
                    left -= self.take_part(part, left, cpus);
                }
            }
        }
        n - left
    }

    /// How many CPUs of a part the container holds.
    fn held_in(&self, part: usize) -> usize {
        if self.held.is_empty() { 0 } else { usize::from(self.held[part]) }
    }

    fn core_use(&self, part: usize) -> CoreUse {
        let held = self.held_in(part);
        let is_whole = self.cores == Cores::OneCpu
            || usize::from(self.free[part]) + held == self.cells.cpus_of(part).len();
        let is_reusable = || self.first(part).is_some_and(|cpu| self.reusable.contains(cpu));
        match CoreUse::of(held > 0, is_whole) {
            CoreUse::Whole if is_reusable() => CoreUse::Reusable,
            other => other,
        }
    }

    /// The part from which to take the rest of a request.
    fn next_part(&self, parts: &[usize], left: usize, cpus: &CpuSet) -> Option<usize> {
        if self.cores == Cores::Whole {
            return None;
        }
        let open = parts.iter().copied().filter(|&part| !self.is_taken(part, cpus));
        open.min_by_key(|&part| {
            let free = usize::from(self.free[part]);
            // Too few for the rest: take the largest such part, to use the fewest cores.
            if free < left {
                (1, CoreUse::Own, usize::MAX - free)
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

/// What taking CPUs of a core means. The order is the order of preference for the rest of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CoreUse {
    /// The container holds other CPUs of the core already, and nobody else does.
    Own,
    /// Both the container and others hold CPUs of the core already.
    OwnShared,
    /// Other containers have CPUs of the core.
    Partial,
    /// The pod holds the CPUs of the core anyway.
    Reusable,
    Whole,
}

impl CoreUse {
    /// `is_whole` if no other container has a CPU of the core.
    fn of(is_held: bool, is_whole: bool) -> CoreUse {
        match (is_held, is_whole) {
            (true, true) => CoreUse::Own,
            (true, false) => CoreUse::OwnShared,
            (false, true) => CoreUse::Whole,
            (false, false) => CoreUse::Partial,
        }
    }
}

fn count_by_part(cells: &Cells, cpus: &CpuSet) -> Vec<u16> {
    let mut counts = vec![0; cells.parts().len()];
    for part in cpus.iter().filter_map(|cpu| cells.part_of(cpu)) {
        counts[part] += 1;
    }
    counts
}
