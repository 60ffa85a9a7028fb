//! [`Placement`] and [`Supply`]: what a container is given, and what of.

use super::kubelet::hints::Hint;
use crate::cpuset::CpuSet;

/// What a container is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Its exclusive CPUs, exactly as many as requested.
    pub cpus: CpuSet,
    /// The NUMA affinity they were chosen under.
    pub hint: Hint,
}

/// What a container can be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Supply {
    /// CPUs that are exclusive to no container. Reserved and offline ones may be among them; they
    /// are never given out.
    pub free: CpuSet,
    /// CPUs that init containers of the same pod had to themselves and no longer need.
    pub reusable: CpuSet,
}
