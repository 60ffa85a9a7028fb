//! Builds the [`Request`] to the engine: from the pod's budget, its NUMA affinity and the CPUs that
//! it can use again.

use super::books::{Books, BudgetFit, ContainerEntry, PodEntry};
use super::model::Container;
use super::node::Node;
use super::terms::Terms;
use cpuset::CpuSet;
use placement::{self, IsolatedCpus, Placement, PodDemand, Rejection, Request, Reuse, Scope};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grant {
    Shared,
    /// The exclusive CPUs that its name had before.
    Kept(CpuSet),
    /// Exclusive CPUs from the engine, and what it chose from.
    Chosen(Placement, Box<Request>),
}

/// A refusal, and what the engine chose from, if the ledger asked it.
pub(super) type RefusedRequest = (Rejection, Option<Box<Request>>);

impl Grant {
    pub(super) fn claim(&self) -> Option<CpuSet> {
        match self {
            Grant::Shared => None,
            Grant::Kept(cpus) => Some(*cpus),
            Grant::Chosen(placement, _) => Some(placement.cpus),
        }
    }
}

/// What the containers of a node leave for exclusive ones: the same for all requests of one decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supply {
    /// CPUs that could become exclusive now.
    pub(super) free: CpuSet,
    /// How many CPUs all pods together keep free for themselves, see [`PodEntry::promise`]. A runtime
    /// may report budgets of any size; their sum fits in here.
    promised: u128,
    /// The same of pods that require isolated CPUs.
    promised_isolated: u128,
}

impl Supply {
    pub(super) fn of(node: &Node, books: &Books) -> Supply {
        let mut supply = Supply { free: node.free(books), promised: 0, promised_isolated: 0 };
        for (_, pod) in books.pods() {
            let promise = pod.promise() as u128;
            if requires_isolated(node, pod) {
                supply.promised_isolated += promise;
            } else {
                supply.promised += promise;
            }
        }
        supply
    }

    /// How many CPUs all pods but this one keep free for themselves, of the kind that a container
    /// with these settings gets.
    fn promised_beside(
        &self,
        node: &Node,
        pod: &PodEntry,
        settings: &placement::Settings,
    ) -> usize {
        let required = settings.isolated == IsolatedCpus::Require;
        let all = if required { self.promised_isolated } else { self.promised };
        let own = if requires_isolated(node, pod) == required { pod.promise() } else { 0 };
        usize::try_from(all - own as u128).unwrap_or(usize::MAX)
    }
}

/// Whether a pod's containers get isolated CPUs only, as far as no annotation names them.
fn requires_isolated(node: &Node, pod: &PodEntry) -> bool {
    if node.isolated().is_empty() {
        return false;
    }
    let wishes = Terms::standing(&node.settings, &pod.pod, "").wishes;
    wishes.settings(&node.settings.placement).isolated == IsolatedCpus::Require
}

/// What a new container of a pod gets. Changes nothing.
pub(super) fn grant(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
) -> Result<Grant, RefusedRequest> {
    let Some(n) = terms.exclusive_cpus(pod.pod.qos, &container.cpu) else {
        return match terms.without_whole_cpus(pod.pod.qos, &container.cpu) {
            Some(rejection) => Err((rejection, None)),
            None => Ok(Grant::Shared),
        };
    };
    let before = pod.container(&container.name);
    if let Some(held) = before.and_then(|entry| entry.claim()).filter(|held| held.len() == n) {
        return Ok(Grant::Kept(held));
    }
    if !node.is_static() {
        return Ok(Grant::Shared);
    }
    let fit = budget_fit(node, pod, pod.budget_cpus(), container, n);
    let own = before.map(|entry| node.taken(entry)).unwrap_or_default();
    let supply = Supply::of(node, books);
    let Some(request) = request(node, &supply, pod, fit, own, n, terms) else {
        let shared = terms.without_room().map(|()| Grant::Shared);
        return shared.map_err(|rejection| (rejection, None));
    };
    let request = Box::new(request);
    match placement::place(&node.topology, &request) {
        Ok(placement) => Ok(Grant::Chosen(placement, request)),
        Err(rejection) => Err((rejection, Some(request))),
    }
}

pub(super) fn budget_fit(
    node: &Node,
    pod: &PodEntry,
    budget: Option<usize>,
    container: &Container,
    n: usize,
) -> BudgetFit {
    pod.budget_fit(budget, container, n, |entry| node.taken(entry))
}

/// A request for `n` exclusive CPUs, of the free ones and of `own`, those that the container holds;
/// `None` without room in its pod's budget.
pub(super) fn request(
    node: &Node,
    supply: &Supply,
    pod: &PodEntry,
    fit: BudgetFit,
    own: CpuSet,
    n: usize,
    terms: &Terms,
) -> Option<Request> {
    let free = supply.free | own;
    let reuse = match fit {
        BudgetFit::None => return None,
        BudgetFit::Fresh(cpus) => Reuse::Beside(cpus),
        BudgetFit::Reuse(cpus) => Reuse::First(cpus),
    };
    let settings = terms.wishes.settings(&node.settings.placement);
    let in_pod = settings.topology_manager.scope == Scope::Pod;
    Some(Request {
        cpus: n,
        free,
        reuse,
        promised: supply.promised_beside(node, pod, &settings),
        pod: in_pod.then(|| pod_demand(pod, &(free | reuse.cpus()), n)).flatten(),
        wishes: terms.wishes,
        devices: terms.devices,
        settings,
    })
}

/// What the NUMA affinity of a pod is chosen by when a container asks for `n` CPUs of a supply
/// (KEP-693).
///
/// The engine chooses it with the first container that has exclusive CPUs, for the pod's budget,
/// and again after the budget changes or the plugin restarts. If the pod's budget is a limit and no
/// request, the engine chooses it with each container, for what the pod has then. Without a known
/// budget each container has an affinity of its own.
fn pod_demand(pod: &PodEntry, supply: &CpuSet, n: usize) -> Option<PodDemand> {
    let cpus = pod.demand_with(supply, n)?;
    let chosen = pod.affinity.filter(|(of, _)| *of == cpus).map(|(_, hint)| hint);
    Some(PodDemand { cpus, held: pod.held_together(), chosen })
}

/// The request of a running container, for `n` CPUs instead of those that it holds.
pub(super) fn running(
    node: &Node,
    supply: &Supply,
    pod: &PodEntry,
    entry: &ContainerEntry,
    n: usize,
) -> Request {
    let wishes = entry.wishes();
    let own = node.with_idle(&entry.held(), wishes.margin());
    let settings = wishes.settings(&node.settings.placement);
    Request {
        cpus: n,
        free: supply.free | own,
        reuse: Reuse::Beside(CpuSet::EMPTY),
        promised: supply.promised_beside(node, pod, &settings),
        pod: None,
        wishes,
        devices: entry.terms.devices,
        settings,
    }
}
