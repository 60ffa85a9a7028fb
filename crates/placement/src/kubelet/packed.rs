//! The packed algorithm (KEP-3570 "static policy"; KEP-4800 for the uncore step): few domains, the
//! most used ones first. It takes
//!
//! 1. NUMA nodes and sockets that are entirely free, as long as they fit;
//! 2. with the uncore option, whole uncore caches, then CPUs of one cache that can hold the rest
//!    ([`super::uncore`]);
//! 3. whole cores;
//! 4. single CPUs, of partly used cores first.
//!
//! Each step uses domains in the order of [`super::order`].
//!
//! As in kubelet 1.37 (kubernetes/kubernetes#140498), a core or socket is free if all its own online
//! CPUs are, whatever the sizes of the machine's other cores and sockets.

use super::free::Free;
use super::order::Level;
use crate::strategy::UncoreOrder;
use cpuset::CpuSet;

/// The needed CPUs of `free`.
pub(super) fn packed(mut free: Free<'_>, uncore: Option<UncoreOrder>) -> CpuSet {
    if free.need == 0 {
        return free.taken;
    }
    free.take_whole_nodes_and_sockets();
    if let Some(order) = uncore {
        free.take_uncores(order);
    }
    free.take_whole_cores();
    free.take_rest();
    debug_assert_eq!(free.need, 0, "of {} are left", free.cpus);
    free.taken
}

impl Free<'_> {
    pub(super) fn take_whole_nodes_and_sockets(&mut self) {
        let (outer, inner) = self.levels();
        self.take_whole(outer);
        self.take_whole(inner);
    }

    fn take_whole(&mut self, level: Level) {
        let topology = self.topology;
        let sizes = match level {
            Level::Node => &topology.sizes().nodes,
            _ => &topology.sizes().sockets,
        };
        let whole = |at: usize, free: usize| free > 0 && free == sizes[at];
        // Most requests are smaller than a socket, so avoid sorting if no domain fits.
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
        // Few threads may be left to take, so avoid sorting if no core fits.
        let sizes = &self.topology.sizes().cores;
        if self.topology.cores_are_equal() && self.need < sizes[0] {
            return;
        }
        if !(0..self.count.cores.len()).any(|at| self.fits_core(at)) {
            return;
        }
        for at in self.cores() {
            if self.fits_core(at) {
                self.take(self.core(at));
            }
        }
    }

    fn fits_core(&self, at: usize) -> bool {
        self.count.cores[at] <= self.need && self.is_whole_core(at)
    }

    /// Whether all CPUs of the core are free.
    pub(super) fn is_whole_core(&self, at: usize) -> bool {
        self.count.cores[at] == self.topology.sizes().cores[at]
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
