//! [`Plan`]: which containers move where, and the vocabulary around it.

use crate::engine::Placement;
use crate::request::Request;
use cpuset::CpuSet;
use std::cmp::Reverse;
use topology::Topology;

/// The badness of a newcomer that is refused although enough CPUs are free: more than any placement
/// can have, so that a plan that admits it wins.
pub const REFUSED: u32 = 10_000;

/// A container that runs on exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// As many CPUs as it requests; otherwise it does not move.
    pub held: CpuSet,
    /// What it would ask for if it started now. The planner fills in `free` and `promised`; `reuse`
    /// must be empty. In pod scope, `pod` must name the affinity chosen for the pod, which the
    /// container does not leave: the planner does not know who belongs to the same pod.
    pub request: Request,
    pub movable: bool,
}

/// What a plan may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of containers that may move.
    pub containers: usize,
    /// Whether a container may move to a NUMA node where it has no CPU.
    pub across_numa_nodes: bool,
    /// What a CPU costs that enters another NUMA node; any other costs 1. More than 1 if memory
    /// stays behind.
    pub weight_across: usize,
}

/// What a plan is made for.
#[derive(Clone, Copy)]
pub(super) struct Ctx<'a> {
    pub(super) machine: &'a Topology,
    pub(super) free: CpuSet,
    pub(super) residents: &'a [Resident],
    pub(super) limits: &'a Limits,
}

/// One container's new CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The index of the resident.
    pub resident: usize,
    pub to: CpuSet,
}

/// Moves that are worth it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// At least one, each of a different container, in no particular order.
    pub moves: Vec<Move>,
    /// The moves in an order in which no CPU ever has two owners, one or two steps for each.
    pub steps: Vec<Step>,
    /// Where the newcomer goes after the moves; `None` for a plan after a departure.
    pub newcomer: Option<Placement>,
    /// What the newcomer takes: its CPUs, and their siblings if they stay idle.
    pub taken: CpuSet,
    /// By how much the sum of all containers' badness falls.
    pub gain: u32,
    /// The number of CPUs that containers get and did not have, weighted by
    /// [`Limits::weight_across`].
    pub cost: usize,
}

/// Gain, cost, number of moves.
pub(super) type Rank = (Reverse<u32>, usize, usize);

impl Plan {
    /// The plan with the lowest rank is the best.
    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.gain), self.cost, self.moves.len())
    }
}

/// A step of a plan: the container gets CPUs that no other container has at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub resident: usize,
    pub to: CpuSet,
    /// It only makes way for another container, and a later step takes it to its CPUs of the plan.
    pub staged: bool,
}
