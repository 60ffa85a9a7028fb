//! [`Request`]: everything that an engine's answer depends on, but the machine; [`Engine`]: what answers it.

use super::answer::Placement;
use super::kubelet::hints::Hint;
use super::rejection::{NotEnough, Rejection};
use super::settings::Settings;
use super::wishes::Wishes;
use crate::cpuset::CpuSet;
use crate::topology::Topology;
use std::fmt;

/// A request for exclusive CPUs: built once before the decision, and kept to explain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How many CPUs are asked for.
    pub cpus: usize,
    /// CPUs that are exclusive to no other container. Reserved and offline ones may be among them;
    /// they are never given out. CPUs that the container itself holds are in it.
    pub free: CpuSet,
    /// CPUs of ended containers of the pod.
    pub reuse: Reuse,
    /// How many CPUs of `free` are promised to other pods.
    pub promised: usize,
    /// In pod scope (KEP-693), what the NUMA affinity of the whole pod is chosen by; `None` in
    /// container scope.
    pub pod: Option<PodDemand>,
    /// What the pod wishes for the container.
    pub wishes: Wishes,
    /// The node's settings, with the wishes applied ([`Wishes::settings`]).
    pub settings: Settings,
}

/// How a container uses the CPUs of ended containers of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Beside the free ones, as they fit best. The CPUs of init containers, as a rule.
    Beside(CpuSet),
    /// Before the free ones: together with others the pod would hold more than its budget.
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

/// What the NUMA affinity of a pod is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDemand {
    /// For how many CPUs.
    pub cpus: usize,
    /// CPUs that containers of the pod hold already, and whose NUMA nodes have to be in it.
    pub held: CpuSet,
    /// The affinity, if an earlier container of the pod has had it chosen for as many CPUs.
    pub chosen: Option<Hint>,
}

/// What an engine has weighed for a request, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Weighed {
    /// What decided, a sentence each.
    pub reasons: Vec<String>,
    /// Sets of NUMA nodes that had room, the best first; empty where they have no say or are too
    /// many to list.
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
    /// Whether all that was asked for had room in it.
    pub fits: bool,
    /// How many CPUs were taken of it.
    pub taken: usize,
}

/// Decides which CPUs a container gets.
///
/// An engine keeps no state. Whatever it answers is checked by [`place`] and [`resize`]: a mistake
/// of an engine gives no container a CPU that it may not have.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Chooses the CPUs of a container that starts.
    ///
    /// # Errors
    /// Why there are none.
    fn place(&self, machine: &Topology, request: &Request) -> Result<Placement, Rejection>;

    /// The CPUs of a container that holds `held` and runs, once it has as many as it asks for.
    ///
    /// # Errors
    /// Why it cannot have so many.
    fn resize(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
    ) -> Result<CpuSet, Rejection>;

    /// The CPUs of a container that has lost some and keeps `held`, once it has as many as it asks
    /// for; `None` if there are not enough. CPUs of `broken` are of cores of which a part is
    /// offline.
    fn complete(
        &self,
        machine: &Topology,
        request: &Request,
        held: &CpuSet,
        broken: &CpuSet,
    ) -> Option<CpuSet>;

    /// What the answer to a request was made from; `placement` is that answer, `None` if it was
    /// refused.
    fn explain(
        &self,
        machine: &Topology,
        request: &Request,
        placement: Option<&Placement>,
    ) -> Weighed;
}

/// What `engine` answers to the request of a container that starts, if that is legal and keeps what
/// is promised to other pods.
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

    /// Whether an answer may be given to a container that holds `held`.
    fn check(&self, machine: &Topology, cpus: &CpuSet, held: &CpuSet) -> Result<(), NotEnough> {
        let supply = || self.free | self.reuse.cpus() | *held;
        let legal = (cpus.is_subset(&self.free) || cpus.is_subset(&supply()))
            && cpus.is_subset(&machine.online())
            && cpus.is_disjoint(&self.settings.reserved);
        debug_assert!(legal && cpus.len() == self.cpus, "{cpus} for {self:?}");
        if !legal || cpus.len() != self.cpus {
            return Err(NotEnough { requested: self.cpus, available: (supply() & *cpus).len() });
        }
        // What the kubelet would say of the request as such comes first, so promises are looked at
        // last.
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
