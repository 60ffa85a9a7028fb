//! [`Free`]: the free CPUs during one allocation.

use crate::cores::CoreSizes;
use cpuset::CpuSet;
use topology::{Place, Tally, Topology};

/// The CPUs that are still free, counted by domain, and the CPUs taken so far.
pub(super) struct Free<'t> {
    pub(super) topology: &'t Topology,
    pub(super) cpus: CpuSet,
    pub(super) count: Tally,
    pub(super) taken: CpuSet,
    /// How many more CPUs must be taken.
    pub(super) need: usize,
    /// The free cores, if only whole ones are taken and they have several sizes.
    pub(super) cores: Option<CoreSizes>,
}

impl<'t> Free<'t> {
    /// `available` must have only online CPUs, and at least `need` of them.
    pub(super) fn new(topology: &'t Topology, available: CpuSet, need: usize) -> Free<'t> {
        let count = topology.tally(&available);
        Free { topology, cpus: available, count, taken: CpuSet::EMPTY, need, cores: None }
    }

    /// Takes the free CPUs of `cpus` if no more than needed, and if cores can add up to the rest;
    /// otherwise none.
    pub(super) fn take(&mut self, cpus: CpuSet) {
        let cpus = cpus & self.cpus;
        let size = cpus.len();
        if size > self.need {
            return;
        }
        if let Some(cores) = &mut self.cores {
            let rest = cores.without(&CoreSizes::of(self.topology, &cpus));
            if !rest.add_up_to(self.need - size) {
                return;
            }
            *cores = rest;
        }
        self.cpus -= cpus;
        self.taken |= cpus;
        self.need -= size;
        for place in cpus.iter().filter_map(|cpu| self.topology.place(cpu)) {
            self.count.remove(place);
        }
    }

    /// Takes free CPUs in this order until no more are needed.
    pub(super) fn take_each(&mut self, cpus: impl IntoIterator<Item = usize>) {
        for cpu in cpus {
            if self.need == 0 {
                return;
            }
            // CPUs of the machine are within the limit of a set.
            self.take(CpuSet::of(cpu).unwrap_or_default());
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (usize, Place)> {
        let topology = self.topology;
        self.cpus.iter().filter_map(move |cpu| Some((cpu, topology.place(cpu)?)))
    }
}
