//! [`search()`]: finds the cheapest way to take CPUs, over sets of NUMA nodes and the caches in
//! them.

use super::cost::Cost;
use super::sets::{AddedNodes, NodeBounds, others, sets};
use super::sums::Sums;
use super::view::{Load, View};
use crate::cores::{CoreSizes, Domains, pick};
use cpuset::{CpuSet, NodeSet};
use topology::Cells;

/// What a search must find.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchDemand {
    /// The number of CPUs to take.
    pub(super) cpus: usize,
    pub(super) nodes: NodeBounds,
    /// The most uncore caches to take CPUs of, not counting those that the container uses already.
    pub(super) most_caches: usize,
    /// Whether caches matter. If not, the smallest remainders are taken first.
    pub(super) align: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) cost: Cost,
    /// The nodes by position, including those of the base.
    pub(super) nodes: NodeSet,
    takes: Takes,
}

/// What a choice takes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Takes {
    /// CPUs by number, from caches whose cores have one size.
    Counted(Vec<Take>),
    /// Cores of several sizes.
    Cores(CpuSet),
}

/// A number of CPUs to take of a cache, in the cells of the chosen nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Take {
    uncore: usize,
    cpus: usize,
}

/// The part of a cache that is in the current set of nodes.
#[derive(Debug, Clone, Copy)]
struct CacheLoad {
    uncore: usize,
    is_held: bool,
    load: Load,
}

/// How many parts a node is divided into for [`Cost::room`].
const EIGHTHS: usize = 8;

pub(super) struct CostSearch<'v, 'm> {
    view: &'v View<'m>,
    demand: SearchDemand,
    /// The current set of nodes. The next four fields belong to it.
    nodes: NodeSet,
    distance: u64,
    /// The number of usable CPUs.
    free: usize,
    /// See [`Cost::room`].
    room: (usize, usize),
    /// The caches with usable CPUs. Those that the container uses already come first.
    caches: Vec<CacheLoad>,
    /// CPUs of caches that the container uses already: every choice includes these.
    takes: Vec<Take>,
    /// Buffers, to save allocations.
    numbers: Vec<usize>,
    sums: Sums,
    best: Option<Choice>,
    second: Option<Cost>,
}

/// The cheapest choice, and the cost of the second-best one if the search came across it.
pub(super) fn search(view: &View<'_>, demand: SearchDemand) -> Option<(Choice, Option<Cost>)> {
    let mut search = CostSearch {
        view,
        demand,
        nodes: NodeSet::EMPTY,
        distance: 0,
        free: 0,
        room: (0, 0),
        caches: Vec::new(),
        takes: Vec::new(),
        numbers: Vec::new(),
        sums: Sums::default(),
        best: None,
        second: None,
    };
    search.run();
    let second = search.second;
    search.best.map(|best| (best, second))
}

impl CostSearch<'_, '_> {
    fn run(&mut self) {
        let SearchDemand { cpus: n, nodes, most_caches, .. } = self.demand;
        if nodes.base.len() > nodes.most {
            return;
        }
        let others = others(self.view, &nodes);
        let mut free: usize = nodes.base.iter().map(|node| self.view.nodes[node]).sum();
        let mut fewest = 0;
        while free < n {
            let Some(&next) = others.get(fewest) else { return };
            free += self.view.nodes[next];
            fewest += 1;
        }
        // Where cores must add up, a set with enough CPUs may still not hold the request.
        let limited = most_caches < self.view.loads.len() || !self.view.sizes.is_empty();
        let most = (nodes.most - nodes.base.len()).min(others.len());
        // Unless caches span nodes, each added node has another cache.
        let most = if self.view.cells.caches_span_nodes() { most } else { most.min(most_caches) };
        for size in fewest..=most {
            let mut last = None;
            // The nearest sets come first, and distance comes before caches in the cost.
            for candidate in sets(self.view, &nodes, &others, size, n, limited) {
                if self.best.is_some() && last.is_some_and(|distance| distance < candidate.distance)
                {
                    break;
                }
                last = Some(candidate.distance);
                self.search_nodes(candidate);
            }
            // More nodes cost more. They help only if the number of caches is limited, or cores
            // must add up.
            if self.best.is_some() || !limited {
                return;
            }
        }
    }

    fn search_nodes(&mut self, candidate: AddedNodes) {
        self.nodes = candidate.nodes.union(self.demand.nodes.base);
        self.distance = candidate.distance;
        self.free = self.nodes.iter().map(|node| self.view.nodes[node]).sum();
        self.room = self.room_taken();
        self.list_caches();
        let n = self.demand.cpus;
        if !self.view.sizes.is_empty() {
            self.cores_that_add_up();
            return;
        }
        if !self.demand.align {
            self.fill_remainders(n);
            return;
        }
        let held = self.caches.iter().take_while(|cache| cache.is_held).count();
        let sum = |count: fn(&Load) -> usize| -> usize {
            self.caches[..held].iter().map(|cache| count(&cache.load)).sum()
        };
        let free = sum(|load| load.free);
        let whole = sum(|load| load.whole);
        if n <= free {
            self.choose(0, held, n, 0);
            return;
        }
        self.use_held(held, |load| load.free);
        self.choose(held, self.caches.len(), n - free, held);
        // Leaving parts of cores in the held caches may share fewer cores.
        if whole < free {
            self.use_held(held, |load| load.whole);
            self.choose(held, self.caches.len(), n - whole, held);
        }
    }

    /// [`Cost::room`] of the current nodes. Where a request that fits no single node is refused,
    /// room for large requests in one node runs out first. The position makes the first of equal
    /// nodes the cheapest, so that the last ones stay empty.
    fn room_taken(&self) -> (usize, usize) {
        let mut nodes = self.nodes.iter();
        let (Some(node), None) = (nodes.next(), nodes.next()) else { return (0, 0) };
        if self.demand.nodes.most == usize::MAX {
            return (0, 0);
        }
        let cells = self.view.cells;
        let size: usize = cells.of_node(node).map(|at| cells.all()[at].size).sum();
        let requests = |free: usize| -> usize {
            (1..=EIGHTHS).map(|part| EIGHTHS * free / (part * size.max(1))).sum()
        };
        let left = self.free.saturating_sub(self.demand.cpus);
        (requests(self.free) - requests(left), node)
    }

    fn list_caches(&mut self) {
        let CostSearch { view, caches, .. } = self;
        caches.clear();
        for node in self.nodes.iter() {
            for at in view.cells.of_node(node) {
                let load = &view.loads[at];
                if load.free == 0 {
                    continue;
                }
                let uncore = view.cells.all()[at].uncore;
                let same = if view.cells.caches_span_nodes() {
                    caches.iter_mut().find(|cache| cache.uncore == uncore)
                } else {
                    None
                };
                match same {
                    Some(cache) => cache.load.add(load),
                    None => {
                        let is_held = view.held_caches.contains(&uncore);
                        caches.push(CacheLoad { uncore, is_held, load: *load });
                    }
                }
            }
        }
        if !view.held_caches.is_empty() {
            caches.sort_by_key(|cache| !cache.is_held);
        }
    }

    /// Takes all that the first `held` caches can give.
    fn use_held(&mut self, held: usize, count: impl Fn(&Load) -> usize) {
        self.takes.clear();
        for cache in &self.caches[..held] {
            self.takes.push(Take { uncore: cache.uncore, cpus: count(&cache.load) });
        }
    }

    /// Offers the ways to take `n` CPUs of the fewest caches in a range, in addition to the CPUs of
    /// the first `held` caches.
    fn choose(&mut self, from: usize, to: usize, n: usize, held: usize) {
        if held == 0 {
            self.takes.clear();
        }
        self.numbers.clear();
        self.numbers.extend(self.caches[from..to].iter().map(|cache| cache.load.free));
        self.numbers.sort_unstable();
        let mut missing = n;
        let mut count = 0;
        while missing > 0 {
            let Some(most) = self.numbers.pop() else { return };
            missing = missing.saturating_sub(most);
            count += 1;
        }
        // Caches that the container uses already cost nothing.
        let cost = if to <= from || self.caches[from].is_held { 0 } else { count };
        if cost > self.demand.most_caches || self.is_hopeless(cost) {
            return;
        }
        match count {
            // `n` is 0: the pod holds all CPUs that its affinity is chosen for.
            0 => self.offer(cost, &[]),
            1 => self.one_of(from, to, n, cost),
            2 => self.two_of(from, to, n, cost),
            _ => {
                self.several_of(from, to, n, count, cost, |load| load.whole);
                self.several_of(from, to, n, count, cost, |load| load.free);
            }
        }
    }

    fn is_hopeless(&self, caches: usize) -> bool {
        let cost = Cost::at_least(self.nodes.len(), self.distance, self.room, caches);
        self.best.as_ref().is_some_and(|best| best.cost < cost)
    }

    fn one_of(&mut self, from: usize, to: usize, n: usize, cost: usize) {
        for at in from..to {
            if n <= self.caches[at].load.free {
                self.offer(cost, &[(at, n)]);
            }
        }
    }

    /// All of one cache, and the rest from another.
    fn two_of(&mut self, from: usize, to: usize, n: usize, cost: usize) {
        for first in from..to {
            let whole = self.caches[first].load.free;
            for second in from..to {
                if second != first && n > whole && n - whole <= self.caches[second].load.free {
                    self.offer(cost, &[(first, whole), (second, n - whole)]);
                }
            }
        }
    }

    /// The `count` caches whose CPUs come closest to `n`. What is left over stays in the largest.
    fn several_of(
        &mut self,
        from: usize,
        to: usize,
        n: usize,
        count: usize,
        cost: usize,
        cpus: impl Fn(&Load) -> usize,
    ) {
        self.numbers.clear();
        self.numbers.extend(self.caches[from..to].iter().map(|cache| cpus(&cache.load)));
        let Some((sum, chosen)) = self.sums.least(&self.numbers, count, n) else { return };
        let numbers = &self.numbers;
        let Some(largest) = chosen.iter().copied().max_by_key(|&at| numbers[at]) else { return };
        let mut over = sum - n;
        let mut takes = Vec::with_capacity(count);
        for at in chosen.into_iter().filter(|&at| at != largest).chain([largest]) {
            let spared = if at == largest { over.min(numbers[at]) } else { 0 };
            over -= spared;
            takes.push((from + at, numbers[at] - spared));
        }
        self.offer(cost, &takes);
    }

    /// Takes the caches with the fewest free CPUs first.
    fn fill_remainders(&mut self, n: usize) {
        self.takes.clear();
        let mut order: Vec<usize> = (0..self.caches.len()).collect();
        order.sort_by_key(|&at| self.caches[at].load.free);
        let mut left = n;
        let mut takes = Vec::new();
        for at in order {
            let taken = left.min(self.caches[at].load.free);
            left -= taken;
            if taken > 0 {
                takes.push((at, taken));
            }
        }
        if left == 0 {
            self.offer(0, &takes);
        }
    }

    /// Offers the fewest caches of the current nodes whose cores add up, in addition to those that
    /// the container uses already; of these the ones with the fewest CPUs.
    fn cores_that_add_up(&mut self) {
        let CostSearch { view, demand, nodes, caches, .. } = self;
        let cells = view.cells;
        let cells_of = |uncore: usize| {
            let all = nodes.iter().flat_map(|node| cells.of_node(node));
            all.filter(move |&at| cells.all()[at].uncore == uncore)
        };
        let sizes: Vec<CoreSizes> = caches
            .iter()
            .map(|cache| {
                let mut sizes = CoreSizes::default();
                cells_of(cache.uncore).for_each(|cell| sizes.extend(&view.sizes[cell]));
                sizes
            })
            .collect();
        let (held, mut others): (Vec<usize>, Vec<usize>) =
            (0..caches.len()).partition(|&at| caches[at].is_held);
        others.sort_by_key(|&at| caches[at].load.free);
        if demand.align {
            let domains = Domains { sizes: &sizes, n: demand.cpus };
            let Some(fewest) = domains.first(&held, &others) else { return };
            others = fewest;
        }
        let cost = if demand.align { others.len() } else { 0 };
        if cost > demand.most_caches {
            return;
        }
        let chosen: Vec<&CacheLoad> = held.iter().chain(&others).map(|&at| &caches[at]).collect();
        let cores = chosen.iter().flat_map(|cache| cells_of(cache.uncore));
        let cores: Vec<CpuSet> = cores.flat_map(|cell| view.cores_of(cell)).collect();
        let Some(cpus) = pick(&cores, demand.cpus) else { return };
        let free: usize = chosen.iter().map(|cache| cache.load.free).sum();
        let mut cost = Cost::at_least(self.nodes.len(), self.distance, self.room, cost);
        cost.not_reused = (cpus - view.reusable).len();
        cost.potential = 20 * (free - cpus.len()) + self.free;
        if !self.is_beaten(cost) {
            self.replace(cost, Takes::Cores(cpus));
        }
    }

    /// Keeps a choice if it is the cheapest so far: numbers of CPUs of caches, by index, in
    /// addition to `self.takes`.
    fn offer(&mut self, caches: usize, takes: &[(usize, usize)]) {
        let mut cost = Cost::at_least(self.nodes.len(), self.distance, self.room, caches);
        let mut reused = 0;
        let mut left_over = 0;
        for &(at, cpus) in takes {
            let load = &self.caches[at].load;
            cost.shared_cores += load.shared(cpus);
            cost.broken_cores += usize::from(load.breaks_a_core(cpus));
            left_over += load.free - cpus;
            reused += load.reusable.min(cpus);
        }
        for taken in &self.takes {
            let cache = self.caches.iter().find(|cache| cache.uncore == taken.uncore);
            if let Some(CacheLoad { load, .. }) = cache {
                cost.shared_cores += load.shared(taken.cpus);
                reused += load.reusable.min(taken.cpus);
            }
        }
        cost.not_reused = self.demand.cpus.saturating_sub(reused);
        // Remainders of caches count far more than free CPUs of nodes: on the churn benchmark this
        // weight aligned slightly more containers than others.
        cost.potential = 20 * left_over + self.free;
        let is_repeated = |best: &Choice| match &best.takes {
            Takes::Counted(best) => takes
                .iter()
                .all(|&(at, cpus)| best.contains(&Take { uncore: self.caches[at].uncore, cpus })),
            Takes::Cores(_) => false,
        };
        let is_known = self.is_equal(cost) && self.best.as_ref().is_some_and(is_repeated);
        if is_known || self.is_beaten(cost) {
            return;
        }
        let mut all = self.takes.clone();
        all.extend(takes.iter().map(|&(at, cpus)| Take { uncore: self.caches[at].uncore, cpus }));
        self.replace(cost, Takes::Counted(all));
    }

    /// Whether the cheapest choice so far has this cost, and the current nodes.
    fn is_equal(&self, cost: Cost) -> bool {
        self.best.as_ref().is_some_and(|best| best.cost == cost && best.nodes == self.nodes)
    }

    /// Whether another choice is as cheap; this one is then the second-best, unless others are.
    fn is_beaten(&mut self, cost: Cost) -> bool {
        let is_beaten = self.best.as_ref().is_some_and(|best| best.cost <= cost);
        if is_beaten {
            self.second = Some(self.second.map_or(cost, |second| second.min(cost)));
        }
        is_beaten
    }

    fn replace(&mut self, cost: Cost, takes: Takes) {
        let previous = self.best.replace(Choice { cost, nodes: self.nodes, takes });
        self.second = previous.map(|previous| previous.cost);
    }
}

impl Choice {
    /// Adds the chosen CPUs to `cpus`.
    pub(super) fn take(&self, view: &View<'_>, cpus: &mut CpuSet) {
        match &self.takes {
            Takes::Counted(takes) => {
                takes.iter().for_each(|take| self.take_of(view, *take, cpus));
            }
            Takes::Cores(cores) => *cpus |= *cores,
        }
    }

    /// Takes the smallest cells of the cache first, so that what is left over is in one cell.
    fn take_of(&self, view: &View<'_>, take: Take, cpus: &mut CpuSet) {
        let cells: &Cells = view.cells;
        let mut of_cache: Vec<usize> = Vec::new();
        for node in self.nodes.iter() {
            of_cache
                .extend(cells.of_node(node).filter(|&at| cells.all()[at].uncore == take.uncore));
        }
        of_cache.sort_by_key(|&at| view.loads[at].free);
        let mut left = take.cpus;
        for at in of_cache {
            let part = left.min(view.loads[at].free);
            left -= part;
            let short = view.take(at, part, cpus);
            debug_assert_eq!(short, 0, "cores of one size add up");
        }
    }
}
