//! Plans on small machines, computed by hand, and on random ones.

mod cases;
mod random;

use super::super::cores::whole_cores;
use super::super::memory;
use super::super::{
    DeviceNodes, EngineKind, Options, PlacementSettings, PodOptions, Reuse, TopologyManager,
    TopologyPolicy, place,
};
use super::*;
use cpuset::NodeSet;

const ANYWHERE: Limits = Limits { containers: 3, across_numa_nodes: true, weight_across: 3 };

/// The kubelet's engine with aligned uncore caches.
fn aligned() -> PlacementSettings {
    let options = Options { prefer_align_cpus_by_uncorecache: true, ..Options::default() };
    PlacementSettings { options, ..PlacementSettings::default() }
}

fn under(policy: TopologyPolicy) -> PlacementSettings {
    let topology_manager = TopologyManager { policy, ..TopologyManager::default() };
    PlacementSettings { topology_manager, ..aligned() }
}

fn request(settings: &PlacementSettings, pod_options: PodOptions, cpus: usize) -> Request {
    Request::new(cpus, CpuSet::EMPTY, pod_options, settings)
}

impl Ctx<'_> {
    fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        memory::memory_of(self.machine, cpus, NodeSet::EMPTY).unwrap_or_default()
    }

    /// Carries a plan out and checks all that a plan guarantees. `new` is the request of the new
    /// container and its placement without moves.
    fn check(&self, plan: &Plan, new: Option<(&Request, Option<&Placement>)>) {
        let Ctx { machine, residents, limits, .. } = *self;
        let mut free = self.free;
        let mut held: Vec<CpuSet> = residents.iter().map(|resident| resident.held).collect();
        for &Step { resident: at, to, staged } in &plan.steps {
            let Resident { held: before, ref request, movable } = residents[at];
            assert!(movable);
            let footprint = |cpus| request.footprint(machine, cpus);
            free |= footprint(&held[at]);
            assert!(footprint(&to).is_subset(&free), "{to} has another owner: {plan:?}");
            assert!(to.is_subset(&(machine.online() - request.settings.reserved)));
            assert_eq!(to.len(), before.len());
            let whole = |cpus: &CpuSet| whole_cores(machine, cpus) == *cpus;
            assert!(!request.settings.options.full_pcpus_only || !whole(&before) || whole(&to));
            // Never more, so that promises hold. It may be fewer if cores are of unequal sizes.
            assert!(footprint(&to).len() <= footprint(&before).len());
            if request.pod_options.isolates() {
                assert!(machine.cores().iter().all(|core| core.cpus.common(&to) <= 1));
            }
            assert!(
                limits.across_numa_nodes || self.nodes_of(&to).is_subset(self.nodes_of(&before))
            );
            assert!(!staged || plan.moves.iter().any(|planned| planned.resident == at));
            free -= footprint(&to);
            held[at] = to;
        }
        let mut cost = 0;
        for planned in &plan.moves {
            let before = residents[planned.resident].held;
            assert_eq!(held[planned.resident], planned.to);
            assert_ne!(before, planned.to);
            for cpu in (planned.to - before).iter() {
                let near =
                    self.nodes_of(&CpuSet::of(cpu).unwrap()).is_subset(self.nodes_of(&before));
                cost += if near { 1 } else { limits.weight_across };
            }
        }
        assert_eq!(plan.cost, cost);
        assert!((1..=limits.containers).contains(&plan.moves.len()));
        let moved = plan.moves.iter().map(|planned| planned.resident);
        assert_eq!(
            moved.clone().collect::<std::collections::BTreeSet<_>>().len(),
            plan.moves.len()
        );
        let sum = |cpus: &dyn Fn(usize) -> CpuSet| {
            moved.clone().map(|at| badness(machine, &residents[at].request, &cpus(at))).sum::<u32>()
        };
        let mut before = sum(&|at| residents[at].held);
        let mut after = sum(&|at| held[at]);
        if let Some((request, unmoved)) = new {
            let placement = plan.new_placement.unwrap();
            assert_eq!(plan.taken, request.footprint(machine, &placement.cpus));
            assert!(plan.taken.is_subset(&(free | request.reuse.cpus)));
            assert!(placement.cpus.is_subset(&(machine.online() - request.settings.reserved)));
            assert_eq!(placement.cpus.len(), request.cpus);
            assert!((free - plan.taken).len() >= request.promised);
            // The engine decides again when all moves are made.
            let again = place(machine, &Request { free, ..*request }).unwrap();
            assert_eq!(again.cpus, placement.cpus, "another answer after {plan:?}");
            before += unmoved.map_or(REFUSED, |p| badness(machine, request, &p.cpus));
            after += badness(machine, request, &placement.cpus);
        }
        assert_eq!(plan.gain, before - after, "{plan:?} of {residents:?}");
        assert!(plan.gain > 0);
    }
}
