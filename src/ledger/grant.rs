//! What a container may have: its pod's budget, its NUMA affinity and the CPUs its pod can use again, put to
//! [`placement`].

use super::model::{Container, PodUid};
use super::pods::Room;
use super::{Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::placement::{
    self, Allocation, Hint, NotEnough, Rejection, Scope, Supply, affinity, allocate,
};

/// What a container gets that is being created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// The shared pool.
    Shared,
    /// The exclusive CPUs it had before.
    Kept(CpuSet),
    /// Exclusive CPUs that have just been chosen.
    Chosen(Allocation),
}

impl Grant {
    /// Its exclusive CPUs.
    pub(super) fn claim(&self) -> Option<CpuSet> {
        match self {
            Grant::Shared => None,
            Grant::Kept(cpus) => Some(*cpus),
            Grant::Chosen(allocation) => Some(allocation.cpus),
        }
    }
}

impl Ledger {
    /// What a container gets that is being created. Changes nothing.
    pub(super) fn grant(&self, uid: &PodUid, container: &Container) -> Result<Grant, Rejection> {
        let Some(pod) = self.pods.get(uid) else { return Ok(Grant::Shared) };
        let Some(n) = pod.whole_cpus(&container.cpu) else { return Ok(Grant::Shared) };
        let held = pod.containers.get(&container.name).and_then(|entry| entry.claim);
        if let Some(held) = held.filter(|held| held.len() == n) {
            return Ok(Grant::Kept(held));
        }
        if self.settings.policy == Policy::None {
            return Ok(Grant::Shared);
        }
        let free = self.free() | held.unwrap_or_default();
        let room = pod.room(container, n);
        let Some(allocation) = self.choose(uid, &self.settings.placement, free, room, n)? else {
            return Ok(Grant::Shared);
        };
        self.keep_promises(uid, &free, &allocation.cpus)?;
        Ok(Grant::Chosen(allocation))
    }

    /// Chooses `n` exclusive CPUs of `free` and of what the pod can use again; `None` without room in its budget.
    pub(super) fn choose(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        free: CpuSet,
        room: Room,
        n: usize,
    ) -> Result<Option<Allocation>, Rejection> {
        let place = |free, reusable| self.place(uid, placement, &Supply { free, reusable }, n);
        match room {
            Room::None => Ok(None),
            Room::Fresh(reusable) => place(free, reusable).map(Some),
            // What the pod has already comes first: the rest of it would lie idle until the pod ends. That it lies
            // badly is no reason to refuse: the pod would wait for ever.
            Room::Reuse(ended) => {
                let first = match n.checked_sub(ended.len()) {
                    None | Some(0) => place(ended, CpuSet::EMPTY),
                    Some(more) => self.add_to(uid, placement, &free, &ended, more),
                };
                first.or_else(|_| place(free | ended, CpuSet::EMPTY)).map(Some)
            }
        }
    }

    /// All CPUs of `ended`, and `more` of `free`.
    fn add_to(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        free: &CpuSet,
        ended: &CpuSet,
        more: usize,
    ) -> Result<Allocation, Rejection> {
        let all = Supply { free: *free, reusable: *ended };
        let hint = self.affinity(uid, placement, &all, ended.len() + more)?;
        let fresh = Supply { free: *free, reusable: CpuSet::EMPTY };
        let added = allocate(&self.topology, placement, &fresh, more, Some(hint))?;
        Ok(Allocation { cpus: added.cpus | *ended, hint })
    }

    /// Chooses `n` exclusive CPUs of a supply.
    pub(super) fn place(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        supply: &Supply,
        n: usize,
    ) -> Result<Allocation, Rejection> {
        let hint = self.affinity(uid, placement, supply, n)?;
        allocate(&self.topology, placement, supply, n, Some(hint))
    }

    /// The NUMA affinity of a container; in pod scope (KEP-693) that of its pod.
    ///
    /// A pod's affinity is chosen with its first container that has exclusive CPUs, for as many as its budget. It is
    /// chosen anew if the budget has changed, or nobody remembers it since the plugin started anew: then all NUMA nodes
    /// on which the pod has CPUs are in it. A pod without a known budget has none, its containers each their own.
    fn affinity(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        supply: &Supply,
        n: usize,
    ) -> Result<Hint, Rejection> {
        let pod = self.pods.get(uid).filter(|_| placement.topology_manager.scope == Scope::Pod);
        let Some((pod, total)) = pod.and_then(|pod| Some((pod, pod.budget_cpus()?))) else {
            return affinity(&self.topology, placement, supply, n);
        };
        match pod.affinity {
            Some((of, hint)) if of == total => Ok(hint),
            _ => {
                let supply = Supply { free: self.free(), reusable: pod.held() };
                affinity(&self.topology, placement, &supply, total)
            }
        }
    }

    /// Whether the rest of `free` is enough for what is promised to other pods.
    ///
    /// # Errors
    /// If not. What the kubelet would say of the request as such comes first, so this is asked last.
    pub(super) fn keep_promises(
        &self,
        uid: &PodUid,
        free: &CpuSet,
        chosen: &CpuSet,
    ) -> Result<(), Rejection> {
        let others = self.pods.iter().filter(|(other, _)| *other != uid);
        let promised = others.map(|(_, pod)| pod.promise()).sum();
        let available = free.len().saturating_sub(promised);
        let requested = (*chosen & *free).len();
        match requested <= available {
            true => Ok(()),
            false => Err(NotEnough { requested, available }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Node, guaranteed, settings};
    use crate::ledger::{Claim, Ledger};
    use crate::placement::{Scope, TopologyManager, TopologyPolicy};
    use crate::topology::synthetic::Machine;
    use std::collections::BTreeMap;

    /// Two NUMA nodes of eight CPUs, 0 and 1 are reserved, and a container or pod is in one node or refused.
    fn single(scope: Scope, remembered: Vec<Claim>) -> Ledger {
        let mut settings = settings();
        let policy = TopologyPolicy::SingleNumaNode;
        settings.placement.topology_manager =
            TopologyManager { policy, scope, ..TopologyManager::default() };
        let machine = Machine { nodes: 2, caches: 2, cores: 16, ..Machine::default() };
        Ledger::new(machine.topology().unwrap(), settings, remembered)
    }

    #[test]
    fn a_new_life_keeps_a_pods_numa_node() {
        let mut node = Node { ledger: single(Scope::Pod, Vec::new()), set: BTreeMap::new() };
        let (a, gone) = (guaranteed("a", 4000), guaranteed("gone", 4000));
        assert_eq!(node.create(&gone, "c", "g", 4000).unwrap(), "2-5");
        assert_eq!(node.create(&a, "one", "1", 2000).unwrap(), "8-9");
        node.ledger = single(Scope::Pod, node.ledger.claims().collect());
        node.event(node.running(&[(&a, "one", "1", 2000)])).unwrap();
        // Node 0 has room for the whole pod again.
        assert_eq!(node.create(&a, "two", "2", 2000).unwrap(), "10-11");
    }

    #[test]
    fn badly_lying_cpus_of_ended_containers_do_not_keep_their_pod_out() {
        let mut node = Node { ledger: single(Scope::Container, Vec::new()), set: BTreeMap::new() };
        let a = guaranteed("a", 12_000);
        for (name, expect) in [("one", "2-7"), ("two", "8-13")] {
            assert_eq!(node.create(&a, name, name, 6000).unwrap(), expect);
            node.stop(name);
        }
        // The pod has six CPUs of each node; its budget is used up.
        assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");

        let mut node = Node { ledger: single(Scope::Container, Vec::new()), set: BTreeMap::new() };
        let a = guaranteed("a", 8000);
        assert_eq!(node.create(&a, "init", "i", 4000).unwrap(), "2-5");
        node.stop("i");
        assert_eq!(node.create(&a, "app", "p", 8000).unwrap(), "8-15");
    }
}
