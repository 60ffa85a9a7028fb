//! Moves of running containers to better CPUs, within a budget.
//!
//! The planner ([`planner`]) knows CPUs; here is who may move, how many, and what is recorded. A plan
//! is only a proposal: each of its steps comes back as [`Event::Move`](super::Event::Move), one
//! after the other, and changes nothing if it does not fit any more. So a plan can end after every
//! step, and the ledger is right.

mod reason;

use super::books::{Books, ContainerEntry, ContainerRef, Phase, PodEntry};
use super::event::Admission;
use super::model::ContainerId;
use super::moves::{Move, MoveOutcome, MovePlan, NoPlan, Occasion, StayReason};
use super::node::Node;
use super::note::What;
use super::request::{Grant, Supply, grant, running};
use super::settings::{Rebalance, RebalanceMode};
use super::terms::Terms;
use core::time::Duration;
use cpuset::CpuSet;
use placement::Hint;
use placement::moves::{self as planner, Limits, Plan, Resident};
use placement::{Placement, Request, Scope};
use reason::{numa_nodes, reason};

/// The best moves for a container that is about to be created.
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
        match grant(node, books, entry, container, &terms) {
            Ok(Grant::Chosen(placement, request)) => (Some(placement), request),
            Err((_, Some(request))) => (None, request),
            _ => return Err(NoPlan::NoNeed),
        };
    // What a container of the pod has left is not free for others.
    if !request.reuse.cpus().is_empty() {
        return Err(NoPlan::NoNeed);
    }
    if node.settings.notice_seconds > 0 {
        return Err(NoPlan::Notice);
    }
    let moves = books.moves.left(rebalance);
    if moves == 0 {
        return Err(NoPlan::BudgetUsedUp);
    }
    let supply = Supply::of(node, books);
    let (ids, residents) = residents(node, books, &supply)?;
    let limits = limits(node, rebalance, moves);
    let placed = placed.as_ref();
    let plan =
        planner::for_arrival(&node.topology, supply.free, &residents, &request, placed, &limits)
            .ok_or(NoPlan::NoGain)?;
    let newcomer = format!("{}/{}/{}", entry.pod.namespace, entry.pod.name, container.name);
    let after = plan.newcomer.as_ref().map(|placement| placement.cpus);
    let why = match after {
        Some(after) => {
            reason(&node.topology, &newcomer, placed.map(|placement| placement.cpus), after)
        }
        None => newcomer,
    };
    Ok(move_plan(&residents, &ids, plan, (Occasion::Arrival, why)))
}

/// The best moves without a newcomer.
pub(super) fn for_departure(node: &Node, books: &Books) -> Result<MovePlan, NoPlan> {
    let rebalance = active(node, books)?;
    let moves = books.moves.spare(rebalance);
    if moves == 0 {
        let kept = books.moves.left(rebalance) > 0;
        return Err(if kept { NoPlan::BudgetKept } else { NoPlan::BudgetUsedUp });
    }
    let supply = Supply::of(node, books);
    let (ids, residents) = residents(node, books, &supply)?;
    let limits = limits(node, rebalance, moves);
    let plan = planner::for_departure(&node.topology, supply.free, &residents, &limits)
        .ok_or(NoPlan::NoGain)?;
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
    Ok(move_plan(&residents, &ids, plan, (Occasion::Departure, why)))
}

/// The settings, if containers can move now. Until all claims of the last process are found again,
/// nobody knows who runs where.
fn active<'a>(node: &'a Node, books: &Books) -> Result<&'a Rebalance, NoPlan> {
    let rebalance = node.settings.rebalance.as_ref().ok_or(NoPlan::Off)?;
    let ready = node.assigns() && node.is_static() && books.remembered().is_empty();
    if ready { Ok(rebalance) } else { Err(NoPlan::NotAssigning) }
}

fn limits(node: &Node, rebalance: &Rebalance, containers: usize) -> Limits {
    /// Memory that stays behind on another node costs more than caches to be filled again.
    const FAR: usize = 3;
    Limits {
        containers,
        across_numa_nodes: rebalance.across_numa_nodes,
        weight_across: if node.settings.mems_follow_cpus { 1 } else { FAR },
    }
}

/// All containers that have exclusive CPUs now.
fn residents(
    node: &Node,
    books: &Books,
    supply: &Supply,
) -> Result<(Vec<ContainerId>, Vec<Resident>), NoPlan> {
    let all = books.containers().filter_map(|ContainerRef { pod, entry, .. }| {
        let held = entry.claim()?;
        let request = running(node, supply, pod, entry, held.len());
        let movable = stays(node, pod, entry).is_none();
        Some((entry.id().clone(), Resident { held, request, movable }))
    });
    let (ids, residents): (Vec<ContainerId>, Vec<Resident>) = all.unzip();
    let some_move = residents.iter().any(|resident| resident.movable);
    if some_move { Ok((ids, residents)) } else { Err(NoPlan::AllStay) }
}

/// Why a container does not move now; `None` if it may.
///
/// In pod scope the containers of a pod have one affinity: one moves only if it has all CPUs that its
/// pod can have, so that no other one needs some where it was.
pub(super) fn stays(node: &Node, pod: &PodEntry, entry: &ContainerEntry) -> Option<StayReason> {
    let scope = node.settings.placement.topology_manager.scope;
    if entry.terms.movable == Some(false) {
        Some(StayReason::Wish)
    } else if let Some(reason) = entry.fixed_by() {
        Some(reason)
    } else if entry.applied.keeps_mems() {
        Some(StayReason::MemoryNodes)
    } else if scope == Scope::Pod && !has_all_of_pod(pod, entry) {
        Some(StayReason::PodScope)
    } else if entry.phase() != Phase::Running
        || entry.waits()
        || entry.lost
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

/// Whether no other container of the pod has exclusive CPUs, or can get some beside these.
fn has_all_of_pod(pod: &PodEntry, entry: &ContainerEntry) -> bool {
    let mut others = pod.containers().filter(|(_, other)| other.id() != entry.id());
    others.all(|(_, other)| other.claim().is_none())
        && pod.demand().is_none_or(|all| all <= entry.held().len())
}

/// When the next container has stayed for `minStay`; `None` if there is none.
pub(super) fn next_movable(node: &Node, books: &Books) -> Option<Duration> {
    active(node, books).ok()?;
    let claims = books.containers().filter(|found| found.entry.claim().is_some());
    let left = claims.filter_map(|found| match stays(node, found.pod, found.entry) {
        Some(StayReason::MinStay(left)) => Some(left),
        _ => None,
    });
    Some(node.now.saturating_add(left.min()?))
}

/// The planner's plan in the ledger's words.
fn move_plan(
    residents: &[Resident],
    ids: &[ContainerId],
    plan: Plan,
    (occasion, why): (Occasion, String),
) -> MovePlan {
    let mut held: Vec<CpuSet> = residents.iter().map(|resident| resident.held).collect();
    let steps = plan.steps.into_iter().map(|step| Move {
        occasion,
        container: ids[step.resident].clone(),
        from: std::mem::replace(&mut held[step.resident], step.to),
        to: step.to,
        outcome: if step.staged { MoveOutcome::Staged } else { MoveOutcome::Done },
        why: if step.staged { format!("temporarily: {why}") } else { why.clone() },
    });
    MovePlan { occasion, steps: steps.collect() }
}

/// Takes a step of a plan. Returns whether it still fits; if not, nothing changes.
pub(super) fn take(node: &Node, books: &mut Books, step: &Move) -> bool {
    let Some(found) = books.find(&step.container) else { return false };
    let (entry, subject) = (found.entry, found.subject());
    let margin = entry.margin();
    let shares_affinity = entry.wishes().shares_affinity();
    let target = node.with_idle(&step.to, margin);
    // Which CPU stays shared where all reserved ones are offline may change with each step.
    let unclaimed = node.unclaimed(books);
    let room = unclaimed | node.taken(entry);
    // Shared containers leave its new CPUs before it leaves the old ones, for others.
    let strict = node.settings.placement.options.strict_cpu_reservation;
    let shared = unclaimed - node.isolated();
    let takes_pool = strict && !shared.is_empty() && shared.is_subset(&target);
    let fits = node.assigns()
        && entry.is_alive()
        && entry.claim() == Some(step.from)
        && step.to.len() == step.from.len()
        && target.is_subset(&room)
        && ((room - target) - node.isolated()).len() >= node.kept_shared()
        && !takes_pool;
    if !fits {
        return false;
    }
    let keeps = step.outcome == MoveOutcome::Done;
    let uid = found.uid.clone();
    books.change_found(&step.container, |entry| {
        entry.move_to(step.to, margin);
        entry.settle(if keeps { Some(node.now) } else { None });
    });
    // A later container of the pod follows to where this one is now, unless this one is placed apart
    // from the others.
    let nodes = numa_nodes(&node.topology, &step.to);
    if shares_affinity
        && let Some(pod) = books.change(&uid)
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
    if step.outcome == MoveOutcome::Undone {
        return;
    }
    totals.cpus += (step.to - step.from).len() as u64;
    if step.outcome == MoveOutcome::Staged {
        return;
    }
    totals.across_numa_nodes += u64::from(!nodes(&step.to).is_subset(nodes(&step.from)));
    if let Some(rebalance) = &node.settings.rebalance {
        books.moves.moved(rebalance);
    }
}

/// Notes what a dry run would have done, and counts it as if it had.
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
