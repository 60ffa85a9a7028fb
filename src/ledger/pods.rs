//! What the ledger remembers of a pod.

use super::entry::{Entry, Life, Loan};
use super::model::{Container, ContainerKind, MilliCpu, Pod, Qos};
use super::settings::Exclusivity;
use super::store::Counted;
use crate::cpuset::CpuSet;
use crate::placement::reserve::whole_cores;
use crate::placement::{Hint, Supply};
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
        let cgroup = pod.cgroup.or(self.pod.cgroup.take());
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
        self.pod = Pod { sandbox, uid, namespace, name, qos, budget, annotations, cgroup };
    }

    /// Whether no container of the pod is alive: it is ending, or between an init container and the next.
    pub(super) fn is_quiet(&self) -> bool {
        self.containers.values().all(|entry| entry.life == Life::Stopped)
    }

    /// A container has ended.
    ///
    /// With the last one the pod is ending, or between an init container and the next. The answer to this end is the last
    /// one that can carry updates before the pod's end.
    pub(super) fn end(&mut self, name: &str) {
        let Some(entry) = self.containers.get_mut(name) else { return };
        if entry.life != Life::Stopped {
            (entry.life, entry.loan) = (Life::Stopped, Loan::Awaited);
        }
        self.lend_if_quiet();
    }

    /// Where no container of the pod is alive the pool gets the CPUs of all that have not come back before.
    pub(super) fn lend_if_quiet(&mut self) {
        if self.is_quiet() {
            for entry in self.containers.values_mut().filter(|entry| !entry.restarted) {
                entry.loan = Loan::Lent;
            }
        }
    }

    /// Some time has passed. The CPUs of containers that have ended, and have not come back since the last time, are lent.
    pub(super) fn lull(&mut self) {
        let ended = self.containers.values_mut().filter(|entry| entry.life == Life::Stopped);
        for entry in ended {
            entry.loan = match entry.loan {
                Loan::Awaited => Loan::Overdue,
                Loan::Overdue | Loan::Lent => Loan::Lent,
            };
        }
    }

    /// Whether none of its containers has an instance. It may be over, or between two tries to create one.
    pub(super) fn is_deserted(&self) -> bool {
        self.containers.values().all(|entry| entry.removed)
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
        let named = |entry: &Entry| entry.told().filter(|_| entry.claim.is_none());
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
