//! [`Placement`] and [`Supply`]: what a container gets, and from what.

use super::kubelet::hints::Hint;
use crate::cpuset::CpuSet;

/// What a container gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Its exclusive CPUs, exactly as many as requested.
    pub cpus: CpuSet,
    /// The NUMA affinity they were chosen under.
    pub hint: Hint,
}

/// What a container can get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Supply {
    /// CPUs that are exclusive to no container. Reserved and offline ones may be among them; an
    /// allocation never uses them.
    pub free: CpuSet,
    /// CPUs that were exclusive to init containers of the same pod, which no longer need them.
    pub reusable: CpuSet,
}
