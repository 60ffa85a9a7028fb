//! [`search()`]: finds the cheapest NUMA nodes and caches in them to take CPUs of. Which cores of
//! these is a rule: [`View::take`] follows it, and [`Load::core_cost`] says what it means.

use super::cost::Cost;
use super::sets::{ALL_SETS, AddedNodes, NodeBounds, combinations, others, sets};
use super::sums::Sums;
use super::view::{CoreCost, Load, View};
use crate::combinations::next_combination;
use crate::cores::{CoreSizes, Domains};
use cpuset::{CpuSet, NodeSet};
use std::cmp::Reverse;
use topology::Sockets;

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
    /// The number of CPUs to take.
    cpus: usize,
    /// The nodes by position, including those of the base.
    pub(super) nodes: NodeSet,
    sockets: Sockets,
    /// The caches by position, in the order in which their CPUs are taken. What is left over is in
    /// the last ones.
    caches: Vec<usize>,
}

/// The part of a cache that is in the current nodes and sockets.
#[derive(Debug, Clone, Copy)]
struct CacheLoad {
    uncore: usize,
    is_held: bool,
    load: Load,
}

/// How many parts a node is divided into for [`Cost::room`].
const EIGHTHS: usize = 8;

struct CostSearch<'v, 'm> {
    view: &'v View<'m>,
    demand: SearchDemand,
    nodes: NodeSet,
    sockets: Sockets,
    /// What the current nodes and sockets cost, whatever is taken of them.
    cost: Cost,
    /// The number of usable CPUs of the current nodes.
    free: usize,
    /// The caches of the current nodes and sockets with usable CPUs. Those that the container uses
    /// already come first: all of these are in every choice.
    caches: Vec<CacheLoad>,
    /// How many caches the container uses already.
    held: usize,
    /// The most CPUs of a cache that the container does not use already.
    most: usize,
    /// The current caches by index.
    chosen: Vec<usize>,
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
        sockets: Sockets::MAX,
        cost: Cost::default(),
        free: 0,
        caches: Vec::new(),
        held: 0,
        most: 0,
        chosen: Vec::new(),
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
        let cells = self.view.cells;
        // Where cores must add up, a set with enough CPUs may still not hold the request.
        let limited = most_caches < self.view.loads.len() || !self.view.sizes.is_empty();
        // How many sockets of such nodes are needed is known only after a search in them.
        let every = limited || cells.nodes_span_sockets();
        let most = (nodes.most - nodes.base.len()).min(others.len());
        // Unless caches span nodes, each added node has another cache.
        let most = if cells.caches_span_cells() { most } else { most.min(most_caches) };
        for size in fewest..=most {
            let mut last = None;
            // Sets with the fewest sockets and the nearest ones come first, and these come before
            // caches in the cost.
            for candidate in sets(self.view, &nodes, &others, size, n, every) {
                let is_done = last.is_some_and(|spread| spread < candidate.spread());
                if is_done && self.best.is_some() && !cells.nodes_span_sockets() {
                    break;
                }
                last = Some(candidate.spread());
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
        self.free = self.nodes.iter().map(|node| self.view.nodes[node]).sum();
        self.cost = Cost {
            nodes: self.nodes.len(),
            sockets: candidate.sockets,
            distance: candidate.distance,
            room: self.room_taken(),
            ..Cost::default()
        };
        if self.view.cells.nodes_span_sockets() {
            self.search_sockets();
        } else {
            self.search_caches();
        }
    }

    /// Searches the fewest sockets of the current nodes that hold the request.
    fn search_sockets(&mut self) {
        let held = self.view.held_sockets;
        let all = self.nodes.iter().map(|node| self.view.cells.sockets_of(node));
        let others = all.fold(0, |all, sockets| all | sockets) & !held;
        let others: Vec<Sockets> =
            (0..Sockets::BITS).map(|at| 1 << at).filter(|socket| others & socket != 0).collect();
        for size in 0..=others.len() {
            if size < others.len() && combinations(others.len(), size) > ALL_SETS {
                continue;
            }
            let mut is_found = false;
            let mut indices: Vec<usize> = (0..size).collect();
            loop {
                self.sockets = indices.iter().fold(held, |sockets, &at| sockets | others[at]);
                self.cost.sockets = self.sockets.count_ones();
                is_found |= self.search_caches();
                if !next_combination(&mut indices, others.len()) {
                    break;
                }
            }
            if is_found {
                return;
            }
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

    /// Offers the fewest caches of the current nodes and sockets that hold the request, in addition
    /// to those that the container uses already. Whether any do, or another choice is better than
    /// all of these.
    fn search_caches(&mut self) -> bool {
        self.list_caches();
        let mut pool = Load::default();
        self.caches[..self.held].iter().for_each(|cache| pool.add(&cache.load));
        self.chosen.clear();
        self.chosen.extend(0..self.held);
        if !self.demand.align {
            self.chosen.extend(self.held..self.caches.len());
            self.caches[self.held..].iter().for_each(|cache| pool.add(&cache.load));
            self.chosen.sort_by_key(|&at| self.caches[at].load.free);
            return self.offer(&pool);
        }
        let others = self.caches[self.held..].iter();
        self.most = others.map(|cache| cache.load.free).max().unwrap_or(0);
        let (fewest, adding_up) = if self.view.sizes.is_empty() {
            (self.enough(pool.free), Vec::new())
        } else {
            let adding_up = self.that_add_up();
            (adding_up.as_ref().map(Vec::len), adding_up.unwrap_or_default())
        };
        let Some(fewest) = fewest else { return false };
        if fewest > self.demand.most_caches {
            return false;
        }
        self.cost.caches = fewest;
        if self.best.as_ref().is_some_and(|best| best.cost < self.cost) {
            return true;
        }
        let are_few = combinations(self.caches.len() - self.held, fewest) <= ALL_SETS;
        if are_few && (fewest <= 2 || !self.is_regular()) {
            self.extend(pool, self.held, fewest)
        } else if self.view.sizes.is_empty() {
            self.closest(&pool, fewest)
        } else {
            self.offer_also(pool, &adding_up)
        }
    }

    fn list_caches(&mut self) {
        let CostSearch { view, caches, sockets, .. } = self;
        caches.clear();
        for node in self.nodes.iter() {
            for at in view.cells.of_node(node) {
                let load = &view.loads[at];
                let cell = &view.cells.all()[at];
                if load.free == 0 || cell.socket & !*sockets != 0 {
                    continue;
                }
                let uncore = cell.uncore;
                let same = if view.cells.caches_span_cells() {
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
        self.held = 0;
        if !view.held_caches.is_empty() {
            // The smallest remainders of the container's own caches are filled first.
            caches.sort_by_key(|cache| (!cache.is_held, cache.is_held.then_some(cache.load.free)));
            self.held = caches.iter().filter(|cache| cache.is_held).count();
        }
    }

    /// The fewest caches that, in addition to `free` CPUs, have enough.
    fn enough(&self, mut free: usize) -> Option<usize> {
        let n = self.demand.cpus;
        if free >= n {
            return Some(0);
        }
        if free + self.most >= n {
            return Some(1);
        }
        let others = self.caches[self.held..].iter();
        let mut others: Vec<usize> = others.map(|cache| cache.load.free).collect();
        others.sort_unstable();
        let mut fewest = 0;
        while free < n {
            free += others.pop()?;
            fewest += 1;
        }
        Some(fewest)
    }

    fn is_regular(&self) -> bool {
        let mut all = Load::default();
        self.caches.iter().for_each(|cache| all.add(&cache.load));
        all.is_regular()
    }

    /// The fewest caches whose cores add up, in addition to those that the container uses already.
    fn that_add_up(&self) -> Option<Vec<usize>> {
        let sizes: Vec<CoreSizes> = (0..self.caches.len()).map(|at| self.core_sizes(at)).collect();
        let held: Vec<usize> = (0..self.held).collect();
        let mut others: Vec<usize> = (self.held..self.caches.len()).collect();
        others.sort_by_key(|&at| self.caches[at].load.free);
        Domains { sizes: &sizes, n: self.demand.cpus }.first(&held, &others)
    }

    /// The cores of a cache, given by index, in the current nodes and sockets.
    fn core_sizes(&self, at: usize) -> CoreSizes {
        let mut sizes = CoreSizes::default();
        let cells = cells_of(self.view, self.nodes, self.sockets, self.caches[at].uncore);
        cells.for_each(|cell| sizes.extend(&self.view.sizes[cell]));
        sizes
    }

    /// Offers the current caches with each set of `count` others from index `from` on. `pool` is
    /// what the current ones have. Whether one of these sets holds the request.
    fn extend(&mut self, pool: Load, from: usize, count: usize) -> bool {
        if count == 0 {
            return self.offer(&pool);
        }
        let mut is_found = false;
        for at in from..=self.caches.len() - count {
            let load = &self.caches[at].load;
            if pool.free + load.free + (count - 1) * self.most < self.demand.cpus {
                continue;
            }
            let mut pool = pool;
            pool.add(load);
            self.chosen.push(at);
            is_found |= self.extend(pool, at + 1, count - 1);
            self.chosen.pop();
        }
        is_found
    }

    /// Offers the `count` caches whose CPUs come closest to the request, and those whose whole cores
    /// do.
    fn closest(&mut self, pool: &Load, count: usize) -> bool {
        let mut is_found = false;
        for cpus in [|load: &Load| load.whole, |load: &Load| load.free] {
            let others = self.caches[self.held..].iter();
            let numbers: Vec<usize> = others.map(|cache| cpus(&cache.load)).collect();
            let needed = self.demand.cpus.saturating_sub(cpus(pool));
            if let Some((_, mut chosen)) = self.sums.least(&numbers, count, needed) {
                // What is left over stays in the largest.
                chosen.sort_unstable_by_key(|&at| (numbers[at], Reverse(at)));
                let chosen: Vec<usize> = chosen.into_iter().map(|at| self.held + at).collect();
                is_found |= self.offer_also(*pool, &chosen);
            }
        }
        is_found
    }

    /// Offers the current caches with these others. `pool` is what the current ones have.
    fn offer_also(&mut self, mut pool: Load, others: &[usize]) -> bool {
        let current = self.chosen.len();
        self.chosen.extend(others);
        others.iter().for_each(|&at| pool.add(&self.caches[at].load));
        let is_found = self.offer(&pool);
        self.chosen.truncate(current);
        is_found
    }

    /// Keeps the current caches, which have `pool`, if they are the cheapest so far. Whether they
    /// hold the request.
    fn offer(&mut self, pool: &Load) -> bool {
        let n = self.demand.cpus;
        if pool.free < n || !self.adds_up() {
            return false;
        }
        let core_cost =
            if self.view.sizes.is_empty() { pool.core_cost(n) } else { CoreCost::default() };
        let cost = Cost {
            shared_cores: core_cost.shared,
            not_reused: n - pool.reusable.min(n),
            broken_cores: core_cost.broken,
            potential: 20 * (pool.free - n) + self.free,
            ..self.cost
        };
        match &self.best {
            Some(best) if best.cost <= cost => {
                let is_second = self.second.is_none_or(|second| cost < second);
                if is_second && !(best.cost == cost && self.is_current(best)) {
                    self.second = Some(cost);
                }
            }
            _ => {
                let caches = self.chosen.iter().map(|&at| self.caches[at].uncore).collect();
                let CostSearch { nodes, sockets, .. } = *self;
                let better = Choice { cost, cpus: n, nodes, sockets, caches };
                self.second = self.best.replace(better).map(|previous| previous.cost);
            }
        }
        true
    }

    /// Whether the cores of the current caches add up to the request, if only whole ones are used.
    fn adds_up(&self) -> bool {
        if self.view.sizes.is_empty() {
            return true;
        }
        let mut all = CoreSizes::default();
        self.chosen.iter().for_each(|&at| all.extend(&self.core_sizes(at)));
        all.add_up_to(self.demand.cpus)
    }

    fn is_current(&self, choice: &Choice) -> bool {
        let chosen = self.chosen.iter().map(|&at| self.caches[at].uncore);
        choice.nodes == self.nodes && chosen.eq(choice.caches.iter().copied())
    }
}

/// The cells of a cache in some nodes and sockets.
fn cells_of<'v>(
    view: &'v View<'_>,
    nodes: NodeSet,
    sockets: Sockets,
    uncore: usize,
) -> impl Iterator<Item = usize> + 'v {
    let cells = view.cells;
    let all = nodes.iter().flat_map(|node| cells.of_node(node));
    all.filter(move |&at| {
        let cell = &cells.all()[at];
        cell.uncore == uncore && cell.socket & !sockets == 0
    })
}

impl Choice {
    /// Adds the chosen CPUs to `cpus`.
    pub(super) fn take(&self, view: &View<'_>, cpus: &mut CpuSet) {
        let mut cells = Vec::new();
        for &uncore in &self.caches {
            let first = cells.len();
            cells.extend(cells_of(view, self.nodes, self.sockets, uncore));
            // The smallest cells first, so that what is left over is in one cell.
            cells[first..].sort_by_key(|&cell| view.loads[cell].free);
        }
        let is_taken = view.take(&cells, self.cpus, cpus);
        debug_assert!(is_taken, "the chosen caches hold the request");
    }
}
