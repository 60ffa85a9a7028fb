//! What a container may have: its pod's budget, its NUMA affinity and the CPUs that its pod can use
//! again, as a [`Request`] to the engine.

use super::books::{Books, BudgetFit, ContainerEntry, PodEntry};
use super::model::Container;
use super::node::Node;
use super::terms::Terms;
use crate::cpuset::CpuSet;
use crate::placement::request::{PodDemand, Reuse};
use crate::placement::settings::Settings;
use crate::placement::{self, Placement, Rejection, Request, Scope, Wishes};

/// What a container gets that is being created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grant {
    /// The shared pool.
    Shared,
    /// The exclusive CPUs it had before.
    Kept(CpuSet),
    /// Exclusive CPUs that have just been chosen, and what there was to choose from.
    Chosen(Placement, Box<Request>),
}

/// A refusal, and what there was to choose from if it came to that.
pub(super) type Refusal = (Rejection, Option<Box<Request>>);

impl Grant {
    /// Its exclusive CPUs.
    pub(super) fn claim(&self) -> Option<CpuSet> {
        match self {
            Grant::Shared => None,
            Grant::Kept(cpus) => Some(*cpus),
            Grant::Chosen(placement, _) => Some(placement.cpus),
        }
    }
}

/// What a container of a pod gets that is being created. Changes nothing.
pub(super) fn grant(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    container: &Container,
    terms: &Terms,
) -> Result<Grant, Refusal> {
    let Some(n) = terms.exclusive_cpus(pod.pod.qos, &container.cpu) else {
        return match terms.without_whole_cpus(pod.pod.qos, &container.cpu) {
            Some(rejection) => Err((rejection, None)),
            None => Ok(Grant::Shared),
        };
    };
    let before = pod.container(&container.name);
    if let Some(held) = before.and_then(|entry| entry.claim).filter(|held| held.len() == n) {
        return Ok(Grant::Kept(held));
    }
    if !node.is_static() {
        return Ok(Grant::Shared);
    }
    let settings = terms.wishes.settings(&node.settings.placement);
    let fit = budget_fit(node, pod, pod.budget_cpus(), container, n);
    let own = before.map(|entry| node.taken(entry)).unwrap_or_default();
    let Some(request) = request(node, books, pod, fit, own, n, terms.wishes, settings) else {
        let shared = terms.without_room().map(|()| Grant::Shared);
        return shared.map_err(|rejection| (rejection, None));
    };
    let request = Box::new(request);
    match placement::place(&*node.engine, &node.topology, &request) {
        Ok(placement) => Ok(Grant::Chosen(placement, request)),
        Err(rejection) => Err((rejection, Some(request))),
    }
}

/// Whether and how `n` exclusive CPUs for a container fit a pod's budget, see
/// [`PodEntry::budget_fit`].
pub(super) fn budget_fit(
    node: &Node,
    pod: &PodEntry,
    budget: Option<usize>,
    container: &Container,
    n: usize,
) -> BudgetFit {
    pod.budget_fit(budget, container, n, |entry| node.taken(entry))
}

/// A request for `n` exclusive CPUs of those that are free and those that the container holds;
/// `None` without room in its pod's budget.
#[expect(clippy::too_many_arguments, reason = "these are all that a request is made of")]
pub(super) fn request(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    fit: BudgetFit,
    own: CpuSet,
    n: usize,
    wishes: Wishes,
    settings: Settings,
) -> Option<Request> {
    let free = node.free(books) | own;
    let reuse = match fit {
        BudgetFit::None => return None,
        BudgetFit::Fresh(cpus) => Reuse::Beside(cpus),
        BudgetFit::Reuse(cpus) => Reuse::First(cpus),
    };
    let in_pod = settings.topology_manager.scope == Scope::Pod;
    Some(Request {
        cpus: n,
        free,
        reuse,
        promised: books.promised_beside(pod),
        pod: in_pod.then(|| pod_demand(pod, &(free | reuse.cpus()), n)).flatten(),
        wishes,
        settings,
    })
}

/// What the NUMA affinity of a pod is chosen by when a container asks for `n` CPUs of a supply
/// (KEP-693).
///
/// It is chosen with the first container that has exclusive CPUs, for as many as the pod's budget.
/// It is chosen anew if the budget has changed, or if it is not known since the plugin was started
/// anew. A pod whose budget is a limit, and no request, has it chosen with each container, for what
/// it has then. A pod without a known budget has none, its containers each their own.
fn pod_demand(pod: &PodEntry, supply: &CpuSet, n: usize) -> Option<PodDemand> {
    let cpus = pod.demand_with(supply, n)?;
    let chosen = pod.affinity.filter(|(of, _)| *of == cpus).map(|(_, hint)| hint);
    Some(PodDemand { cpus, held: pod.held_together(), chosen })
}

/// The request of a container that runs, for `n` CPUs beside or instead of those that it holds.
pub(super) fn running(
    node: &Node,
    books: &Books,
    pod: &PodEntry,
    entry: &ContainerEntry,
    n: usize,
) -> Request {
    let wishes = entry.wishes();
    let own = node.with_idle(&entry.claim.unwrap_or_default(), wishes.isolates());
    Request {
        cpus: n,
        free: node.free(books) | own,
        reuse: Reuse::Beside(CpuSet::EMPTY),
        promised: books.promised_beside(pod),
        pod: None,
        wishes,
        settings: wishes.settings(&node.settings.placement),
    }
}
