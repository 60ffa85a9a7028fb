//! [`steps()`]: the order in which a plan is carried out.
//!
//! At every moment each CPU has one owner at most. A container moves when its CPUs of the plan are
//! free or its own. In a ring no container can move; the smallest one that can be staged then waits
//! on free CPUs that the plan does not need. There it is in no other container's way, so each is
//! staged once at most and the loop ends.

use super::calls::Calls;
use super::plan::{Ctx, Move, Resident, Step};
use cpuset::CpuSet;

/// A move that is still to be made.
struct Pending {
    resident: usize,
    to: CpuSet,
    /// What it holds now, and what it holds after the move, with idle siblings.
    holds: CpuSet,
    takes: CpuSet,
    staged: bool,
}

/// The steps that carry these moves out; after them the newcomer's CPUs (`taken`) are free. `None` if
/// a ring cannot be opened with the calls that are left.
///
/// A staged container is placed by its own request: no step breaks its policy.
pub(super) fn steps(
    calls: &mut Calls<'_>,
    ctx: &Ctx<'_>,
    moves: &[Move],
    taken: &CpuSet,
) -> Option<Vec<Step>> {
    let Ctx { machine, mut free, residents, limits } = *ctx;
    let pending = moves.iter().map(|planned| {
        let Resident { held, request, .. } = &residents[planned.resident];
        Pending {
            resident: planned.resident,
            to: planned.to,
            holds: request.footprint(machine, held),
            takes: request.footprint(machine, &planned.to),
            staged: false,
        }
    });
    let mut pending: Vec<Pending> = pending.collect();
    pending.sort_by_key(|planned| planned.takes.len());
    let mut steps = Vec::new();
    while !pending.is_empty() {
        let ready = pending.iter().position(|next| next.takes.is_subset(&(free | next.holds)));
        if let Some(at) = ready {
            let next = pending.remove(at);
            free = (free | next.holds) - next.takes;
            steps.push(Step { resident: next.resident, to: next.to, staged: false });
            continue;
        }
        let targets = pending.iter().map(|next| next.takes).collect::<CpuSet>() | *taken;
        let (at, to) = pending.iter().enumerate().find_map(|(at, next)| {
            if next.staged {
                return None;
            }
            let outside = (free | next.holds) - targets;
            let to = calls.place_again(&residents[next.resident], &outside, limits)?;
            Some((at, to))
        })?;
        let next = &mut pending[at];
        let takes = residents[next.resident].request.footprint(machine, &to);
        free = (free | next.holds) - takes;
        next.holds = takes;
        next.staged = true;
        steps.push(Step { resident: next.resident, to, staged: true });
    }
    Some(steps)
}
