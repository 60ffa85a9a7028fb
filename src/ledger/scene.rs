//! What was known when exclusive CPUs were asked for: enough to explain the decision when somebody wants to know, and not
//! a word of the explanation itself.

use super::pods::Room;
use crate::cpuset::CpuSet;
use crate::placement::{self, Rejection, Wishes};

/// The node as one request for exclusive CPUs found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scene {
    /// How many CPUs were asked for.
    pub asked: usize,
    /// CPUs that were free, with those that the container held already.
    pub free: CpuSet,
    /// CPUs that ended containers of the pod had left behind for it.
    pub reusable: CpuSet,
    /// In pod scope, the number of CPUs for which the pod's NUMA affinity is chosen; `None` in container scope.
    pub pod: Option<usize>,
    /// What the pod wished for it.
    pub wishes: Wishes,
    /// The settings it was decided by, which may be others by now, with what the pod wished for.
    pub placement: placement::Settings,
}

/// A request that cannot be met, and how the node was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) rejection: Rejection,
    /// `None` if it did not come to choosing CPUs.
    pub(super) scene: Option<Box<Scene>>,
}

impl Room {
    /// CPUs that the pod can use again.
    pub(super) fn reusable(self) -> CpuSet {
        match self {
            Room::Fresh(cpus) | Room::Reuse(cpus) => cpus,
            Room::None => CpuSet::EMPTY,
        }
    }
}
