//! What must always hold, on what the runtime believes.

use super::{Instance, Node};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::{Adjustment, ContainerId, Mechanism, Target};

impl Node {
    /// Where a container runs: the groups above one that shares CPUs can allow it less than it is
    /// told.
    pub(super) fn runs_on(&self, id: &ContainerId, pin: Adjustment) -> CpuSet {
        let by_groups = self.mechanism != Mechanism::Runtime && !pin.is_exclusive();
        let target = self.ledger.target(id).filter(|_| by_groups);
        target.map_or(pin.cpus(), |target| target.runs_on & pin.cpus())
    }

    /// The invariants, on what the runtime believes.
    pub(super) fn check(&self) {
        assert_eq!(self.ledger.check(), Ok(()));
        let kept: CpuSet = self
            .ledger
            .targets()
            .filter(Target::is_partition)
            .map(|placed| placed.runs_on)
            .collect();
        let mut taken = CpuSet::EMPTY;
        let alive: Vec<&Instance> =
            self.instances.values().filter(|instance| !instance.stopped).collect();
        for adjustment in
            alive.iter().filter_map(|instance| instance.adjustment).filter(Adjustment::is_exclusive)
        {
            assert!(
                adjustment.cpus().is_disjoint(&taken),
                "exclusive twice: {}",
                adjustment.cpus() & taken
            );
            assert!(adjustment.cpus().is_disjoint(&self.settings.placement.reserved));
            assert!(adjustment.cpus().is_subset(&self.topology.online()));
            taken |= adjustment.cpus();
        }
        if !self.ledger.bound().is_empty() {
            self.check_idle();
        }
        for instance in alive {
            let Some(adjustment) =
                instance.adjustment.filter(|adjustment| !adjustment.is_exclusive())
            else {
                continue;
            };
            // The kernel keeps it off those that it keeps.
            let overlap = self.runs_on(&instance.container.id, adjustment) & (taken - kept);
            // With everything exclusive, and the reserved ones offline, there is nothing that it
            // could be told.
            if self.ledger.bound().is_empty() {
                continue;
            }
            assert!(
                overlap.is_empty(),
                "shared {} runs on exclusive CPUs {overlap}",
                instance.container.id
            );
        }
    }
}
