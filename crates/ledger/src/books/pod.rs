//! [`PodEntry`]: what the books have of a pod.

use super::entry::{ContainerEntry, Phase};
use crate::claim::{Claim, MemoryClaim};
use crate::device::{Device, GivenDevices};
use crate::model::{
    Container, ContainerId, ContainerKind, CpuRequest, MilliCpu, Pod, PoolKind, Qos,
};
use crate::note::Subject;
use crate::policy::Mechanism;
use cpuset::{CgroupPath, CpuSet};
use placement::cores::{CoreSizes, only_whole_cores};
use placement::memory_manager::{Amounts, NodeMemoryClaim};
use placement::pod_options::Margin;
use placement::{Hint, Reuse};
use std::collections::BTreeMap;
use topology::{Domain, Topology};

#[derive(Debug, Clone)]
pub(crate) struct PodEntry {
    pub(crate) pod: Pod,
    /// Whether the runtime has reported a resize of the whole pod. Otherwise the ledger derives the
    /// budget from resizes of its containers.
    pub(crate) resized: bool,
    /// By name: a restarted container keeps its entry, and so its CPUs.
    pub(super) containers: BTreeMap<String, ContainerEntry>,
    /// Whether it keeps no CPUs free for later containers, because its last container was refused
    /// or all are gone. Otherwise two pods that wait for the same CPUs would block each other.
    pub(crate) promises_nothing: bool,
    /// Whether its last container was refused for lack of CPUs, and again when it was tried again.
    pub(crate) lacks_cpus: bool,
    /// The NUMA affinity of its last exclusive CPUs, and [`PodEntry::demand`] at that time. In pod
    /// scope its other containers get the same affinity.
    pub(crate) affinity: Option<(usize, Hint)>,
    /// The NUMA nodes of ended init containers whose memory is free again, as claims without
    /// amounts. The kubelet admits all containers of a pod before it starts one, so under its rule
    /// memory that these had ties their nodes for each later container of the pod.
    pub(crate) vacated: Vec<NodeMemoryClaim>,
    /// Whether all of its containers share CPUs, even those that request whole ones.
    pub(crate) opted_out: bool,
    pub(crate) pool: PoolKind,
    /// See [`own_pool`](crate::own_pool): what its exclusive containers leave of the pod's CPUs;
    /// `None` if the pod has no CPUs of its own.
    pub(crate) own_pool: Option<CpuSet>,
    /// Whether the pod has pod-level resources (KEP-2837): the kubelet then gives a container
    /// without resources the amount of the pod.
    pub(crate) has_resources: bool,
    /// The devices that the kubelet has reported, by container.
    pub(crate) given: BTreeMap<String, GivenDevices>,
    /// Whether the log says that the runtime sets interrupts and latency knobs of this pod.
    pub(crate) noted_runtime: bool,
    /// Whether the log says that the pod has too many annotations or devices.
    pub(crate) noted_too_many: bool,
}

impl PodEntry {
    pub(super) fn new(pod: Pod) -> PodEntry {
        PodEntry {
            pod,
            resized: false,
            containers: BTreeMap::new(),
            promises_nothing: false,
            lacks_cpus: false,
            affinity: None,
            vacated: Vec::new(),
            opted_out: false,
            pool: PoolKind::General,
            own_pool: None,
            has_resources: false,
            given: BTreeMap::new(),
            noted_runtime: false,
            noted_too_many: false,
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

    /// The devices of a container that count for its NUMA affinity; the runtime `described` some.
    pub(crate) fn counted_devices<'a>(
        &'a self,
        container: &str,
        described: &'a [Device],
    ) -> impl Iterator<Item = &'a Device> {
        let given = self.given.get(container);
        let is_complete = given.is_some_and(GivenDevices::is_complete);
        let given = given.map(|given| given.devices.as_slice()).unwrap_or_default();
        let described = if is_complete { &[] } else { described };
        given.iter().chain(described).filter(|device| !device.nodes.is_empty())
    }

    pub(crate) fn subject(&self, container: &Container) -> Subject {
        Subject {
            namespace: self.pod.namespace.clone(),
            pod: self.pod.name.clone(),
            container: container.name.clone(),
            id: container.id.clone(),
        }
    }

    /// The subject of notes about the pod's own pool.
    pub(crate) fn own_subject(&self) -> Subject {
        let (namespace, pod) = (self.pod.namespace.clone(), self.pod.name.clone());
        let id = ContainerId::made_up(&self.pod.uid, "");
        Subject { namespace, pod, container: String::new(), id }
    }

    /// The pod's own pool; empty if it has none.
    pub(crate) fn own_pool(&self) -> CpuSet {
        self.own_pool.unwrap_or_default()
    }

    /// The own pool and all exclusive CPUs of the pod's containers.
    pub(crate) fn own_cpus(&self) -> CpuSet {
        self.own_pool() | self.containers.values().map(ContainerEntry::held).collect()
    }

    /// First the claim of the own pool, then those of containers, in order of name.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> {
        let own_pool = self.own_pool.map(|cpus| Claim {
            pod_uid: self.pod.uid.clone(),
            namespace: self.pod.namespace.clone(),
            pod: self.pod.name.clone(),
            container: String::new(),
            id: ContainerId::made_up(&self.pod.uid, ""),
            cpus,
            margin: Margin::NONE,
            mixed: false,
            lent: false,
            cpu: CpuRequest::default(),
        });
        let of_containers = self.containers.iter().filter_map(|(name, entry)| {
            // Before anything is copied: most containers have none.
            let cpus = entry.claim()?;
            Some(Claim {
                pod_uid: self.pod.uid.clone(),
                namespace: self.pod.namespace.clone(),
                pod: self.pod.name.clone(),
                container: name.clone(),
                id: entry.id.clone(),
                cpus,
                margin: entry.margin(),
                mixed: entry.is_mixed(),
                lent: self.lends_lastingly(entry),
                cpu: entry.cpu,
            })
        });
        own_pool.into_iter().chain(of_containers)
    }

    /// Whether the next ones of `claims` are those of the pod; compares without a copy.
    pub(super) fn has_next_of<'a>(&self, claims: &mut impl Iterator<Item = &'a Claim>) -> bool {
        if let Some(own_pool) = self.own_pool {
            let is_it =
                |claim: &Claim| claim.is_of_own_pool(&self.pod.uid) && claim.cpus == own_pool;
            if !claims.next().is_some_and(is_it) {
                return false;
            }
        }
        let mut held = self.containers.iter().filter(|(_, entry)| entry.claim().is_some());
        held.all(|(name, entry)| {
            claims.next().is_some_and(|claim| self.has_claim(name, entry, claim))
        })
    }

    /// Frees the memory of an ended init container.
    pub(crate) fn vacate(&mut self, name: &str) {
        let Some(entry) = self.containers.get_mut(name) else { return };
        let Some(NodeMemoryClaim { nodes, .. }) = entry.memory.take() else { return };
        let tie = NodeMemoryClaim { nodes, amounts: Amounts::new() };
        if !self.vacated.contains(&tie) {
            self.vacated.push(tie);
        }
    }

    pub(super) fn memory_claims(&self) -> impl Iterator<Item = MemoryClaim> {
        self.containers.iter().filter_map(|(name, entry)| {
            let memory = entry.memory.clone()?;
            Some(MemoryClaim { pod_uid: self.pod.uid.clone(), container: name.clone(), memory })
        })
    }

    /// Whether this is the claim of this container of the pod; compares without a copy.
    fn has_claim(&self, name: &str, entry: &ContainerEntry, claim: &Claim) -> bool {
        let Claim { pod_uid, namespace, pod, container, id, cpus, margin, mixed, lent, cpu } =
            claim;
        Some(*cpus) == entry.claim()
            && *id == entry.id
            && *cpu == entry.cpu
            && (*margin, *mixed) == (entry.margin(), entry.is_mixed())
            && *lent == self.lends_lastingly(entry)
            && container == name
            && (pod_uid, namespace, pod) == (&self.pod.uid, &self.pod.namespace, &self.pod.name)
    }

    /// Whether the CPUs of an ended container are lent although the pod runs on. In a pod of which
    /// nothing runs they are lent anyway, after a restart too.
    fn lends_lastingly(&self, entry: &ContainerEntry) -> bool {
        entry.is_lent() && self.containers.values().any(ContainerEntry::is_alive)
    }

    /// Updates the pod's description by an event; empty parts change nothing.
    pub(super) fn refresh(&mut self, pod: Pod) {
        // The first budget counts: all later events repeat it, even after a resize.
        let budget = self.pod.budget.or(pod.budget);
        let limits = if self.pod.limits.is_empty() {
            pod.limits
        } else {
            std::mem::take(&mut self.pod.limits)
        };
        let qos = if pod.qos == Qos::Unknown { self.pod.qos } else { pod.qos };
        // Only an event with the cgroup shows which pool it is for.
        let pool = if pod.cgroup.is_none() { self.pod.pool } else { pod.pool };
        let cgroup = pod.cgroup.or(self.pod.cgroup.take());
        let Pod { mut sandbox, mut namespace, mut name, uid, mut annotations, .. } = pod;
        if annotations.is_empty() {
            annotations = std::mem::take(&mut self.pod.annotations);
        }
        if sandbox.0.is_empty() {
            sandbox.clone_from(&self.pod.sandbox);
        }
        for (new, known) in [(&mut namespace, &self.pod.namespace), (&mut name, &self.pod.name)] {
            if new.is_empty() {
                new.clone_from(known);
            }
        }
        let own_resources = self.pod.own_resources.or(pod.own_resources);
        self.pod = Pod {
            sandbox,
            uid,
            namespace,
            name,
            qos,
            pool,
            budget,
            limits,
            own_resources,
            annotations,
            cgroup,
        };
    }

    /// Whether an event's description of the pod changes neither its pod options nor their bounds.
    pub(crate) fn has_terms_of(&self, pod: &Pod) -> bool {
        (pod.annotations.is_empty() || pod.annotations == self.pod.annotations)
            && (pod.namespace.is_empty() || pod.namespace == self.pod.namespace)
            && (pod.cgroup.is_none() || pod.pool == self.pod.pool)
    }

    /// Whether a container with this request may have inherited the amount of the whole pod.
    fn is_whole(&self, kind: ContainerKind, cpu: &CpuRequest) -> bool {
        let amount = cpu.amount().filter(|_| self.pod.qos == Qos::Guaranteed);
        amount.is_some() && amount == self.pod.budget && kind != ContainerKind::Init
    }

    /// Records whether the pod has pod-level resources. Its running containers show that: one has
    /// the amount of the whole pod, and another one that asks for CPUs runs at the same time. An
    /// init container does not count: it ends before the next one runs.
    ///
    /// If all of them hold exclusive CPUs, the pod has none: its budget is older than a resize.
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

    /// Records the end of a container. If it is the last one that runs, the pod is ending, or
    /// between an init container and the next container. The answer to this event is the last one
    /// before the pod's end that can carry updates, so the pool gets the CPUs now.
    pub(crate) fn end(&mut self, name: &str) {
        let Some(entry) = self.containers.get_mut(name) else { return };
        entry.end();
        self.lend_if_quiet();
    }

    /// If no container of the pod is alive, lends the CPUs of those that were never restarted;
    /// another restart of the others is likely.
    pub(crate) fn lend_if_quiet(&mut self) {
        if !self.containers.values().any(ContainerEntry::is_alive) {
            for entry in self.containers.values_mut().filter(|entry| !entry.was_restarted()) {
                entry.lend();
            }
        }
    }

    /// A quiet period has ended: lends the CPUs of containers that ended before it began.
    pub(crate) fn quiet_period(&mut self) {
        for entry in self.containers.values_mut().filter(|entry| !entry.is_alive()) {
            entry.end_quiet_period();
        }
    }

    /// Whether none of its containers has an instance: see [`Deserted`](crate::Deserted).
    pub(super) fn is_deserted(&self) -> bool {
        self.containers.values().all(|entry| entry.is_removed() || entry.is_unlisted())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.containers.values().all(ContainerEntry::is_removed)
    }

    /// The runtime has removed an instance. Without any instance of the pod its containers start
    /// over, init containers first (KEP-5532).
    pub(crate) fn removed(&mut self, name: &str) {
        let Some(entry) = self.containers.get_mut(name) else { return };
        entry.remove();
        if self.is_empty() {
            self.containers.values_mut().for_each(ContainerEntry::start_over);
        }
    }

    /// How many CPUs the pod keeps free for its containers that no event has named yet, such as
    /// those after init containers. Otherwise another pod could get these CPUs, though the
    /// scheduler has counted them for this pod. A pod with an own pool has all of them already.
    pub(crate) fn promise(&self) -> usize {
        if self.promises_nothing
            || self.opted_out
            || self.has_resources
            || self.own_pool.is_some()
            || self.pod.qos != Qos::Guaranteed
        {
            return 0;
        }
        let shares = self.containers.values().filter_map(ContainerEntry::budget_share);
        let used: MilliCpu = shares.sum();
        self.pod.budget.map_or(0, |budget| MilliCpu(budget.0.saturating_sub(used.0)).cpus_floor())
    }

    /// The CPUs of ended containers that the container `name` may use again for its `n` exclusive
    /// CPUs; `None` if these and the CPUs of living containers exceed the pod's budget.
    ///
    /// As under the kubelet, those of init containers are always among them. Runtimes do not say
    /// which containers these are, and any other ended container may return to its CPUs: it gives
    /// way if the pod would hold more than its budget otherwise ([`PodEntry::ended`] has the order).
    ///
    /// `budget` is in CPUs, without idle ones; `taken` is [`Node::taken`](crate::node::Node::taken), which includes them.
    pub(crate) fn reusable(
        &self,
        budget: Option<usize>,
        name: &str,
        n: usize,
        taken: impl Fn(&ContainerEntry) -> CpuSet,
    ) -> Option<Reuse> {
        let fixed = self.fixed(name);
        let mut budget = budget.unwrap_or(usize::MAX);
        // If no other container holds CPUs, one that asks for more was resized before its creation,
        // which the budget does not show; the scheduler has counted these CPUs. A budget of zero is
        // deliberate: no container of the pod gets exclusive CPUs.
        let has_budget = self.pod.budget != Some(MilliCpu(0));
        if fixed == 0 && has_budget && self.pod.qos == Qos::Guaranteed {
            budget = budget.max(n);
        }
        let mut kept = budget.checked_sub(fixed + n)?;
        let mut gives_way = false;
        let mut cpus = CpuSet::EMPTY;
        for (_, entry) in self.ended(name).into_iter().rev() {
            let held = entry.held().len();
            gives_way |= entry.kind == ContainerKind::Init || kept < held;
            if gives_way {
                cpus |= taken(entry);
            } else {
                kept -= held;
            }
        }
        Some(Reuse { cpus, kept })
    }

    /// How many exclusive CPUs the containers except `name` hold and do not give way with.
    fn fixed(&self, name: &str) -> usize {
        let others = self.containers.iter().filter(|(other, _)| *other != name);
        let fixed = others.filter(|(_, entry)| !self.may_give_way(entry));
        fixed.map(|(_, entry)| entry.held().len()).sum()
    }

    /// Whether the container's CPUs are for others of the pod if the budget does not cover both.
    /// The containers of a pod with pod-level resources can ask for more than it has, so there the
    /// CPUs of an ended container wait for its restart.
    fn may_give_way(&self, entry: &ContainerEntry) -> bool {
        !entry.is_alive() && (entry.kind == ContainerKind::Init || !self.has_resources)
    }

    /// The ended containers except `name` that hold exclusive CPUs and may give way, in the order in
    /// which they do: those first that are the least likely to run again.
    fn ended(&self, name: &str) -> Vec<(&String, &ContainerEntry)> {
        let others = self.containers.iter().filter(|(other, _)| *other != name);
        let mut ended: Vec<_> = others
            .filter(|(_, entry)| entry.claim().is_some() && self.may_give_way(entry))
            .collect();
        // Init containers are created before the others.
        ended.sort_by_key(|(_, entry)| {
            let is_init = entry.kind == ContainerKind::Init;
            (!is_init, entry.is_removed(), entry.was_restarted(), entry.created_at)
        });
        ended
    }

    /// Why a new container that requests `n` CPUs shares CPUs, for the log; `None` if the budget
    /// has none for the pod.
    pub(crate) fn why_shared(&self, n: usize) -> Option<String> {
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

    /// Raises the budget to at least these exclusive CPUs of one container.
    pub(crate) fn raise_budget(&mut self, cpus: &CpuSet) {
        let needed = MilliCpu(cpus.len() as u64 * 1000);
        self.pod.budget = self.pod.budget.map(|budget| budget.max(needed));
    }

    pub(crate) fn budget_cpus(&self) -> Option<usize> {
        self.pod.budget.map(MilliCpu::cpus_floor)
    }

    /// Whether it has exclusive CPUs, an own pool or counted memory.
    pub(super) fn has_claims(&self) -> bool {
        self.has_exclusive()
            || self.own_pool.is_some()
            || self.containers.values().any(|entry| entry.memory.is_some())
    }

    /// The CPUs on which containers of the pod are left alone.
    pub(crate) fn left_alone_on(&self) -> CpuSet {
        let left =
            self.containers.values().filter(|one| one.left_alone.is_some() && one.is_alive());
        left.filter_map(|entry| entry.applied.cpus()).collect()
    }

    pub(crate) fn has_exclusive(&self) -> bool {
        self.containers.values().any(|entry| entry.claim().is_some())
    }

    /// The exclusive CPUs that the other containers of the pod leave out of their own cpusets, as
    /// no cgroup above them does. All that sets or checks these cpusets uses this function.
    ///
    /// Lent CPUs do not count: they are in the shared pool. Those of a partition count even then:
    /// the kernel makes no partition of CPUs that a sibling cgroup names.
    pub(crate) fn kept_from_siblings(&self) -> CpuSet {
        let is_kept = |entry: &&ContainerEntry| match entry.enforced_by {
            Mechanism::Runtime => false,
            Mechanism::Groups => !entry.is_lent(),
            Mechanism::Partitions => true,
        };
        self.containers.values().filter(is_kept).filter_map(ContainerEntry::claim).collect()
    }

    /// The CPUs that are exclusive to containers of the pod which share its NUMA affinity.
    pub(crate) fn held_with_pod_affinity(&self) -> CpuSet {
        let shares_affinity = |entry: &&ContainerEntry| entry.pod_options().shares_affinity();
        self.containers.values().filter(shares_affinity).filter_map(ContainerEntry::claim).collect()
    }

    /// For how many CPUs the engine chooses the NUMA affinity of the whole pod: the budget of a
    /// Guaranteed pod, without the containers that do not share its affinity. `None` for other
    /// pods: their budget is a limit, of which they may need less.
    pub(crate) fn demand(&self) -> Option<usize> {
        let budget = self.budget_cpus().filter(|_| self.pod.qos == Qos::Guaranteed)?;
        let apart = self.containers.values().filter(|entry| !entry.pod_options().shares_affinity());
        let apart: usize = apart.filter_map(ContainerEntry::claim).map(|claim| claim.len()).sum();
        Some(budget.saturating_sub(apart))
    }

    /// Whether whole cores of `free` and its own CPUs cannot meet [`PodEntry::demand`].
    pub(crate) fn lacks_cores(&self, machine: &Topology, free: CpuSet, reserved: CpuSet) -> bool {
        let usable = (free | self.held_with_pod_affinity()) - reserved;
        let adds_up = |n| CoreSizes::of(machine, &only_whole_cores(machine, &usable)).add_up_to(n);
        self.demand().is_some_and(|n| n > 0 && !adds_up(n))
    }

    /// [`PodEntry::demand`] for a request of `n` CPUs of a supply: at least these, and the CPUs
    /// that the pod holds outside the supply. `None` if each container has its own affinity.
    pub(crate) fn demand_with(&self, supply: &CpuSet, n: usize) -> Option<usize> {
        let held_outside = (self.held_with_pod_affinity() - *supply).len();
        match self.pod.qos {
            Qos::Guaranteed => Some(self.demand()?.max(held_outside + n)),
            _ => Some(held_outside + n),
        }
    }

    /// Takes `cpus`, which the container `name` has got, away from all other containers of the pod.
    /// Then ended containers leave what the pod's budget does not cover. A claim with idle CPUs
    /// loses whole cores or caches, as their idle CPUs are gone with `cpus`.
    pub(crate) fn hand_over(&mut self, topology: &Topology, name: &str, cpus: CpuSet) {
        for (_, entry) in self.containers.iter_mut().filter(|(other, _)| *other != name) {
            let cut = entry.margin().around(topology, &cpus);
            entry.hand_over(cut);
        }
        let Some(budget) = self.budget_cpus() else { return };
        let held: usize = self.containers.values().map(|entry| entry.held().len()).sum();
        let mut excess = held.saturating_sub(budget);
        let ended: Vec<String> = self.ended(name).iter().map(|(name, _)| (*name).clone()).collect();
        for name in ended {
            let Some(entry) = self.containers.get_mut(&name) else { continue };
            let before = entry.held();
            let left = most_whole(topology, &before, excess);
            let cut = entry.margin().around(topology, &left);
            entry.hand_over(cut);
            excess = excess.saturating_sub(before.len() - entry.held().len());
        }
    }

    /// Its cgroup as reported, or the parent of the cgroup of one of its containers.
    pub(crate) fn group(&self) -> Option<CgroupPath> {
        let of_container = |entry: &ContainerEntry| entry.cgroup.as_ref()?.parent();
        self.pod.cgroup.clone().or_else(|| self.containers.values().find_map(of_container))
    }

    /// Whether its CFS quota has to be lifted. The rule is the kubelet's: if any container is
    /// exclusive, or, with pod-level resources, if all are. There each shared container may use the
    /// whole quota, and the pod has no other limit.
    ///
    /// An ended container counts until its CPUs are lent, so that a container that crashes and
    /// restarts does not cause two writes each time.
    pub(crate) fn lifts_quota(&self) -> bool {
        let is_exclusive = |entry: &ContainerEntry| entry.claim().is_some();
        let mut present = self.containers.values().filter(|entry| !entry.is_lent());
        self.containers.values().any(|entry| entry.is_alive() && is_exclusive(entry))
            && (!self.has_resources || present.all(is_exclusive))
    }
}

/// `n` of `held`, or all if these are fewer: CPUs of split cores first, then whole cores.
fn most_whole(topology: &Topology, held: &CpuSet, n: usize) -> CpuSet {
    let is_split = |core: &Domain| !core.cpus.is_subset(held);
    let (split, whole): (Vec<&Domain>, Vec<&Domain>) =
        topology.cores().iter().partition(|core| is_split(core));
    let mut chosen = CpuSet::EMPTY;
    for core in split.into_iter().chain(whole.into_iter().rev()) {
        chosen |= (core.cpus & *held).lowest(n - chosen.len());
    }
    chosen
}
