//! [`place()`]: the CPUs of a container that starts.

use super::affinity::{choose, is_strict, of_pod, positions};
use super::capacity::{by_cache, cores, fewest_caches};
use super::cost::Cost;
use super::search::{Demand, search};
use super::sets::Nodes;
use super::view::{Cores, View};
use crate::caches;
use crate::engine::Placement;
use crate::hint::Hint;
use crate::rejection::{NotEnough, Rejection};
use crate::request::{Request, Reuse};
use crate::wishes::Uncore;
use cpuset::CpuSet;
use topology::Topology;

/// One way to meet a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// CPUs to choose from, beside those held.
    usable: CpuSet,
    /// CPUs that the answer includes in any case.
    held: CpuSet,
    /// CPUs that are better than others, as the pod holds them anyway.
    reusable: CpuSet,
}

/// The first of all attempts that works, or the rejection of the last one.
pub(super) fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
    let mut result = Err(Rejection::topology_affinity());
    for attempt in attempts(machine, request).into_iter().flatten() {
        result = attempt.place(machine, request).map(|(placement, ..)| placement);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The ways to meet a request, in order. CPUs that the pod has to use again come first, as otherwise
/// they would be idle until the pod ends.
pub(super) fn attempts(machine: &Topology, request: &Request) -> [Option<Attempt>; 2] {
    let legal = machine.online() - request.settings.reserved;
    let reusable = request.reuse.cpus() & legal;
    let usable = (request.free & legal) | reusable;
    let all = Attempt { usable, held: CpuSet::EMPTY, reusable };
    let Reuse::First(_) = request.reuse else { return [Some(all), None] };
    if request.cpus <= reusable.len() {
        return [Some(Attempt { usable: reusable, ..all }), Some(all)];
    }
    // Wishes and devices decide which CPUs go with each other.
    let is_particular = !request.wishes.are_of_node() || !request.devices.is_empty();
    let all = Some(all);
    if is_particular {
        [all, None]
    } else {
        [all.map(|all| Attempt { held: reusable, ..all }), all]
    }
}

impl Attempt {
    pub(super) fn view<'m>(&self, machine: &'m Topology, request: &Request) -> View<'m> {
        let usable = request.wishes.in_its_caches(machine, &self.usable, &self.held);
        View::new(machine, &usable, &self.held, &self.reusable, cores(request))
    }

    /// The number of CPUs beside those held.
    pub(super) fn more(&self, request: &Request) -> usize {
        request.cpus - self.held.len()
    }

    /// The placement, what it costs, and the best cost of the others that were looked at.
    pub(super) fn place(
        &self,
        machine: &Topology,
        request: &Request,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let view = self.view(machine, request);
        if request.wishes.takes_caches() {
            return self.in_whole_caches(machine, request, &view);
        }
        has_enough(machine, request, &view, self.held.len())?;
        let required = request.wishes.uncore == Some(Uncore::Require);
        let fewest = if required { fewest_caches(machine, request) } else { usize::MAX };
        let demand = Demand {
            cpus: self.more(request),
            nodes: Nodes::all(&view),
            most_caches: fewest.saturating_sub(view.held_caches.len()),
            align: request.wishes.uncore != Some(Uncore::Ignore),
        };
        match self.choose(machine, request, &view, demand) {
            Ok(placement) => Ok(placement),
            Err(refused) if required => {
                let unlimited = Demand { most_caches: usize::MAX, ..demand };
                self.choose(machine, request, &view, unlimited).map_err(|_| refused)?;
                let mut caches = by_cache(machine, &view);
                caches.sort_unstable_by(|one, other| other.cmp(one));
                let room = caches.iter().take(fewest).sum();
                Err(Rejection::uncore_alignment(request.cpus, fewest, room))
            }
            Err(_) if !is_strict(request) => {
                // Only the nodes past the limit of affinities have room.
                let hint = Hint { nodes: None, preferred: false };
                self.anywhere(request, &view, hint)
            }
            Err(refused) => Err(refused),
        }
    }

    /// In the fewest uncore caches that are free as a whole, or in more where the policy admits none
    /// of so few.
    fn in_whole_caches(
        &self,
        machine: &Topology,
        request: &Request,
        view: &View<'_>,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        if view.total < request.cpus {
            return Err(request.too_few_caches(machine, &self.usable, &CpuSet::EMPTY));
        }
        has_enough(machine, request, view, 0)?;
        let free: Vec<usize> = by_cache(machine, view).into_iter().filter(|&n| n > 0).collect();
        let most = free.len();
        let mut result = Err(Rejection::topology_affinity());
        for most_caches in caches::fewest(free, request.cpus)..=most {
            let nodes = Nodes::all(view);
            let demand = Demand { cpus: request.cpus, nodes, most_caches, align: true };
            result = self.choose(machine, request, view, demand);
            if result.is_ok() {
                return result;
            }
        }
        if is_strict(request) {
            return result;
        }
        self.anywhere(request, view, Hint { nodes: None, preferred: false })
    }

    fn choose(
        &self,
        machine: &Topology,
        request: &Request,
        view: &View<'_>,
        demand: Demand,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let (choice, second, hint) = match &request.pod {
            None => choose(machine, request, view, demand, request.cpus)?,
            Some(pod) => {
                let hint = of_pod(machine, request, pod)?;
                let found = search(view, inside(machine, hint, demand));
                let spilt = || search(view, beside(machine, hint, demand));
                let found = if is_strict(request) { found } else { found.or_else(spilt) };
                let Some((choice, second)) = found else {
                    return Err(Rejection::topology_affinity());
                };
                (choice, second, hint)
            }
        };
        let mut cpus = self.held;
        if choice.take(view, &mut cpus) > 0 {
            return if is_strict(request) {
                Err(Rejection::cores_of_other_sizes(request.cpus))
            } else {
                self.anywhere(request, view, hint)
            };
        }
        Ok((Placement { cpus, hint }, choice.cost, second))
    }

    /// CPUs by cell, wherever they are.
    fn anywhere(
        &self,
        request: &Request,
        view: &View<'_>,
        hint: Hint,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let mut cpus = self.held;
        let mut left = self.more(request);
        for cell in 0..view.loads.len() {
            left = view.take(cell, left, &mut cpus);
        }
        if left > 0 {
            return Err(Rejection::cores_of_other_sizes(request.cpus));
        }
        Ok((Placement { cpus, hint }, Cost::default(), None))
    }
}

/// The demand inside the affinity of its pod.
fn inside(machine: &Topology, hint: Hint, mut demand: Demand) -> Demand {
    let allowed = positions(machine, hint).unwrap_or(demand.nodes.allowed);
    demand.nodes.allowed = allowed.union(demand.nodes.base);
    demand
}

/// The demand with the affinity of its pod and as few other nodes as possible.
fn beside(machine: &Topology, hint: Hint, mut demand: Demand) -> Demand {
    let all = positions(machine, hint).unwrap_or_default();
    demand.nodes.base = demand.nodes.base.union(all);
    demand
}

/// Whether CPUs are enough, wherever they are; the container holds `held` of them.
///
/// # Errors
/// The kubelet's reasons: [`Reason::SmtAlignment`](crate::Reason::SmtAlignment) for cores,
/// and the topology manager's refusal before the lack of CPUs under its strict policies.
pub(super) fn has_enough(
    machine: &Topology,
    request: &Request,
    view: &View<'_>,
    held: usize,
) -> Result<(), Rejection> {
    let n = request.cpus;
    let available = view.total + held;
    match cores(request) {
        Cores::OneCpu if available < n => Err(Rejection::not_enough_idle_cores(n, available)),
        Cores::Whole => {
            let per_core = machine.cpus_per_core().max(1);
            if !n.is_multiple_of(per_core) {
                Err(Rejection::partial_core(n, per_core))
            } else if available < n {
                Err(Rejection::not_enough_whole_cores(n, per_core, available))
            } else {
                Ok(())
            }
        }
        Cores::Any if available < n && is_strict(request) => Err(Rejection::topology_affinity()),
        Cores::Any if available < n => Err(NotEnough { requested: n, available }.into()),
        Cores::Any | Cores::OneCpu => Ok(()),
    }
}
