//! [`Request`]: everything that an engine's answer depends on beside the machine; [`Engine`]:
//! answers it.

use super::answer::Placement;
use super::kubelet::hints::Hint;
use super::rejection::{NotEnough, Rejection};
use super::settings::Settings;
use super::wishes::Wishes;
use crate::cpuset::CpuSet;
use crate::topology::Topology;
use std::fmt;

/// A request for exclusive CPUs. The ledger builds it once before the decision, and keeps it to
/// explain the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How many CPUs are asked for.
    pub cpus: usize,
    /// CPUs that are exclusive to no other container, those of the container itself included.
    /// Reserved and offline ones may be among them; an engine never gives them out.
    pub free: CpuSet,
    /// CPUs of ended containers of the pod.
    pub reuse: Reuse,
    /// How many CPUs of `free` are promised to other pods.
    pub promised: usize,
    /// In pod scope (KEP-693), what the NUMA affinity of the pod follows from; `None` in container
    /// scope.
    pub pod: Option<PodDemand>,
    /// What the pod wishes for the container.
    pub wishes: Wishes,
    /// The node's settings, with the wishes applied ([`Wishes::settings`]).
    pub settings: Settings,
}

/// How a container uses the CPUs of ended containers of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Beside the free ones, as they fit best. Mostly the CPUs of init containers.
    Beside(CpuSet),
    /// Before the free ones, as otherwise the pod would hold more than its budget.
    First(CpuSet),
}

impl Reuse {
    /// The CPUs.
    pub fn cpus(&self) -> CpuSet {
        match self {
            Reuse::Beside(cpus) | Reuse::First(cpus) => *cpus,
        }
    }
}

/// What the NUMA affinity of a pod follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDemand {
    /// For how many CPUs.
    pub cpus: usize,
    /// CPUs that containers of the pod hold. Their NUMA nodes have to be in it.
    pub held: CpuSet,
    /// The affinity, if the engine has chosen it for as many CPUs with an earlier container of the
    /// pod.
    pub chosen: Option<Hint>,
}

/// What an engine has considered for a request, for explanations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Weighed {
    /// What decided, a sentence each.
    pub reasons: Vec<String>,
    /// Sets of NUMA nodes that had room, the best first; empty if nodes did not matter or the sets
    /// are too many to list.
    pub numa: Vec<NumaCandidate>,
    /// How many of these sets there were, and how many could not be better on the empty machine;
    /// `None` without a list.
    pub numa_sets: Option<(usize, usize)>,
    /// The uncore caches.
    pub uncores: Vec<CacheCandidate>,
}

/// A set of NUMA nodes that had room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaCandidate {
    /// The nodes.
    pub hint: Hint,
    /// CPUs that were free in them.
    pub free: usize,
    /// Whether it was taken.
    pub chosen: bool,
}

/// An uncore cache, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheCandidate {
    /// Its number.
    pub id: usize,
    /// CPUs that were free in it.
    pub free: CpuSet,
    /// Whether the whole request had room in it.
    pub fits: bool,
    /// How many CPUs were taken of it.
    pub taken: usize,
}

/// Decides which CPUs a container gets.
///
/// An engine keeps no state. [`place`] and [`resize`] check its answers: a mistake of an engine
/// gives no container a CPU that it may not have.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Chooses the CPUs of a container that starts.
    ///
    /// # Errors
    /// Why the container gets none.
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection>;

    /// The CPUs of a running container that holds `held`, after a resize to what it asks for.
    ///
    /// # Errors
    /// Why it cannot have so many.
    fn resize(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
    ) -> Result<CpuSet, Rejection>;

    /// The CPUs of a container that has lost some, keeps `held` and gets what it asks for; `None`
    /// if there are not enough. `broken` are the CPUs of cores of which a part is offline.
    fn complete(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
        broken: &CpuSet,
    ) -> Option<CpuSet>;

    /// What the engine has considered for a request; `placement` was its answer, `None` for a
    /// refusal.
    fn explain(
        &self,
        machine: &Topology,
        request: &Request,
        placement: Option<&Placement>,
    ) -> Weighed;
}

/// The answer of `engine` for a container that starts, if it is legal and keeps what is promised to
/// other pods.
///
/// # Errors
/// The engine's own, or [`NotEnough`].
pub fn place(
    engine: &dyn Engine,
    machine: &Topology,
    request: &Request,
) -> Result<Placement, Rejection> {
    let placement = engine.place(machine, request)?;
    request.check(machine, &placement.cpus, &CpuSet::EMPTY)?;
    Ok(placement)
}

/// The same for a container that runs on `held`.
///
/// # Errors
/// As there.
pub fn resize(
    engine: &dyn Engine,
    machine: &Topology,
    request: &Request,
    held: &CpuSet,
) -> Result<CpuSet, Rejection> {
    let cpus = engine.resize(machine, request, held)?;
    request.check(machine, &cpus, held)?;
    Ok(cpus)
}

impl Request {
    /// These CPUs, with their SMT siblings if they are to stay idle (`smt: isolate`).
    pub fn footprint(&self, machine: &Topology, cpus: &CpuSet) -> CpuSet {
        self.wishes.footprint(machine, &self.settings.reserved, cpus)
    }

    /// Checks an answer for a container that holds `held`.
    fn check(&self, machine: &Topology, cpus: &CpuSet, held: &CpuSet) -> Result<(), NotEnough> {
        let supply = || self.free | self.reuse.cpus() | *held;
        let legal = (cpus.is_subset(&self.free) || cpus.is_subset(&supply()))
            && cpus.is_subset(&machine.online())
            && cpus.is_disjoint(&self.settings.reserved);
        debug_assert!(legal && cpus.len() == self.cpus, "{cpus} for {self:?}");
        if !legal || cpus.len() != self.cpus {
            return Err(NotEnough { requested: self.cpus, available: (supply() & *cpus).len() });
        }
        // The kubelet's own refusals come first, so the check of promises is the last one.
        if self.promised == 0 {
            return Ok(());
        }
        let held = self.footprint(machine, held);
        let fresh = self.free - held;
        let requested = (self.footprint(machine, cpus) & fresh).len();
        let available = fresh.len().saturating_sub(self.promised);
        match requested <= available {
            true => Ok(()),
            false => Err(NotEnough { requested, available }),
        }
    }
}
