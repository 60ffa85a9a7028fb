//! [`Free`]: the free CPUs during one allocation.

use cpuset::CpuSet;
use topology::{Place, Tally, Topology};

/// The CPUs still free, counted by domain, and what has been taken so far.
pub(super) struct Free<'t> {
    pub(super) topology: &'t Topology,
    /// Free CPUs: those available, less those taken.
    pub(super) cpus: CpuSet,
    pub(super) count: Tally,
    pub(super) taken: CpuSet,
    pub(super) need: usize,
}

impl<'t> Free<'t> {
    /// All of `available` is free and `need` CPUs are wanted.
    ///
    /// `available` has only online CPUs, and at least `need` of them.
    pub(super) fn new(topology: &'t Topology, available: CpuSet, need: usize) -> Free<'t> {
        let count = topology.tally(&available);
        Free { topology, cpus: available, count, taken: CpuSet::EMPTY, need }
    }

    /// Takes those CPUs of `cpus` that are free, if no more than wanted; otherwise none.
    pub(super) fn take(&mut self, cpus: CpuSet) {
        let cpus = cpus & self.cpus;
        let size = cpus.len();
        if size > self.need {
            return;
        }
        self.cpus -= cpus;
        self.taken |= cpus;
        self.need -= size;
        for place in cpus.iter().filter_map(|cpu| self.topology.place(cpu)) {
            self.count.remove(place);
        }
    }

    /// Takes free CPUs in this order until no more are wanted.
    pub(super) fn take_each(&mut self, cpus: impl IntoIterator<Item = usize>) {
        for cpu in cpus {
            if self.need == 0 {
                return;
            }
            // A number from a CPU set is within the limit of one.
            self.take(CpuSet::of(cpu).unwrap_or_default());
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (usize, Place)> {
        let topology = self.topology;
        self.cpus.iter().filter_map(move |cpu| Some((cpu, topology.place(cpu)?)))
    }
}
