//! [`PodEntry`]: what the ledger keeps of a pod.

use super::entry::{ContainerEntry, Phase};
use crate::claim::Claim;
use crate::devices::GivenDevices;
use crate::model::{Container, ContainerKind, CpuRequest, MilliCpu, Pod, PoolKind, Qos};
use crate::node::Node;
use crate::note::Subject;
use crate::policy::Mechanism;
use crate::terms::Terms;
use cpuset::{CgroupPath, CpuSet};
use placement::Hint;
use std::collections::BTreeMap;
use topology::Topology;

#[derive(Debug, Clone)]
pub(crate) struct PodEntry {
    pub(crate) pod: Pod,
    /// Whether the runtime has reported a resize of the whole pod. Without that the ledger derives
    /// the budget from resizes of its containers.
    pub(crate) resized: bool,
    /// Its containers by name: a restarted one keeps its entry, and so its CPUs.
    pub(super) containers: BTreeMap<String, ContainerEntry>,
    /// Whether its last container was refused, or is gone. Such a pod keeps no CPUs free: otherwise two pods
    /// that wait for the same CPUs would block each other.
    pub(crate) refused: bool,
    /// The NUMA affinity its last exclusive CPUs were chosen under, and the budget at that time. In
    /// pod scope its other containers get the same.
    pub(crate) affinity: Option<(usize, Hint)>,
    /// Whether all of its containers share CPUs, whatever they ask for.
    pub(crate) opted_out: bool,
    /// Which CPUs those share.
    pub(crate) pool: PoolKind,
    /// Whether the pod has resources of its own (KEP-2837): then a container without resources
    /// arrives with the amount of the pod.
    pub(crate) has_resources: bool,
    /// The devices that the kubelet has given to its containers, as far as it has said so.
    pub(crate) given: BTreeMap<String, GivenDevices>,
}

/// How a container of a pod can get exclusive CPUs within the pod's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetFit {
    /// From the node's free CPUs and from these, as they fit best.
    Fresh(CpuSet),
    /// From these first, as otherwise the pod would hold more than its budget. They are the CPUs of
    /// ended containers of the pod, mostly init containers.
    Reuse(CpuSet),
    /// Not at all: the pod's other containers hold too much of the budget.
    None,
}

impl PodEntry {
    pub(super) fn new(pod: Pod) -> PodEntry {
        PodEntry {
            pod,
            resized: false,
            containers: BTreeMap::new(),
            refused: false,
            affinity: None,
            opted_out: false,
            pool: PoolKind::General,
            has_resources: false,
            given: BTreeMap::new(),
        }
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = (&String, &ContainerEntry)> {
        self.containers.iter()
    }

    pub(crate) fn container(&self, name: &str) -> Option<&ContainerEntry> {
        self.containers.get(name)
    }

    pub(crate) fn container_mut(&mut self, name: &str) -> Option<&mut ContainerEntry> {
        self.containers.get_mut(name)
    }

    pub(crate) fn containers_mut(
        &mut self,
    ) -> impl Iterator<Item = (&String, &mut ContainerEntry)> {
        self.containers.iter_mut()
    }

    /// Finds the NUMA nodes of its containers' devices again.
    pub(crate) fn locate_devices(&mut self, node: &Node) {
        let located: Vec<Terms> = self
            .containers
            .iter()
            .map(|(name, entry)| entry.terms.near(node, self, name, &entry.devices))
            .collect();
        for (entry, terms) in self.containers.values_mut().zip(located) {
            entry.terms = terms;
        }
    }

    pub(crate) fn subject(&self, container: &Container) -> Subject {
        Subject {
            namespace: self.pod.namespace.clone(),
            pod: self.pod.name.clone(),
            container: container.name.clone(),
            id: container.id.clone(),
        }
    }

    /// The claims of its containers, for the checkpoint.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        self.containers.iter().filter_map(|(name, entry)| {
            Some(Claim {
                pod_uid: self.pod.uid.clone(),
                namespace: self.pod.namespace.clone(),
                pod: self.pod.name.clone(),
                container: name.clone(),
                id: entry.id.clone(),
                cpus: entry.claim()?,
                margin: entry.margin(),
                mixed: entry.is_mixed(),
                cpu: entry.cpu,
            })
        })
    }

    /// Whether this is the claim of one of its containers.
    pub(super) fn has_claim(&self, name: &str, entry: &ContainerEntry, claim: &Claim) -> bool {
        let Claim { pod_uid, namespace, pod, container, id, cpus, margin, mixed, cpu } = claim;
        Some(*cpus) == entry.claim()
            && *id == entry.id
            && *cpu == entry.cpu
            && (*margin, *mixed) == (entry.margin(), entry.is_mixed())
            && container == name
            && (pod_uid, namespace, pod) == (&self.pod.uid, &self.pod.namespace, &self.pod.name)
    }

    /// Takes over what an event says of the pod; empty parts change nothing.
    pub(super) fn refresh(&mut self, pod: Pod) {
        // The first budget counts: later events repeat it and ignore resizes.
        let budget = self.pod.budget.or(pod.budget);
        let qos = if pod.qos == Qos::Unknown { self.pod.qos } else { pod.qos };
        let pool = if pod.cgroup.is_none() { self.pod.pool } else { pod.pool };
        let cgroup = pod.cgroup.or(self.pod.cgroup.take());
        let Pod { mut sandbox, mut namespace, mut name, uid, mut annotations, .. } = pod;
        if annotations.is_empty() {
            annotations = std::mem::take(&mut self.pod.annotations);
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
        self.pod = Pod { sandbox, uid, namespace, name, qos, pool, budget, annotations, cgroup };
    }

    /// Whether an event's description of the pod changes neither its wishes nor their bounds.
    pub(crate) fn asks_as(&self, pod: &Pod) -> bool {
        (pod.annotations.is_empty() || pod.annotations == self.pod.annotations)
            && (pod.namespace.is_empty() || pod.namespace == self.pod.namespace)
            && (pod.cgroup.is_none() || pod.pool == self.pod.pool)
    }

    /// Whether this amount can be the whole pod's.
    fn is_whole(&self, kind: ContainerKind, cpu: &CpuRequest) -> bool {
        let amount = cpu.amount().filter(|_| self.pod.qos == Qos::Guaranteed);
        amount.is_some() && amount == self.pod.budget && kind != ContainerKind::Init
    }

    /// Records whether the pod has resources of its own, as its running containers show: one asks
    /// for the amount of the whole pod, and another one runs beside it. An init container ends
    /// before the next one runs.
    ///
    /// If all of them hold exclusive CPUs, the budget is older than a resize.
    pub(crate) fn detect_resources(&mut self) {
        let asks = |entry: &&ContainerEntry| entry.cpu.amount() > Some(MilliCpu(0));
        let running = || {
            let entries = self.containers.values();
            entries.filter(|entry| entry.phase() == Phase::Running).filter(asks)
        };
        let shares = running().any(|entry| entry.claim().is_none());
        let whole = || running().any(|entry| self.is_whole(entry.kind, &entry.cpu));
        self.has_resources |= shares && whole() && running().count() > 1;
    }

    /// Records the end of a container.
    ///
    /// With its last container the pod is ending, or between an init container and the next. The
    /// answer to this event is the last one before the pod's end that can carry updates, so the
    /// pool gets the CPUs now.
    pub(crate) fn end(&mut self, name: &str) {
        let Some(entry) = self.containers.get_mut(name) else { return };
        entry.end();
        self.lend_if_quiet();
    }

    /// If no container of the pod is alive, lends the CPUs of all that were never restarted.
    pub(crate) fn lend_if_quiet(&mut self) {
        if !self.containers.values().any(ContainerEntry::is_alive) {
            for entry in self.containers.values_mut().filter(|entry| !entry.was_restarted()) {
                entry.lend();
            }
        }
    }

    /// A quiet period has ended: lends the CPUs of containers that have not come back since the
    /// last one.
    pub(crate) fn quiet_period(&mut self) {
        for entry in self.containers.values_mut().filter(|entry| !entry.is_alive()) {
            entry.stay_away();
        }
    }

    /// Whether none of its containers has an instance. It may have ended, or be between two tries
    /// to create one.
    pub(super) fn is_deserted(&self) -> bool {
        self.containers.values().all(|entry| entry.is_removed() || entry.is_unlisted())
    }

    /// Whether the runtime has removed all instances of its containers.
    pub(crate) fn is_empty(&self) -> bool {
        self.containers.values().all(ContainerEntry::is_removed)
    }

    /// How many CPUs the pod keeps free for its containers that no event has named yet.
    ///
    /// Otherwise another pod could get the CPUs that the scheduler counted for a late container,
    /// such as one after init containers.
    pub(crate) fn promise(&self) -> usize {
        if self.refused || self.opted_out || self.has_resources || self.pod.qos != Qos::Guaranteed {
            return 0;
        }
        let seen: MilliCpu = self.containers.values().filter_map(ContainerEntry::counts).sum();
        self.pod.budget.map_or(0, |budget| MilliCpu(budget.0.saturating_sub(seen.0)).cpus_floor())
    }

    /// Whether and how `n` exclusive CPUs for `container` fit the pod's budget, beside those of its
    /// other containers.
    ///
    /// If its kind is known, a later container may use the CPUs of init containers, without
    /// preferring them, and never those of sidecars and other containers: so the kubelet.
    /// Otherwise, and for a container that comes back after others have used its CPUs, the rest of
    /// the budget decides. In a pod with resources of its own, whose containers can ask for more
    /// than it has, those of an ended container wait for its return.
    ///
    /// `budget` is in CPUs. What a container has `taken` includes idle CPUs, which do not
    /// count.
    pub(crate) fn budget_fit(
        &self,
        budget: Option<usize>,
        container: &Container,
        n: usize,
        taken: impl Fn(&ContainerEntry) -> CpuSet,
    ) -> BudgetFit {
        let (mut running, mut kept) = (0, 0);
        let (mut ended, mut init) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for (_, entry) in self.containers.iter().filter(|(other, _)| **other != container.name) {
            match (entry.claim(), entry.phase(), entry.kind) {
                (None, ..) => {}
                (Some(claim), Phase::Ended, ContainerKind::Init) => {
                    kept += claim.len();
                    init |= taken(entry);
                }
                (Some(claim), Phase::Ended, _) if !self.has_resources => {
                    kept += claim.len();
                    ended |= taken(entry);
                }
                (Some(claim), ..) => running += claim.len(),
            }
        }
        let mut budget = budget.unwrap_or(usize::MAX);
        // With nothing else running, the budget is older than a resize that came before the
        // container: the scheduler has counted what it asks for.
        // With a budget of zero no container of the pod is to have exclusive CPUs.
        let any = self.pod.budget != Some(MilliCpu(0));
        if running == 0 && any && self.pod.qos == Qos::Guaranteed {
            budget = budget.max(n);
        }
        if running + n > budget {
            return BudgetFit::None;
        }
        let known = container.kind != ContainerKind::Unknown;
        if known && !self.containers.contains_key(&container.name) {
            return BudgetFit::Fresh(init);
        }
        ended |= init;
        if running + kept + n <= budget {
            BudgetFit::Fresh(CpuSet::EMPTY)
        } else {
            BudgetFit::Reuse(ended)
        }
    }

    /// Why a new container that requests `n` CPUs shares CPUs, for people; `None` if no exclusive
    /// CPUs are for this pod.
    pub(crate) fn without_room(&self, n: usize) -> Option<String> {
        let budget = self.budget_cpus().filter(|budget| *budget > 0)?;
        let held: CpuSet = self.containers.values().filter_map(ContainerEntry::claim).collect();
        let others = format!("other containers of the pod hold {}", wording::cpus(held));
        Some(if n > budget {
            format!(
                "it requests {n} CPUs of a pod that had {budget} when its sandbox was created, and {others}"
            )
        } else {
            format!(
                "it requests {n} of the {budget} CPUs of its pod, as does a container without \
                 resources in a pod that has resources of its own, and {others}"
            )
        })
    }

    /// Makes the budget as large as the exclusive CPUs that one of its containers gets.
    pub(crate) fn raise_budget(&mut self, cpus: &CpuSet) {
        let needed = MilliCpu(cpus.len() as u64 * 1000);
        self.pod.budget = self.pod.budget.map(|budget| budget.max(needed));
    }

    pub(crate) fn budget_cpus(&self) -> Option<usize> {
        self.pod.budget.map(MilliCpu::cpus_floor)
    }

    pub(crate) fn has_exclusive(&self) -> bool {
        self.containers.values().any(|entry| entry.claim().is_some())
    }

    /// The exclusive CPUs of its containers that its other containers leave out of their own
    /// cpusets, as no cgroup above them does that: what they are set to, by the runtime and by
    /// groups, and what the verifier accepts, follows from this alone.
    ///
    /// Lent CPUs are in the shared pool. A partition keeps its own also then: the kernel makes none
    /// of CPUs that a sibling names.
    pub(crate) fn kept_from_siblings(&self) -> CpuSet {
        let is_kept = |entry: &&ContainerEntry| match entry.enforced_by {
            Mechanism::Runtime => false,
            Mechanism::Groups => !entry.is_lent(),
            Mechanism::Partitions => true,
        };
        self.containers.values().filter(is_kept).filter_map(ContainerEntry::claim).collect()
    }

    /// The CPUs that are exclusive to containers of the pod which share its NUMA affinity.
    pub(crate) fn held_together(&self) -> CpuSet {
        let together = |entry: &&ContainerEntry| entry.wishes().shares_affinity();
        self.containers.values().filter(together).filter_map(ContainerEntry::claim).collect()
    }

    /// For how many CPUs the engine chooses the NUMA affinity of the whole pod: the budget of a
    /// Guaranteed pod, without containers that are placed by themselves. `None` for other pods,
    /// whose budget is a limit.
    pub(crate) fn demand(&self) -> Option<usize> {
        let budget = self.budget_cpus().filter(|_| self.pod.qos == Qos::Guaranteed)?;
        let apart = self.containers.values().filter(|entry| !entry.wishes().shares_affinity());
        let apart: usize = apart.filter_map(ContainerEntry::claim).map(|claim| claim.len()).sum();
        Some(budget.saturating_sub(apart))
    }

    /// The same for a request of `n` CPUs of a supply: at least those and what the pod has beside
    /// the supply. `None` if each container has an affinity of its own.
    pub(crate) fn demand_with(&self, supply: &CpuSet, n: usize) -> Option<usize> {
        let beside = (self.held_together() - *supply).len();
        match self.pod.qos {
            Qos::Guaranteed => Some(self.demand()?.max(beside + n)),
            _ => Some(beside + n),
        }
    }

    /// Takes `cpus` out of the claims of all containers but `name`; from claims with idle CPUs only
    /// whole cores or caches.
    pub(crate) fn hand_over(&mut self, topology: &Topology, name: &str, cpus: CpuSet) {
        for (_, entry) in self.containers.iter_mut().filter(|(other, _)| *other != name) {
            let cut = entry.margin().around(topology, &cpus);
            entry.hand_over(cut);
        }
    }

    /// Its cgroup, as the runtime reports it, or the parent of a container's.
    pub(crate) fn group(&self) -> Option<CgroupPath> {
        let of_container = |entry: &ContainerEntry| entry.cgroup.as_ref()?.parent();
        self.pod.cgroup.clone().or_else(|| self.containers.values().find_map(of_container))
    }

    /// Whether its CFS quota has to be lifted, as the kubelet does: with any exclusive container,
    /// or, in a pod with resources of its own, if all containers are exclusive. Otherwise the quota
    /// is the only limit that the pod has: each container that inherits it may use all of it.
    ///
    /// A container that has ended counts until it has stayed away for a while, so that one which
    /// crashes and returns does not have the quota written each time.
    pub(crate) fn lifts_quota(&self) -> bool {
        let is_exclusive = |entry: &ContainerEntry| entry.claim().is_some();
        let mut present = self.containers.values().filter(|entry| !entry.stays_away());
        self.containers.values().any(|entry| entry.is_alive() && is_exclusive(entry))
            && (!self.has_resources || present.all(is_exclusive))
    }
}
