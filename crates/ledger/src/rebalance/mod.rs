//! Moves of running containers to better CPUs, within a budget.
//!
//! The planner ([`planner`]) chooses CPUs; this module decides which containers may move and how
//! many, and records the moves. A plan is only a proposal: the daemon returns its steps one after
//! the other as [`Event::Move`](super::Event::Move), and a step that no longer fits changes
//! nothing. So a plan may end after any step.

mod reason;

use super::books::{Books, ContainerEntry, ContainerRef, Phase, PodEntry};
use super::event::Admission;
use super::grant::{Granted, granted};
use super::memory;
use super::model::ContainerId;
use super::moves::{Move, MoveOutcome, MovePlan, NoPlan, Occasion, StayReason};
use super::node::{Node, numa_nodes};
use super::note::What;
use super::request::{NodeSupply, running_request};
use super::settings::{Rebalance, RebalanceMode};
use super::terms::Terms;
use core::time::Duration;
use cpuset::CpuSet;
use placement::Hint;
use placement::moves::{self as planner, Limits, Plan, Resident};
use placement::{Placement, Request, Scope};
use reason::reason;

pub(super) fn for_arrival(
    node: &Node,
    books: &Books,
    admission: &Admission,
) -> Result<MovePlan, NoPlan> {
    let Admission::Create { pod, container } = admission else { return Err(NoPlan::NoNeed) };
    let rebalance = active(node, books)?;
    let entry = books.pod(&pod.uid).ok_or(NoPlan::NoNeed)?;
    let terms = Terms::of_new(node, entry, container).map_err(|_| NoPlan::NoNeed)?;
    let (placed, request): (Option<Placement>, Box<Request>) =
        match granted(node, books, entry, container, &terms) {
            Ok(Granted { cpus, .. }) => {
                let (placement, request) = cpus.chosen().ok_or(NoPlan::NoNeed)?;
                (Some(placement), request)
            }
            Err((_, Some(request))) => (None, request),
            Err((_, None)) => return Err(NoPlan::NoNeed),
        };
    // It can reuse CPUs of its pod, which are not free for containers that would move.
    if !request.reuse.cpus.is_empty() {
        return Err(NoPlan::NoNeed);
    }
    if node.settings.notice_seconds > 0 {
        return Err(NoPlan::Notice);
    }
    let moves = books.moves.moves_left(rebalance);
    if moves == 0 {
        return Err(NoPlan::BudgetUsedUp);
    }
    let supply = NodeSupply::of(node, books);
    let (ids, residents) = residents(node, books, &supply)?;
    let limits = limits(node, rebalance, moves);
    let placed = placed.as_ref();
    let plan =
        planner::for_arrival(&node.topology, supply.free, &residents, &request, placed, &limits)
            .ok_or(NoPlan::NoGain)?;
    let subject = format!("{}/{}/{}", entry.pod.namespace, entry.pod.name, container.name);
    let after = plan.new_placement.as_ref().map(|placement| placement.cpus);
    let why = match after {
        Some(after) => {
            reason(&node.topology, &subject, placed.map(|placement| placement.cpus), after)
        }
        None => subject,
    };
    with_memory(node, books, move_plan(&residents, &ids, plan, Occasion::Arrival, &why))
}

/// The best moves when no container is about to be created.
pub(super) fn for_departure(node: &Node, books: &Books) -> Result<MovePlan, NoPlan> {
    let rebalance = active(node, books)?;
    let moves = books.moves.spare_moves(rebalance);
    if moves == 0 {
        let kept = books.moves.moves_left(rebalance) > 0;
        return Err(if kept { NoPlan::BudgetKept } else { NoPlan::BudgetUsedUp });
    }
    let supply = NodeSupply::of(node, books);
    let (ids, residents) = residents(node, books, &supply)?;
    let limits = limits(node, rebalance, moves);
    let plan = planner::for_departure(&node.topology, supply.free, &residents, &limits)
        .ok_or(NoPlan::NoGain)?;
    // The log names only the move with the greatest gain: the others make it possible.
    let better = plan.moves.iter().map(|planned| {
        let Resident { held, request, .. } = &residents[planned.resident];
        let before = planner::badness(&node.topology, request, held);
        let gain = before.saturating_sub(planner::badness(&node.topology, request, &planned.to));
        (gain, planned)
    });
    let (_, best) = better.max_by_key(|(gain, _)| *gain).ok_or(NoPlan::NoGain)?;
    let ContainerRef { pod, name, .. } = books.find(&ids[best.resident]).ok_or(NoPlan::NoGain)?;
    let subject = format!("{}/{}/{name}", pod.pod.namespace, pod.pod.name);
    let before = Some(residents[best.resident].held);
    let why = reason(&node.topology, &subject, before, best.to);
    with_memory(node, books, move_plan(&residents, &ids, plan, Occasion::Departure, &why))
}

/// The plan, unless memory that is counted cannot follow one of its moves. The planner considers
/// CPUs only.
fn with_memory(node: &Node, books: &Books, plan: MovePlan) -> Result<MovePlan, NoPlan> {
    if node.settings.memory.is_none() {
        return Ok(plan);
    }
    let mut trial = books.clone();
    if plan.steps.iter().all(|step| take(node, &mut trial, step)) {
        Ok(plan)
    } else {
        Err(NoPlan::NoRoomForMemory)
    }
}

/// The settings, if containers can move now. As long as claims of the state file are only
/// remembered, the ledger does not know which containers run where.
fn active<'a>(node: &'a Node, books: &Books) -> Result<&'a Rebalance, NoPlan> {
    let rebalance = node.settings.rebalance.as_ref().ok_or(NoPlan::Off)?;
    let none_remembered = books.remembered().is_empty() && books.remembered_memory().is_empty();
    let ready = node.assigns() && node.is_static() && none_remembered;
    if ready { Ok(rebalance) } else { Err(NoPlan::NotAssigning) }
}

fn limits(node: &Node, rebalance: &Rebalance, containers: usize) -> Limits {
    /// The weight of a move to another NUMA node if the memory stays on the old one: remote memory
    /// costs more than cold caches.
    const REMOTE_MEMORY: usize = 3;
    Limits {
        containers,
        across_numa_nodes: rebalance.across_numa_nodes,
        weight_across: if node.settings.mems_follow_cpus || node.settings.memory.is_some() {
            1
        } else {
            REMOTE_MEMORY
        },
    }
}

/// All containers with exclusive CPUs: their ids, and in the same order the planner's view of them.
fn residents(
    node: &Node,
    books: &Books,
    supply: &NodeSupply,
) -> Result<(Vec<ContainerId>, Vec<Resident>), NoPlan> {
    let all = books.containers().filter_map(|ContainerRef { pod, entry, .. }| {
        let held = entry.claim()?;
        let request = running_request(node, supply, pod, entry, held.len());
        let movable = stays(node, pod, entry).is_none();
        Some((entry.id().clone(), Resident { held, request, movable }))
    });
    let (ids, residents): (Vec<ContainerId>, Vec<Resident>) = all.unzip();
    let any_movable = residents.iter().any(|resident| resident.movable);
    if any_movable { Ok((ids, residents)) } else { Err(NoPlan::AllStay) }
}

/// Why a container does not move now; `None` if it may.
///
/// In pod scope the containers of a pod have one affinity. A container moves only if it has all
/// exclusive CPUs that its pod can have: otherwise another one may need CPUs in the old NUMA node.
pub(super) fn stays(node: &Node, pod: &PodEntry, entry: &ContainerEntry) -> Option<StayReason> {
    let scope = node.settings.placement.topology_manager.scope;
    if entry.terms.movable == Some(false) {
        Some(StayReason::PodOption)
    } else if let Some(reason) = entry.fixed_by() {
        Some(reason)
    } else if entry.applied.has_foreign_mems() {
        Some(StayReason::MemoryNodes)
    } else if !pod.own_pool().is_empty() {
        Some(StayReason::OwnPool)
    } else if scope == Scope::Pod && !has_all_of_pod(pod, entry) {
        Some(StayReason::PodScope)
    } else if entry.phase() != Phase::Running
        || entry.waits()
        || entry.lacks_cpus
        || entry.notice().is_some()
    {
        Some(StayReason::Changing)
    } else {
        let min_stay = node.settings.rebalance.as_ref().map_or(Duration::ZERO, |one| one.min_stay);
        let stayed = node.now.saturating_sub(entry.settled_at()?);
        let left = min_stay.saturating_sub(stayed);
        if left.is_zero() { None } else { Some(StayReason::MinStay(left)) }
    }
}

/// Whether no other container of the pod has exclusive CPUs or can get some.
fn has_all_of_pod(pod: &PodEntry, entry: &ContainerEntry) -> bool {
    let mut others = pod.containers().filter(|(_, other)| other.id() != entry.id());
    others.all(|(_, other)| other.claim().is_none())
        && pod.demand().is_none_or(|all| all <= entry.held().len())
}

/// When the next `minStay` ends; `None` if no container has to stay for that.
pub(super) fn next_movable(node: &Node, books: &Books) -> Option<Duration> {
    active(node, books).ok()?;
    let holders = books.containers().filter(|container| container.entry.claim().is_some());
    let left = holders.filter_map(|holder| match stays(node, holder.pod, holder.entry) {
        Some(StayReason::MinStay(left)) => Some(left),
        _ => None,
    });
    Some(node.now.saturating_add(left.min()?))
}

fn move_plan(
    residents: &[Resident],
    ids: &[ContainerId],
    plan: Plan,
    occasion: Occasion,
    why: &str,
) -> MovePlan {
    let mut held: Vec<CpuSet> = residents.iter().map(|resident| resident.held).collect();
    let steps = plan.steps.into_iter().map(|step| Move {
        occasion,
        container: ids[step.resident].clone(),
        from: std::mem::replace(&mut held[step.resident], step.to),
        to: step.to,
        outcome: if step.staged { MoveOutcome::Staged } else { MoveOutcome::Done },
        why: if step.staged { format!("temporarily: {why}") } else { why.to_owned() },
    });
    MovePlan { occasion, steps: steps.collect() }
}

/// Takes a step of a plan, and returns true, if it still fits. Otherwise nothing changes.
pub(super) fn take(node: &Node, books: &mut Books, step: &Move) -> bool {
    let Some(found) = books.find(&step.container) else { return false };
    let (entry, subject) = (found.entry, found.subject());
    let margin = entry.margin();
    let shares_affinity = entry.pod_options().shares_affinity();
    let target = node.with_idle(&step.to, margin);
    // Not `Node::free`: if all reserved CPUs are offline, it excludes the lowest CPU, which an
    // earlier step of the plan may have freed for this one. The number of shared CPUs is checked
    // below.
    let unclaimed = node.unclaimed(books);
    let available = unclaimed | node.taken(entry);
    // Shared containers leave the new CPUs before they get the old ones, so they need others
    // meanwhile. Without strict reservation these are the reserved CPUs.
    let strict = node.settings.placement.options.strict_cpu_reservation;
    let shared = unclaimed - node.isolated();
    let takes_pool = strict && !shared.is_empty() && shared.is_subset(&target);
    let fits = node.assigns()
        && entry.is_alive()
        && entry.claim() == Some(step.from)
        && step.to.len() == step.from.len()
        && target.is_subset(&available)
        && ((available - target) - node.isolated()).len() >= node.min_shared()
        && !takes_pool;
    if !fits {
        return false;
    }
    let nodes = numa_nodes(&node.topology, &step.to);
    let Ok(memory) = memory::moved(node, books, found.uid, found.name, nodes) else {
        return false;
    };
    // `minStay` begins only when a container has its CPUs of the plan.
    let settled_at = (step.outcome == MoveOutcome::Done).then_some(node.now);
    let uid = found.uid.clone();
    books.change_by_id(&step.container, |entry| {
        entry.move_to(step.to, margin);
        entry.settle(settled_at);
        if memory.is_some() {
            entry.memory = memory;
        }
    });
    // The affinity of the pod follows the move, so that later containers of the pod get CPUs there.
    if shares_affinity
        && let Some(pod) = books.pod_mut(&uid)
        && let Some((_, Hint { nodes: Some(chosen), .. })) = &mut pod.affinity
    {
        *chosen = nodes;
    }
    count(node, books, step);
    let what = What::Rebalanced { from: step.from, to: step.to, why: step.why.clone() };
    books.journal.note(false, subject, what);
    true
}

fn count(node: &Node, books: &mut Books, step: &Move) {
    let totals = &mut books.moves.totals;
    let nodes = |cpus: &CpuSet| numa_nodes(&node.topology, cpus);
    totals.count(step.occasion, step.outcome);
    // It is no further move, and the budget does not get back what the undone step used.
    if step.outcome == MoveOutcome::Undone {
        return;
    }
    totals.cpus += (step.to - step.from).len() as u64;
    // The later step of the same container counts as its move.
    if step.outcome == MoveOutcome::Staged {
        return;
    }
    totals.across_numa_nodes += u64::from(!nodes(&step.to).is_subset(nodes(&step.from)));
    if let Some(rebalance) = &node.settings.rebalance {
        books.moves.moved(rebalance);
    }
}

/// Notes the moves of a dry run, and charges the budget as if they had been made.
pub(super) fn suggest(node: &Node, books: &mut Books, plan: &MovePlan) {
    let Some(rebalance) = &node.settings.rebalance else { return };
    debug_assert_eq!(rebalance.mode, RebalanceMode::Suggest);
    let done = |step: &&Move| step.outcome == MoveOutcome::Done;
    for step in plan.steps.iter().filter(done) {
        let Some(found) = books.find(&step.container) else { continue };
        let subject = found.subject();
        let what = What::Suggested { from: step.from, to: step.to, why: step.why.clone() };
        books.journal.note(false, subject, what);
        books.moves.totals.count(plan.occasion, MoveOutcome::Suggested);
        books.moves.moved(rebalance);
    }
}
