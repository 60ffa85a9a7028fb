//! [`Engine`]: the interface of the algorithms that answer requests, and the types of the answers.

use super::hint::Hint;
use super::rejection::Rejection;
use super::request::Request;
use cpuset::CpuSet;
use topology::Topology;

/// Decides which CPUs a container gets. The settings of a request choose the engine
/// ([`EngineKind`](super::EngineKind)).
///
/// An engine keeps no state. [`place`](super::place()) checks its answers, so that a mistake of an
/// engine gives no container a CPU that it may not have.
pub trait Engine {
    /// Chooses the CPUs of a container that starts.
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection>;

    /// Lists what the engine considered for a request to [`place`](Engine::place). `placement` was
    /// its answer; `None` if it refused.
    fn explain(
        &self,
        machine: &Topology,
        request: &Request,
        placement: Option<&Placement>,
    ) -> Weighed;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Exactly as many exclusive CPUs as requested.
    pub cpus: CpuSet,
    /// The NUMA affinity that the CPUs were chosen under.
    pub hint: Hint,
}

/// What an engine considered for a request, for explanations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Weighed {
    /// One sentence for each rule that decided.
    pub reasons: Vec<String>,
    /// Sets of NUMA nodes that had room, the best first. Empty if nodes did not matter or the sets
    /// were too many to list.
    pub numa: Vec<NumaCandidate>,
    /// How many of these sets there were, and how many of them were as good as the best on the
    /// empty machine; `None` without a list.
    pub numa_sets: Option<(usize, usize)>,
    pub uncores: Vec<CacheCandidate>,
}

/// A set of NUMA nodes that had room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaCandidate {
    pub hint: Hint,
    /// The number of free CPUs in these nodes.
    pub free: usize,
    pub chosen: bool,
}

/// An uncore cache at the time of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheCandidate {
    pub id: usize,
    pub free: CpuSet,
    /// Whether the cache had room for the whole request.
    pub fits: bool,
    /// The number of CPUs that the placement took from this cache.
    pub taken: usize,
}
