//! [`Profile`]: a resident, and what follows from its placement.

use super::badness::{Need, Needs};
use super::occupancy::Occupancy;
use super::plan::{Limits, Resident};
use cpuset::CpuSet;
use topology::Topology;

pub(super) struct Profile<'a> {
    pub(super) resident: &'a Resident,
    pub(super) need: Need,
    /// Its CPUs, and those that stay idle around them.
    pub(super) footprint: CpuSet,
    /// The occupancy of the footprint.
    pub(super) occupancy: Occupancy,
    pub(super) badness: u32,
    pub(super) movable: bool,
}

impl<'a> Profile<'a> {
    pub(super) fn all(machine: &'a Topology, residents: &'a [Resident]) -> Vec<Profile<'a>> {
        let mut needs = Needs::of(machine);
        let profiles = residents.iter().map(|resident| {
            let need = needs.need(&resident.request);
            let footprint = resident.request.footprint(machine, &resident.held);
            let (badness, occupancy) = need.weigh(machine, &resident.held, &footprint);
            // A move never changes the number of CPUs, which an outstanding resize would require.
            let movable = resident.movable && resident.held.len() == resident.request.cpus;
            Profile { resident, need, footprint, occupancy, badness, movable }
        });
        profiles.collect()
    }

    pub(super) fn cost(&self, machine: &Topology, to: &CpuSet, limits: &Limits) -> usize {
        let entered = Occupancy::of(machine, &(*to - self.resident.held));
        let is_used = |node| self.occupancy.nodes().any(|held| held == node);
        let weighted = entered
            .by_node()
            .map(|(node, cpus)| if is_used(node) { cpus } else { cpus * limits.weight_across });
        weighted.sum()
    }
}
