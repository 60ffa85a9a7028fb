//! [`Plan`]: which containers move where; and what plans are made from.

use crate::engine::Placement;
use crate::request::Request;
use cpuset::CpuSet;
use std::cmp::Reverse;
use topology::Topology;

/// The badness of a new container that is refused although enough CPUs are free. It exceeds that of
/// any placement, so a plan that admits the container wins.
pub const REFUSED: u32 = 10_000;

/// A container that runs on exclusive CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// If these are more or fewer than the request, the container does not move.
    pub held: CpuSet,
    /// The request that the container would make if it started now. The planner sets `free` and
    /// `promised`; `reuse` must be empty. In pod scope, `pod` must have the affinity that was
    /// chosen for the pod. The container does not leave it, because the planner does not know the
    /// pod's other containers.
    pub request: Request,
    pub movable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many containers may move.
    pub containers: usize,
    /// Whether a container may move to a NUMA node where it has no CPU.
    pub across_numa_nodes: bool,
    /// The cost of a CPU in a NUMA node where the container had none; any other CPU costs 1. It
    /// should exceed 1 if memory stays behind.
    pub weight_across: usize,
}

/// The node that a plan is for.
#[derive(Clone, Copy)]
pub(super) struct Ctx<'a> {
    pub(super) machine: &'a Topology,
    pub(super) free: CpuSet,
    pub(super) residents: &'a [Resident],
    pub(super) limits: &'a Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The index of the resident.
    pub resident: usize,
    pub to: CpuSet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// At least one, each of a different container, in any order.
    pub moves: Vec<Move>,
    /// The moves in an order in which no CPU ever has two owners; one or two steps for each move.
    pub steps: Vec<Step>,
    /// The placement of the new container after the moves; `None` for a plan after a departure.
    pub new_placement: Option<Placement>,
    /// The CPUs of the new container, and those that stay idle around them.
    pub taken: CpuSet,
    /// By how much the sum of all containers' badness falls.
    pub gain: u32,
    /// The number of CPUs that are new to their containers, weighted by [`Limits::weight_across`].
    pub cost: usize,
}

/// Gain, cost, number of moves.
pub(super) type Rank = (Reverse<u32>, usize, usize);

impl Plan {
    /// The lowest rank is the best.
    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.gain), self.cost, self.moves.len())
    }
}

/// A step of a plan: the container moves to CPUs that no other container has at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub resident: usize,
    pub to: CpuSet,
    /// The container only makes way for another one; a later step moves it to its planned CPUs.
    pub staged: bool,
}
