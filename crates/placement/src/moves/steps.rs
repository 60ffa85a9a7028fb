//! [`steps()`]: the order in which a plan is carried out.
//!
//! At every moment each CPU has at most one owner. A container moves when its planned CPUs are free
//! or its own. In a ring of containers that wait for each other, none can move. Then the smallest
//! one for which there are other free CPUs is *staged*: it waits on CPUs that the plan does not
//! need. There it blocks no other container, so each is staged at most once, and the loop ends.

use super::calls::Calls;
use super::plan::{Ctx, Move, Resident, Step};
use cpuset::CpuSet;

struct PendingMove {
    resident: usize,
    to: CpuSet,
    /// What the resident holds now, including CPUs that stay idle.
    holds: CpuSet,
    /// What it holds after the move, including CPUs that stay idle.
    takes: CpuSet,
    staged: bool,
}

/// The steps of these moves. No step uses the CPUs of the new container, `taken`. `None` if a ring
/// cannot be opened with the work that is left.
///
/// A staged container is placed by its own request, so no step breaks its policy.
pub(super) fn steps(
    calls: &mut Calls<'_>,
    ctx: &Ctx<'_>,
    moves: &[Move],
    taken: &CpuSet,
) -> Option<Vec<Step>> {
    let Ctx { machine, mut free, residents, limits } = *ctx;
    let pending = moves.iter().map(|planned| {
        let Resident { held, request, .. } = &residents[planned.resident];
        PendingMove {
            resident: planned.resident,
            to: planned.to,
            holds: request.footprint(machine, held),
            takes: request.footprint(machine, &planned.to),
            staged: false,
        }
    });
    let mut pending: Vec<PendingMove> = pending.collect();
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
