//! [`Free`]: the free CPUs during one allocation.

use crate::cores::{CoreSizes, only_whole_cores};
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
    /// The cores that are entirely free, if only such cores are taken.
    pub(super) cores: Option<CoreSizes>,
}

/// What an allocation starts from: [`cpus_of`] or [`cores_of`].
pub(super) type Start = for<'t> fn(&'t Topology, CpuSet, usize) -> Option<Free<'t>>;

/// Any CPUs of `available`, all of which must be online; `None` if there are too few. All are taken
/// at once, and none counted, if there are no more.
pub(super) fn cpus_of(topology: &Topology, available: CpuSet, need: usize) -> Option<Free<'_>> {
    match available.len() {
        free if free < need => None,
        free if free == need => {
            let count = Tally::default();
            let taken = available;
            Some(Free { topology, cpus: CpuSet::EMPTY, count, taken, need: 0, cores: None })
        }
        _ => {
            let count = topology.tally(&available);
            Some(Free { topology, cpus: available, count, taken: CpuSet::EMPTY, need, cores: None })
        }
    }
}

/// Whole cores of `available`, whose other CPUs count only where domains are compared, as in the
/// kubelet; `None` if cores do not add up.
pub(super) fn cores_of(topology: &Topology, available: CpuSet, need: usize) -> Option<Free<'_>> {
    let cores = CoreSizes::of(topology, &only_whole_cores(topology, &available));
    if !cores.add_up_to(need) {
        return None;
    }
    let free = cpus_of(topology, available, need)?;
    let cores = if free.need > 0 { Some(cores) } else { None };
    Some(Free { cores, ..free })
}

impl Free<'_> {
    /// Takes the free CPUs of `cpus` if no more than needed; otherwise none. Where only whole cores
    /// are taken, these must be such cores, and the others must add up to the rest.
    pub(super) fn take(&mut self, cpus: CpuSet) {
        let cpus = cpus & self.cpus;
        let size = cpus.len();
        if size > self.need {
            return;
        }
        if let Some(cores) = &mut self.cores {
            let Some(taken) = CoreSizes::of_whole(self.topology, &cpus) else { return };
            let rest = cores.without(&taken);
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
