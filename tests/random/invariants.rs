//! The invariants, checked on the CPUs that the runtime has set.

use super::{Instance, Node};
use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::ledger::{
    Adjustment, Claim, ContainerId, Ledger, Mechanism, Outcome, Reach, Stance, Target,
};
use std::collections::BTreeMap;

/// What an outcome says whether it has changed.
pub(super) struct Known {
    claims: Vec<Claim>,
    /// Empty beside an active kubelet.
    reach: BTreeMap<ContainerId, Reach>,
    exclusive: CpuSet,
    owes: bool,
}

impl Known {
    pub(super) fn of(ledger: &Ledger) -> Known {
        let claims: Vec<Claim> = ledger.claims().collect();
        // Others are those of the last process.
        let known = claims.iter().filter(|claim| ledger.knows(&claim.id));
        let exclusive = known.clone().map(|claim| claim.cpus).collect();
        let reach = known.filter_map(|claim| Some((claim.id.clone(), ledger.reach(&claim.id)?)));
        let reach = reach.collect();
        Known { claims, reach, exclusive, owes: ledger.owes() }
    }

    pub(super) fn changed_by(&self, outcome: &Outcome, ledger: &Ledger) {
        let now = Known::of(ledger);
        assert!(outcome.claims || now.claims == self.claims, "{outcome:?}");
        let same = |(id, reach)| now.reach.get(id).is_none_or(|now| now == reach);
        assert!(outcome.reach || self.reach.iter().all(same), "{outcome:?}");
        assert_eq!(outcome.freed, !self.exclusive.is_subset(&now.exclusive), "{outcome:?}");
        assert!(outcome.due || self.owes || !now.owes, "{outcome:?}");
    }
}

impl Node {
    /// Where a container runs: the cgroups above a shared one can allow fewer CPUs than it has set.
    pub(super) fn runs_on(&self, id: &ContainerId, pin: Adjustment) -> CpuSet {
        if self.mechanism == Mechanism::Runtime || pin.exclusive_cpus() == pin.cpus() {
            return pin.cpus();
        }
        self.ledger.target(id).map_or(pin.cpus(), |target| target.runs_on & pin.cpus())
    }

    /// What cgroups were set to is what the verifier accepts.
    fn check_written(&self) {
        let by_groups = self.mechanism == Mechanism::Groups;
        if !by_groups || self.ledger.stance() != Stance::Assign || self.ledger.owes() {
            return;
        }
        for target in self.ledger.targets().filter(|target| target.running) {
            let (Some(avoids), Some(group)) = (target.avoids, &target.cgroup) else { continue };
            let Some(set) = self.kernel.cpus(group) else { continue };
            let accepted = avoids.is_empty() || (!set.is_empty() && set.is_disjoint(&avoids));
            assert!(accepted, "{group} has {set}, and {avoids} are others' of its pod");
        }
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
            let exclusive = adjustment.exclusive_cpus();
            assert!(exclusive.is_disjoint(&taken), "exclusive twice: {}", exclusive & taken);
            assert!(exclusive.is_disjoint(&self.settings.placement.reserved));
            assert!(exclusive.is_subset(&self.topology.online()));
            taken |= exclusive;
        }
        if !self.ledger.bound().is_empty() {
            self.check_idle();
            self.check_written();
        }
        for instance in alive {
            let Some(adjustment) = instance.adjustment else { continue };
            // With all CPUs exclusive and the reserved ones offline there is no set to give it.
            if self.ledger.bound().is_empty() {
                continue;
            }
            // The kernel keeps it off partitions.
            let others = taken - partitioned - adjustment.exclusive_cpus();
            let overlap = self.runs_on(&instance.container.id, adjustment) & others;
            assert!(
                overlap.is_empty(),
                "{} runs on exclusive CPUs {overlap} of others",
                instance.container.id
            );
        }
    }
}
