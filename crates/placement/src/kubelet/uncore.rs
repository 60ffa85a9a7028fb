//! The uncore step of the packed algorithm (KEP-4800, policy option
//! `prefer-align-cpus-by-uncorecache`): whole caches first, then one cache that can hold the rest.
//! If no cache can, the later steps decide.
//!
//! The kubelet's code and the KEP's text differ in the order of caches. Both orders exist here
//! ([`UncoreOrder`]).

use super::free::Free;
use super::order::Level;
use crate::cores::{CoreSizes, pick};
use crate::strategy::UncoreOrder;
use cpuset::CpuSet;

impl Free<'_> {
    pub(super) fn take_uncores(&mut self, order: UncoreOrder) {
        if self.need == 0 {
            return;
        }
        match order {
            UncoreOrder::FewestFree => self.take_uncores_fewest_free(),
            UncoreOrder::Numerical => self.take_uncores_numerical(),
        }
    }

    /// As in the kubelet: all whole caches that fit, then the first cache whose low cores fit
    /// exactly.
    ///
    /// Where cores differ, the kubelet counts low cores of the machine's average size, which fit by
    /// chance. Here it is the first cache whose whole cores add up, or else the first one with room.
    ///
    /// The order of caches is that before the step: by rank of the NUMA node, free CPUs, and
    /// number.
    fn take_uncores_fewest_free(&mut self) {
        let order = self.order_within(Level::Uncore, &self.ranks_of(Level::Node));
        order.iter().for_each(|&at| self.take_whole_uncore(at));
        if !self.topology.cores_are_equal() {
            order.iter().for_each(|&at| self.take_picked_in(at));
            order.iter().for_each(|&at| self.take_rest_in(at));
            return;
        }
        for at in order {
            if self.need == 0 {
                return;
            }
            if let Some(cpus) = self.low_cores(at) {
                self.take(cpus);
            }
        }
    }

    /// As in KEP-4800: caches by number. A cache that is entirely free and fits is taken whole; the
    /// first one that can hold the rest ends the loop. Skipped caches are tried again after the
    /// loop, when less is left.
    fn take_uncores_numerical(&mut self) {
        for at in 0..self.count.uncores.len() {
            self.take_whole_uncore(at);
            self.take_rest_in(at);
        }
        for at in 0..self.count.uncores.len() {
            self.take_rest_in(at);
        }
    }

    fn take_whole_uncore(&mut self, at: usize) {
        let size = self.topology.sizes().uncores[at];
        if size <= self.need && self.count.uncores[at] == size {
            self.take(self.uncore(at));
        }
    }

    fn uncore(&self, at: usize) -> CpuSet {
        self.topology.uncores()[at].cpus
    }

    /// The cores with free CPUs in a cache, as a set of positions, which fit because a machine has
    /// no more cores than CPUs.
    fn cores_in(&self, uncore: usize) -> CpuSet {
        let cpus = self.uncore(uncore) & self.cpus;
        let mut cores = CpuSet::EMPTY;
        for place in cpus.iter().filter_map(|cpu| self.topology.place(cpu)) {
            let _ = cores.insert(place.core());
        }
        cores
    }

    /// The free CPUs of the lowest cores of a cache, as many cores as the rest would fill if they
    /// were whole. `None` unless these are exactly the needed number of CPUs. The machine's cores
    /// must be equal.
    ///
    /// If the rest is odd and cores have several threads, the highest CPU may be left out.
    /// Half-used low cores make this fail although the cache has room
    /// (kubernetes/kubernetes#137315). That is intended, because the kubelet answers so.
    fn low_cores(&self, uncore: usize) -> Option<CpuSet> {
        let per_core = self.topology.sizes().cores[0];
        let cores = self.cores_in(uncore).iter().take(self.need.div_ceil(per_core));
        let mut cpus = cores.map(|core| self.core(core)).collect::<CpuSet>() & self.cpus;
        if self.need % 2 == 1 && per_core > 1 && cpus.len() == self.need + 1 {
            cpus = cpus.lowest(self.need);
        }
        let splits = || CoreSizes::of_whole(self.topology, &cpus).is_none();
        if cpus.len() != self.need {
            None
        } else if self.cores.is_some() && splits() {
            self.pick_cores(uncore)
        } else {
            Some(cpus)
        }
    }

    fn take_picked_in(&mut self, uncore: usize) {
        if self.need > 0
            && let Some(cores) = self.pick_cores(uncore)
        {
            self.take(cores);
        }
    }

    /// Whole free cores of a cache that add up to exactly the needed number of CPUs: those with the
    /// fewest CPUs first, as when whole cores are taken.
    fn pick_cores(&self, uncore: usize) -> Option<CpuSet> {
        let cores = self.cores_in(uncore);
        let cores = cores.iter().filter(|&core| self.is_whole_core(core));
        let mut cores: Vec<CpuSet> = cores.map(|core| self.core(core)).collect();
        cores.sort_by_key(CpuSet::len);
        pick(&cores, self.need)
    }

    /// Takes the rest from a cache if it has that many free CPUs: whole cores first, then CPUs of the
    /// core with the fewest that suffice or, without one, of the cores with the fewest.
    fn take_rest_in(&mut self, uncore: usize) {
        if self.need == 0 || self.count.uncores[uncore] < self.need {
            return;
        }
        if self.cores.is_some() {
            self.take_picked_in(uncore);
            return;
        }
        let mut cores: Vec<usize> = self.cores_in(uncore).iter().collect();
        for &core in &cores {
            if self.is_whole_core(core) {
                self.take(self.core(core));
            }
        }
        cores.sort_by_key(|&core| {
            let free = self.count.cores[core];
            (free < self.need, free)
        });
        for core in cores {
            let cpus = self.core(core) & self.uncore(uncore) & self.cpus;
            self.take_each(&cpus);
        }
    }
}
