//! [`place()`]: the CPUs of a container that starts.

use super::affinity::{choose, is_strict, pod_affinity, positions};
use super::capacity::{by_cache, cores, fewest_caches};
use super::cost::Cost;
use super::search::{SearchDemand, search};
use super::sets::NodeBounds;
use super::view::{Cores, View};
use crate::caches;
use crate::engine::Placement;
use crate::hint::Hint;
use crate::memory_manager::MemoryOffer;
use crate::pod_options::Uncore;
use crate::rejection::{NotEnough, Rejection};
use crate::request::Request;
use crate::sizes::no_sum;
use crate::topology_manager::TopologyPolicy;
use cpuset::CpuSet;
use topology::Topology;

/// The CPUs for a container that starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply {
    usable: CpuSet,
    /// Usable CPUs that are preferred, because the pod holds them anyway.
    reusable: CpuSet,
}

pub(super) fn place(machine: &Topology, request: &Request) -> Result<Placement, Rejection> {
    let anywhere = cheapest(machine, request).map(|(placement, _)| placement);
    match &request.memory {
        // The reason of a refusal is a lack of CPUs, if there is one.
        Some(memory) if anywhere.is_ok() => match near_memory(machine, request, memory) {
            Some(placement) => Ok(placement),
            None if is_strict(request) => Err(Rejection::topology_affinity()),
            None => anywhere,
        },
        _ => anywhere,
    }
}

fn cheapest(machine: &Topology, request: &Request) -> Result<(Placement, Cost), Rejection> {
    let (placement, cost, _) = Supply::of(machine, request).place(machine, request)?;
    Ok((placement, cost))
}

/// The cheapest placement on the CPUs of nodes that have the memory, the fewest that have both. Its
/// hint is all these nodes. `None` if no set that the policy admits has both.
fn near_memory(machine: &Topology, request: &Request, memory: &MemoryOffer) -> Option<Placement> {
    let mut best: Option<(usize, Cost, Placement)> = None;
    for Hint { nodes, preferred } in memory.hints() {
        let Some(nodes) = nodes else { continue };
        let admitted = match request.settings.topology_manager.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => true,
            TopologyPolicy::Restricted => preferred,
            TopologyPolicy::SingleNumaNode => nodes.len() == 1,
        };
        if !admitted || best.as_ref().is_some_and(|(size, ..)| *size < nodes.len()) {
            continue;
        }
        let narrowed = request.on_nodes(machine, nodes);
        let Ok((placement, cost)) = cheapest(machine, &narrowed) else { continue };
        let hint = Hint { nodes: Some(nodes), preferred: preferred && placement.hint.preferred };
        let found = (nodes.len(), cost, Placement { hint, ..placement });
        let is_better =
            |(size, least, _): &(usize, Cost, Placement)| (found.0, found.1) < (*size, *least);
        if best.as_ref().is_none_or(is_better) {
            best = Some(found);
        }
    }
    best.map(|(.., placement)| placement)
}

impl Supply {
    pub(super) fn of(machine: &Topology, request: &Request) -> Supply {
        let legal = machine.online() - request.settings.reserved;
        let reusable = request.reuse.cpus & legal;
        Supply { usable: (request.free & legal) | reusable, reusable }
    }

    pub(super) fn view<'m>(&self, machine: &'m Topology, request: &Request) -> View<'m> {
        let held = CpuSet::EMPTY;
        let usable = request.pod_options.in_its_caches(machine, &self.usable, &held);
        View::new(machine, &usable, &held, &self.reusable, cores(request))
    }

    /// The placement, its cost, and the second-best cost among the choices that were compared.
    pub(super) fn place(
        &self,
        machine: &Topology,
        request: &Request,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let view = self.view(machine, request);
        if request.pod_options.takes_caches() {
            return self.in_whole_caches(machine, request, &view);
        }
        has_enough(machine, request, &view, 0)?;
        let required = request.pod_options.uncore == Some(Uncore::Require);
        let fewest = if required { fewest_caches(machine, request) } else { usize::MAX };
        let demand = SearchDemand {
            cpus: request.cpus,
            nodes: NodeBounds::all(&view),
            most_caches: fewest,
            align: request.pod_options.uncore != Some(Uncore::Ignore),
        };
        match self.choose(machine, request, &view, demand) {
            Ok(placement) => Ok(placement),
            Err(refused) if required => {
                // The limit of caches is the cause only if the search succeeds without it.
                let unlimited = SearchDemand { most_caches: usize::MAX, ..demand };
                self.choose(machine, request, &view, unlimited).map_err(|_| refused)?;
                let mut caches = by_cache(machine, &view);
                caches.sort_unstable_by(|one, other| other.cmp(one));
                let room = caches.iter().take(fewest).sum();
                Err(Rejection::uncore_alignment(request.cpus, fewest, room))
            }
            Err(_) if !is_strict(request) => {
                // Only nodes with numbers past the limit of a `NodeSet` have room.
                let hint = Hint { nodes: None, preferred: false };
                self.anywhere(request, &view, hint)
            }
            Err(refused) => Err(refused),
        }
    }

    /// In the fewest uncore caches that are entirely free, or in more if the policy admits no set
    /// of that few.
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
            let nodes = NodeBounds::all(view);
            let demand = SearchDemand { cpus: request.cpus, nodes, most_caches, align: true };
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
        demand: SearchDemand,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let (choice, second, hint) = match &request.pod {
            None => choose(machine, request, view, demand, request.cpus)?,
            Some(pod) => {
                let hint = pod_affinity(machine, request, pod)?;
                let mut chosen = search(view, inside(machine, hint, demand));
                if chosen.is_none() && !is_strict(request) {
                    chosen = search(view, inside_first(machine, hint, demand));
                }
                let (choice, second) = chosen.ok_or_else(Rejection::topology_affinity)?;
                (choice, second, hint)
            }
        };
        let mut cpus = CpuSet::EMPTY;
        choice.take(view, &mut cpus);
        Ok((Placement { cpus, hint }, choice.cost, second))
    }

    /// Takes CPUs of one cell after the other, without regard to nodes and caches.
    fn anywhere(
        &self,
        request: &Request,
        view: &View<'_>,
        hint: Hint,
    ) -> Result<(Placement, Cost, Option<Cost>), Rejection> {
        let mut cpus = CpuSet::EMPTY;
        if view.take_anywhere(request.cpus, &mut cpus) {
            Ok((Placement { cpus, hint }, Cost::default(), None))
        } else {
            Err(NotEnough { requested: request.cpus, available: view.total }.into())
        }
    }
}

/// The demand, limited to the affinity of the pod and the nodes that are used anyway.
fn inside(machine: &Topology, hint: Hint, mut demand: SearchDemand) -> SearchDemand {
    let allowed = positions(machine, hint).unwrap_or(demand.nodes.allowed);
    demand.nodes.allowed = allowed.union(demand.nodes.base);
    demand
}

/// The demand with the nodes of the pod's affinity at no cost, so that it takes the fewest others.
fn inside_first(machine: &Topology, hint: Hint, mut demand: SearchDemand) -> SearchDemand {
    let all = positions(machine, hint).unwrap_or_default();
    demand.nodes.base = demand.nodes.base.union(all);
    demand
}

/// Checks that enough CPUs are free on the whole machine. The container holds `held` CPUs already.
///
/// # Errors
/// As in the kubelet: [`Reason::SmtAlignment`](crate::Reason::SmtAlignment) for cores. Under the
/// topology manager's strict policies its refusal takes precedence over the lack of CPUs.
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
        Cores::Whole if !view.can_give(n - held) => {
            Err(no_sum(machine, &request.settings, &view.usable_cpus(), n))
        }
        Cores::Any if available < n && is_strict(request) => Err(Rejection::topology_affinity()),
        Cores::Any if available < n => Err(NotEnough { requested: n, available }.into()),
        Cores::Any | Cores::Whole | Cores::OneCpu => Ok(()),
    }
}
