//! [`Search`]: the cheapest way to take CPUs, over sets of NUMA nodes and the caches in them.

use super::cost::Cost;
use super::sets::{Candidate, Nodes, others, sets};
use super::sums::Sums;
use super::view::{Load, View};
use cpuset::{CpuSet, NodeSet};
use topology::Cells;

/// What one search is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// CPUs to take.
    pub(super) cpus: usize,
    pub(super) nodes: Nodes,
    /// The most uncore caches, beside those that the container holds CPUs of.
    pub(super) most_caches: usize,
    /// Whether caches matter at all; if not, the smallest remainders come first.
    pub(super) align: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) cost: Cost,
    /// The nodes by position, those of the base included.
    pub(super) nodes: NodeSet,
    takes: Vec<Take>,
}

/// So many CPUs of a cache, in the cells of the chosen nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Take {
    uncore: usize,
    cpus: usize,
}

/// A cache, as far as it is in the nodes looked into.
#[derive(Debug, Clone, Copy)]
struct Cache {
    uncore: usize,
    is_held: bool,
    load: Load,
}

/// Requests are of so many parts of a node, see [`Cost::room`].
const EIGHTHS: usize = 8;

pub(super) struct Search<'v, 'm> {
    view: &'v View<'m>,
    demand: Demand,
    /// The nodes looked into.
    nodes: NodeSet,
    distance: u64,
    /// Usable CPUs in these.
    free: usize,
    /// See [`Cost::room`].
    room: (usize, usize),
    /// Their caches with usable CPUs, those that the container holds CPUs of first.
    caches: Vec<Cache>,
    takes: Vec<Take>,
    numbers: Vec<usize>,
    sums: Sums,
    best: Option<Choice>,
    second: Option<Cost>,
}

/// The cheapest choice, and what the second best cost if it was among the nodes looked into.
pub(super) fn search(view: &View<'_>, demand: Demand) -> Option<(Choice, Option<Cost>)> {
    let mut search = Search {
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

impl Search<'_, '_> {
    fn run(&mut self) {
        let Demand { cpus: n, nodes, most_caches, .. } = self.demand;
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
        let limited = most_caches < self.view.loads.len();
        let most = (nodes.most - nodes.base.len()).min(others.len());
        // Each node that is added has another cache then.
        let most = if self.view.cells.caches_span_nodes() { most } else { most.min(most_caches) };
        for size in fewest..=most {
            let mut last = None;
            for candidate in sets(self.view, &nodes, &others, size, n, limited) {
                if self.best.is_some() && last.is_some_and(|distance| distance < candidate.distance)
                {
                    break;
                }
                last = Some(candidate.distance);
                self.look_into(candidate);
            }
            // More nodes can only mean fewer caches.
            if self.best.is_some() || !limited {
                return;
            }
        }
    }

    fn look_into(&mut self, candidate: Candidate) {
        self.nodes = candidate.nodes.union(self.demand.nodes.base);
        self.distance = candidate.distance;
        self.free = self.nodes.iter().map(|node| self.view.nodes[node]).sum();
        self.room = self.room_taken();
        self.list_caches();
        let n = self.demand.cpus;
        if !self.demand.align {
            self.fill_remainders(n);
            return;
        }
        let held = self.caches.iter().take_while(|cache| cache.is_held).count();
        let sum = |count: fn(&Load) -> usize| -> usize {
            self.caches[..held].iter().map(|cache| count(&cache.load)).sum()
        };
        let (free, whole) = (sum(|load| load.free), sum(|load| load.whole));
        if n <= free {
            self.choose(0, held, n, 0);
            return;
        }
        self.use_held(held, |load| load.free);
        self.choose(held, self.caches.len(), n - free, held);
        if whole < free {
            self.use_held(held, |load| load.whole);
            self.choose(held, self.caches.len(), n - whole, held);
        }
    }

    /// Where a request that fits no single node is refused, room for large ones in one node is what
    /// runs out first. Of equal nodes the first one is taken, so that the last ones stay empty.
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
        let Search { view, caches, .. } = self;
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
                        caches.push(Cache { uncore, is_held, load: *load });
                    }
                }
            }
        }
        if !view.held_caches.is_empty() {
            caches.sort_by_key(|cache| !cache.is_held);
        }
    }

    /// Takes what the caches that the container holds CPUs of can give.
    fn use_held(&mut self, held: usize, count: impl Fn(&Load) -> usize) {
        self.takes.clear();
        for cache in &self.caches[..held] {
            self.takes.push(Take { uncore: cache.uncore, cpus: count(&cache.load) });
        }
    }

    /// Offers the ways to take `n` CPUs of the fewest caches of a range, beside those that are taken
    /// from `held` ones.
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
        // Caches that the container holds CPUs of cost nothing.
        let cost = if to <= from || self.caches[from].is_held { 0 } else { count };
        if cost > self.demand.most_caches || self.is_hopeless(cost) {
            return;
        }
        match count {
            // The pod holds all CPUs that its affinity is chosen for.
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

    /// The first one as a whole, the rest from the second one.
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

    /// So many whose CPUs come closest to `n`; what is left over stays in the largest.
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

    /// The caches with the fewest CPUs first, whichever they are.
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

    /// Keeps a way if it is the cheapest so far: CPUs of caches, by index, beside those taken
    /// before.
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
            if let Some(Cache { load, .. }) = cache {
                cost.shared_cores += load.shared(taken.cpus);
                reused += load.reusable.min(taken.cpus);
            }
        }
        cost.not_reused = self.demand.cpus.saturating_sub(reused);
        // Large remainders and empty nodes are worth more to requests to come than small and used
        // ones.
        cost.potential = 20 * left_over + self.free;
        let again = |best: &Choice| best.cost == cost && self.takes_the_same(best, takes);
        if self.best.as_ref().is_some_and(again) {
            return;
        }
        if self.best.as_ref().is_some_and(|best| best.cost <= cost) {
            self.second = Some(self.second.map_or(cost, |second| second.min(cost)));
            return;
        }
        let mut all = self.takes.clone();
        all.extend(takes.iter().map(|&(at, cpus)| Take { uncore: self.caches[at].uncore, cpus }));
        let before = self.best.replace(Choice { cost, nodes: self.nodes, takes: all });
        self.second = before.map(|before| before.cost);
    }

    /// Whether a way is the one that was found before, with the caches in another order.
    fn takes_the_same(&self, best: &Choice, takes: &[(usize, usize)]) -> bool {
        let same = |&(at, cpus): &(usize, usize)| {
            best.takes.contains(&Take { uncore: self.caches[at].uncore, cpus })
        };
        best.nodes == self.nodes && takes.iter().all(same)
    }
}

impl Choice {
    /// Adds the chosen CPUs to `cpus`. Returns how many are missing: where cores are of several sizes
    /// not every number is made of whole ones.
    pub(super) fn take(&self, view: &View<'_>, cpus: &mut CpuSet) -> usize {
        self.takes.iter().map(|take| self.take_of(view, *take, cpus)).sum()
    }

    /// The smallest cells of the cache first, so that what is left over is in one.
    fn take_of(&self, view: &View<'_>, take: Take, cpus: &mut CpuSet) -> usize {
        let cells: &Cells = view.cells;
        let mut found: Vec<usize> = Vec::new();
        for node in self.nodes.iter() {
            found.extend(cells.of_node(node).filter(|&at| cells.all()[at].uncore == take.uncore));
        }
        found.sort_by_key(|&at| view.loads[at].free);
        let mut left = take.cpus;
        for at in found {
            let wanted = left.min(view.loads[at].free);
            left -= wanted - view.take(at, wanted, cpus);
        }
        left
    }
}
