//! The packed algorithm (KEP-3570 "static policy"; KEP-4800 for the uncore step): few domains, full
//! ones first.
//!
//! 1. Whole NUMA nodes and sockets that are entirely free, as far as they fit.
//! 2. With the uncore option: whole uncore caches, then one cache that can hold the rest
//!    ([`super::uncore`]).
//! 3. Whole cores.
//! 4. Single CPUs, of partly used cores first.
//!
//! Each step goes through its domains in the order of [`super::order`].
//!
//! The kubelet calls a core or socket free when it has as many free CPUs as the machine's average,
//! and then takes all its CPUs, free or not. Here it must also be as large as the average, so what
//! is taken is free. Where the two differ, the kubelet's answer has CPUs that belong to another
//! container.

use super::free::Free;
use super::order::Level;
use crate::strategy::UncoreOrder;
use cpuset::CpuSet;
use topology::Topology;

/// Takes `n` CPUs of `available`, which has only online ones and more than `n`.
pub(super) fn packed(
    topology: &Topology,
    available: CpuSet,
    n: usize,
    uncore: Option<UncoreOrder>,
) -> CpuSet {
    let mut free = Free::new(topology, available, n);
    free.take_whole_nodes_and_sockets();
    if let Some(order) = uncore {
        free.take_uncores(order);
    }
    free.take_whole_cores();
    free.take_rest();
    free.taken
}

/// The same of any number of CPUs; `None` if there are fewer than `n`.
pub(super) fn pack(topology: &Topology, available: CpuSet, n: usize) -> Option<CpuSet> {
    match available.len().checked_sub(n)? {
        0 => Some(available),
        _ if n == 0 => Some(CpuSet::EMPTY),
        _ => Some(packed(topology, available, n, None)),
    }
}

impl Free<'_> {
    pub(super) fn take_whole_nodes_and_sockets(&mut self) {
        let (outer, inner) = self.levels();
        self.take_whole(outer);
        self.take_whole(inner);
    }

    fn take_whole(&mut self, level: Level) {
        let topology = self.topology;
        let average = topology.cpus_per_socket();
        let sizes = match level {
            Level::Node => &topology.sizes().nodes,
            _ => &topology.sizes().sockets,
        };
        let whole = |at: usize, free: usize| {
            free > 0 && free == sizes[at] && (level == Level::Node || free == average)
        };
        // Most requests are smaller than a socket: look before sorting.
        let fits = |(at, &free): (usize, &usize)| free <= self.need && whole(at, free);
        if !level.free(self).iter().enumerate().any(fits) {
            return;
        }
        let (outer, _) = self.levels();
        let order = if level == outer {
            self.order(level)
        } else {
            self.order_within(level, &self.ranks_of(outer))
        };
        for at in order {
            let free = level.free(self)[at];
            if whole(at, free) && free <= self.need {
                self.take(match level {
                    Level::Node => topology.nodes()[at].cpus,
                    _ => topology.sockets()[at].cpus,
                });
            }
        }
    }

    fn take_whole_cores(&mut self) {
        let size = self.topology.cpus_per_core();
        if self.need < size {
            return;
        }
        for at in self.cores() {
            if self.need < size {
                return;
            }
            if self.is_whole_core(at) {
                self.take(self.core(at));
            }
        }
    }

    /// Whether all CPUs of the core are free, and it has as many as the machine's cores have on
    /// average.
    pub(super) fn is_whole_core(&self, at: usize) -> bool {
        let size = self.topology.sizes().cores[at];
        self.count.cores[at] == size && size == self.topology.cpus_per_core()
    }

    pub(super) fn core(&self, at: usize) -> CpuSet {
        self.topology.cores()[at].cpus
    }

    fn take_rest(&mut self) {
        if self.need == 0 {
            return;
        }
        for at in self.cores() {
            let cpus = self.core(at) & self.cpus;
            self.take_each(&cpus);
            if self.need == 0 {
                return;
            }
        }
    }
}
