//! What the ledger remembers of a pod and its containers.

use super::Claim;
use super::cgroup::CgroupPath;
use super::event::Pin;
use super::model::{Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Pod, Qos};
use super::settings::Exclusivity;
use super::store::Counted;
use super::wishes::{Cpus, Terms};
use crate::cpuset::CpuSet;
use crate::placement::reserve::whole_cores;
use crate::placement::wishes::Smt;
use crate::placement::{Hint, NodeSet, Supply, Wishes};
use crate::topology::Topology;
use std::collections::BTreeMap;

/// A pod that exists.
#[derive(Debug, Clone)]
pub(super) struct PodEntry {
    /// The pod as last heard of.
    pub(super) pod: Pod,
    /// Whether the runtime told of a resize of the whole pod. Where it never does, resizes of its containers tell.
    pub(super) resized: bool,
    /// Its containers by name: one that is restarted keeps its entry, and with it its CPUs.
    pub(super) containers: BTreeMap<String, Entry>,
    /// Whether its last container was refused. Such a pod keeps nothing free for itself: two pods that wait for the
    /// same CPUs would otherwise keep each other out.
    pub(super) refused: bool,
    /// The NUMA affinity its last exclusive CPUs were chosen under, and the budget at that time. In pod scope its other
    /// containers get the same.
    pub(super) affinity: Option<(usize, Hint)>,
    /// Whether none of its containers gets CPUs of its own, whatever they ask for.
    pub(super) opted_out: bool,
    /// What of it is in the sums of all pods.
    pub(super) counted: Counted,
}

/// A container that exists, or will be restarted.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The runtime's id of the present or last instance.
    pub(super) id: ContainerId,
    /// The instance before this one. Events of it may still come, and are no news.
    pub(super) before: Option<ContainerId>,
    /// Whether its exclusive CPUs are those of the instance before, and it has not run yet: if it fails to be created they
    /// stay its name's.
    pub(super) inherited: bool,
    pub(super) kind: ContainerKind,
    pub(super) cpu: CpuRequest,
    /// CPUs that are this container's alone for the life of its pod.
    pub(super) claim: Option<CpuSet>,
    /// Whether the SMT siblings of these are kept idle for it.
    pub(super) isolated: bool,
    /// What its pod wishes for it.
    pub(super) terms: Terms,
    pub(super) life: Life,
    /// Whether an earlier instance has ended: its CPUs are no longer lent out, it will be back soon.
    pub(super) restarted: bool,
    pub(super) told: Told,
    /// The NUMA nodes that are set for its memory; `None` if none are.
    pub(super) mems: Option<NodeSet>,
    /// Whether somebody else set those, the kubelet's memory manager for one: they are left alone.
    pub(super) mems_are_others: bool,
    /// When it was created, as the runtime says.
    pub(super) created_at: Option<i64>,
    /// Who keeps others off its exclusive CPUs.
    pub(super) kept_by: Exclusivity,
    pub(super) cgroup: Option<CgroupPath>,
    /// Whether CPUs of it went offline, and it has fewer than it asks for since.
    pub(super) lost: bool,
    /// Whether its CFS quota was lifted, and nobody else has set one since: while it shares CPUs it is told its limit.
    pub(super) lifted: bool,
}

/// Where a container is in its life, as far as it matters for CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Created; its process may not run yet. An update at this point may reach only the runtime's books.
    Created {
        /// Whether an update was sent since it was created, see above: it is sent again once the process runs.
        updated: bool,
    },
    /// Its process runs.
    Running,
    /// Its process has ended.
    Stopped,
}

/// What is set for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing, by anybody.
    Nothing,
    /// These CPUs, as far as is known.
    Cpus(CpuSet),
    /// CPUs were set, and they may be others than those decided by now: whatever is decided has to be told.
    Unsure,
}

/// How a container of a pod can get exclusive CPUs within the pod's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// From the node's free CPUs and from these, as they fit best.
    Fresh(CpuSet),
    /// From these first: together with others the pod would hold more than its budget. They are the CPUs of containers
    /// of the pod that have ended; init containers, as a rule.
    Reuse(CpuSet),
    /// Not at all: the rest of the pod uses the budget up. The container has inherited the pod's own limit.
    None,
}

impl PodEntry {
    pub(super) fn new(pod: Pod) -> PodEntry {
        let containers = BTreeMap::new();
        PodEntry {
            pod,
            resized: false,
            containers,
            refused: false,
            affinity: None,
            opted_out: false,
            counted: Counted::default(),
        }
    }

    /// Takes over what an event says of the pod. Stubs (some events know little more than an id) change nothing.
    pub(super) fn refresh(&mut self, pod: Pod) {
        // The first budget told counts: later events repeat it, whatever became of it by resizes.
        let budget = self.pod.budget.or(pod.budget);
        let qos = if pod.qos == Qos::Unknown { self.pod.qos } else { pod.qos };
        let Pod { mut sandbox, mut namespace, mut name, uid, mut annotations, .. } = pod;
        if annotations.is_empty() {
            std::mem::swap(&mut annotations, &mut self.pod.annotations);
        }
        for (new, known) in [
            (&mut sandbox.0, &self.pod.sandbox.0),
            (&mut namespace, &self.pod.namespace),
            (&mut name, &self.pod.name),
        ] {
            if new.is_empty() {
                new.clone_from(known);
            }
        }
        self.pod = Pod { sandbox, uid, namespace, name, qos, budget, annotations };
    }

    /// Whether no container of the pod is alive: it is ending, or between an init container and the next.
    pub(super) fn is_quiet(&self) -> bool {
        self.containers.values().all(|entry| entry.life == Life::Stopped)
    }

    /// CPUs that the pod keeps free, by count, for containers of its own that have not been seen yet.
    ///
    /// Without this a container that comes late (after init containers, in a pod with many) could find the CPUs gone
    /// that the scheduler counted for it.
    pub(super) fn promise(&self) -> usize {
        if self.refused || self.opted_out || self.pod.qos != Qos::Guaranteed {
            return 0;
        }
        let seen: MilliCpu = self.containers.values().filter_map(Entry::counts).sum();
        self.pod.budget.map_or(0, |budget| MilliCpu(budget.0.saturating_sub(seen.0)).cpus_floor())
    }

    /// Whether and how `n` exclusive CPUs for `container` fit the pod's budget beside what its other containers hold.
    ///
    /// If its kind is known, the CPUs of init containers are the later ones' to use, with no preference for them, and
    /// those of sidecars and of the pod's other containers never are: so the kubelet. Otherwise, and for a container
    /// that comes back after others used its CPUs, what is left of the budget decides.
    ///
    /// `budget` is in CPUs. What a container has `taken` may be more than what counts: siblings that stay idle for it.
    pub(super) fn room_within(
        &self,
        budget: Option<usize>,
        container: &Container,
        n: usize,
        taken: impl Fn(&Entry) -> CpuSet,
    ) -> Room {
        let (mut running, mut kept) = (0, 0);
        let (mut ended, mut init) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for (_, entry) in self.containers.iter().filter(|(other, _)| **other != container.name) {
            match (entry.claim, entry.life, entry.kind) {
                (None, ..) => {}
                (Some(claim), Life::Stopped, kind) => {
                    kept += claim.len();
                    let to = if kind == ContainerKind::Init { &mut init } else { &mut ended };
                    *to |= taken(entry);
                }
                (Some(claim), ..) => running += claim.len(),
            }
        }
        let budget = budget.unwrap_or(usize::MAX);
        if running + n > budget {
            return Room::None;
        }
        let known = container.kind != ContainerKind::Unknown;
        if known && !self.containers.contains_key(&container.name) {
            return Room::Fresh(init);
        }
        ended |= init;
        match running + kept + n <= budget {
            true => Room::Fresh(CpuSet::EMPTY),
            false => Room::Reuse(ended),
        }
    }

    /// The whole CPUs in the pod's budget.
    pub(super) fn budget_cpus(&self) -> Option<usize> {
        self.pod.budget.map(MilliCpu::cpus_floor)
    }

    /// CPUs that the kernel keeps for containers of the pod.
    pub(super) fn kept_by_kernel(&self) -> CpuSet {
        let kept = |entry: &&Entry| entry.kept_by == Exclusivity::Kernel;
        self.containers.values().filter(kept).filter_map(|entry| entry.claim).collect()
    }

    /// Whether a container that shares names CPUs that the kernel keeps for another one of the pod.
    pub(super) fn is_in_its_own_way(&self) -> bool {
        let kept = self.kept_by_kernel();
        let named = |entry: &Entry| entry.told.cpus().filter(|_| entry.claim.is_none());
        self.containers.values().filter_map(named).any(|told| !told.is_disjoint(&kept))
    }

    /// The CPUs that are exclusive to containers of the pod which share its NUMA affinity.
    pub(super) fn held_together(&self) -> CpuSet {
        let together = |entry: &&Entry| entry.wishes().shares_affinity();
        self.containers.values().filter(together).filter_map(|entry| entry.claim).collect()
    }

    /// For how many CPUs the NUMA affinity of the pod as a whole is chosen, as far as its budget tells: it does for a
    /// Guaranteed pod, without what containers have that are placed by themselves. That of other pods is a limit.
    pub(super) fn demand(&self) -> Option<usize> {
        let budget = self.budget_cpus().filter(|_| self.pod.qos == Qos::Guaranteed)?;
        let apart = self.containers.values().filter(|entry| !entry.wishes().shares_affinity());
        let apart: usize = apart.filter_map(|entry| entry.claim).map(|claim| claim.len()).sum();
        Some(budget.saturating_sub(apart))
    }

    /// The same when `n` CPUs of a supply are asked for: at least those, and what the pod has besides. `None` if its containers
    /// have an affinity each.
    pub(super) fn demand_with(&self, supply: &Supply, n: usize) -> Option<usize> {
        let beside = (self.held_together() - supply.free - supply.reusable).len();
        match self.pod.qos {
            Qos::Guaranteed => Some(self.demand()?.max(beside + n)),
            _ => Some(beside + n),
        }
    }

    /// Takes `cpus` out of the claims of all containers but `name`; of whole cores, where siblings stay idle.
    pub(super) fn hand_over(&mut self, topology: &Topology, name: &str, cpus: CpuSet) {
        for (_, entry) in self.containers.iter_mut().filter(|(other, _)| *other != name) {
            let cut = if entry.isolated { whole_cores(topology, &cpus) } else { cpus };
            entry.claim = entry.claim.map(|claim| claim - cut).filter(|rest| !rest.is_empty());
        }
    }
}

impl Entry {
    pub(super) fn new(container: &Container, life: Life, kept_by: Exclusivity) -> Entry {
        Entry {
            id: container.id.clone(),
            before: None,
            inherited: false,
            kind: container.kind,
            cpu: container.cpu,
            claim: None,
            isolated: false,
            terms: Terms::default(),
            life,
            restarted: false,
            told: container.cpus.map_or(Told::Nothing, Told::Cpus),
            mems: container.mems,
            mems_are_others: container.mems.is_some(),
            created_at: container.created_at,
            kept_by,
            cgroup: container.cgroup.clone(),
            lost: false,
            lifted: false,
        }
    }

    /// A container that has ended and kept its CPUs.
    pub(super) fn ended(claim: &Claim, isolated: bool) -> Entry {
        Entry {
            id: claim.id.clone(),
            before: None,
            inherited: false,
            kind: ContainerKind::Unknown,
            cpu: claim.cpu,
            claim: Some(claim.cpus),
            isolated,
            terms: Terms::default(),
            life: Life::Stopped,
            restarted: false,
            told: Told::Nothing,
            mems: None,
            mems_are_others: false,
            created_at: None,
            kept_by: Exclusivity::Runtime,
            cgroup: None,
            lost: false,
            lifted: false,
        }
    }

    /// What of its pod's budget is its own. Of one that was found with exclusive CPUs no amount may be known, because it
    /// has ended or has more than shares can tell.
    fn counts(&self) -> Option<MilliCpu> {
        let whole = |claim: CpuSet| MilliCpu(claim.len() as u64 * 1000);
        self.cpu.amount().or_else(|| self.claim.map(whole))
    }

    /// It is gone. If it was never created its name goes on as the instance before, which this returns: ended, with the
    /// CPUs it had.
    pub(super) fn fall_back_to_before(&mut self) -> Option<ContainerId> {
        self.id = self.before.take().filter(|_| self.inherited)?;
        (self.life, self.inherited, self.told) = (Life::Stopped, false, Told::Nothing);
        Some(self.id.clone())
    }

    /// How many exclusive CPUs it asks for; `None` if none.
    pub(super) fn asks(&self, qos: Qos) -> Option<usize> {
        self.asks_with(qos, &self.cpu)
    }

    /// How many it asks for with this request. Who has some goes on by what it requests, whatever its pod may wish for by
    /// now.
    pub(super) fn asks_with(&self, qos: Qos, cpu: &CpuRequest) -> Option<usize> {
        let by_claim = self.claim.map(|_| Cpus::Exclusive);
        Terms { cpus: self.terms.cpus.or(by_claim), ..self.terms }.exclusive_cpus(qos, cpu)
    }

    /// What its CPUs were chosen by, and others beside them have to be.
    ///
    /// That may be more or less than is wished: who found no idle siblings when it was taken over goes on without.
    pub(super) fn wishes(&self) -> Wishes {
        let smt = match self.terms.wishes.smt {
            _ if self.isolated => Some(Smt::Isolate),
            Some(Smt::Isolate) if self.claim.is_some() => None,
            smt => smt,
        };
        Wishes { smt, ..self.terms.wishes }
    }

    /// Takes note of what the runtime is told to set.
    pub(super) fn hear(&mut self, pin: &Pin) {
        self.told = Told::Cpus(pin.cpus());
        self.mems = pin.mems().or(self.mems);
        self.lifted |= pin.is_exclusive();
    }

    /// Whether its exclusive CPUs are the shared pool's for the time being.
    ///
    /// They are when nothing of the pod runs, which is the moment before it ends: so the CPUs come back with the last
    /// answer that can carry updates. Not for a container that has already come back once: shared containers would be
    /// moved to and fro by each of its crashes.
    pub(super) fn is_lent(&self, pod_is_quiet: bool) -> bool {
        pod_is_quiet && self.life == Life::Stopped && !self.restarted
    }
}

impl Told {
    /// The CPUs that are set, where they are known.
    pub(super) fn cpus(self) -> Option<CpuSet> {
        match self {
            Told::Cpus(cpus) => Some(cpus),
            Told::Nothing | Told::Unsure => None,
        }
    }

    /// What is set has to be told again. Where nothing is there is nothing to repeat.
    pub(super) fn doubt(&mut self) {
        if *self != Told::Nothing {
            *self = Told::Unsure;
        }
    }
}

impl CpuRequest {
    /// What it is after a change that names only what changes.
    ///
    /// Shares cannot tell requests from 256 CPUs on: beside such a limit none means as much as that, not the old one.
    pub(super) fn changed_by(self, wanted: CpuRequest) -> CpuRequest {
        let untold = wanted.limit.is_some_and(|limit| limit >= MilliCpu::SHARES_END);
        CpuRequest {
            request: if untold { wanted.request } else { wanted.request.or(self.request) },
            limit: wanted.limit.or(self.limit),
        }
    }

    /// The amount asked for, where request and limit do not differ.
    ///
    /// One of them suffices: without CFS quotas the kubelet sends no limit, and the limit of an exclusive container has
    /// been lifted.
    pub(super) fn amount(&self) -> Option<MilliCpu> {
        match (self.request, self.limit) {
            (Some(request), Some(limit)) => (request == limit).then_some(limit),
            (request, limit) => limit.or(request),
        }
    }
}
