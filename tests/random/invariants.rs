//! The invariants, checked on the CPUs that the runtime has set.

use super::{Instance, Node};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::{Adjustment, ContainerId, Mechanism, Target};

impl Node {
    /// Where a container runs: the cgroups above a shared one can allow fewer CPUs than it has set.
    pub(super) fn runs_on(&self, id: &ContainerId, pin: Adjustment) -> CpuSet {
        if self.mechanism == Mechanism::Runtime || pin.is_exclusive() {
            return pin.cpus();
        }
        self.ledger.target(id).map_or(pin.cpus(), |target| target.runs_on & pin.cpus())
    }

    pub(super) fn check(&self) {
        assert_eq!(self.ledger.check(), Ok(()));
        let targets = self.ledger.targets().filter(Target::is_partition);
        let partitioned: CpuSet = targets.map(|target| target.runs_on).collect();
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
            // With all CPUs exclusive and the reserved ones offline there is no set to give it.
            if self.ledger.bound().is_empty() {
                continue;
            }
            // The kernel keeps it off partitions.
            let overlap = self.runs_on(&instance.container.id, adjustment) & (taken - partitioned);
            assert!(
                overlap.is_empty(),
                "shared {} runs on exclusive CPUs {overlap}",
                instance.container.id
            );
        }
    }
}
