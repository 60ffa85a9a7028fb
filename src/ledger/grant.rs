//! What a container may have: its pod's budget, its NUMA affinity and the CPUs its pod can use again, put to
//! [`placement`].

use super::model::{Container, PodUid};
use super::pods::{PodEntry, Room};
use super::scene::{Refused, Scene};
use super::wishes::Terms;
use super::{Ledger, Policy};
use crate::cpuset::CpuSet;
use crate::nodeset::NodeSet;
use crate::placement::{
    self, Allocation, Hint, NotEnough, Rejection, Scope, Supply, Wishes, allocate,
    devices::affinity, wishes,
};

/// What a container gets that is being created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Grant {
    /// The shared pool.
    Shared,
    /// The exclusive CPUs it had before.
    Kept(CpuSet),
    /// Exclusive CPUs that have just been chosen, and what there was to choose from.
    Chosen(Allocation, Box<Scene>),
}

impl Grant {
    /// Its exclusive CPUs.
    pub(super) fn claim(&self) -> Option<CpuSet> {
        match self {
            Grant::Shared => None,
            Grant::Kept(cpus) => Some(*cpus),
            Grant::Chosen(allocation, _) => Some(allocation.cpus),
        }
    }
}

impl Ledger {
    /// What a container gets that is being created. Changes nothing.
    pub(super) fn grant(
        &self,
        uid: &PodUid,
        container: &Container,
        terms: &Terms,
    ) -> Result<Grant, Refused> {
        let Some(pod) = self.pods.get(uid) else { return Ok(Grant::Shared) };
        let Some(n) = terms.exclusive_cpus(pod.pod.qos, &container.cpu) else {
            return match terms.without_whole_cpus(pod.pod.qos, &container.cpu) {
                Some(rejection) => Err(Refused { rejection, scene: None }),
                None => Ok(Grant::Shared),
            };
        };
        let before = pod.containers.get(&container.name);
        if let Some(held) = before.and_then(|entry| entry.claim).filter(|held| held.len() == n) {
            return Ok(Grant::Kept(held));
        }
        if self.settings.policy == Policy::None {
            return Ok(Grant::Shared);
        }
        let wished;
        let placement = match terms.wishes == Wishes::NONE {
            true => &self.settings.placement,
            false => {
                wished = terms.wishes.settings(&self.settings.placement);
                &wished
            }
        };
        let free = self.free() | before.map(|entry| self.taken(entry)).unwrap_or_default();
        let room = self.room(pod, pod.budget_cpus(), container, n);
        let chosen = self.choose(uid, placement, &terms.wishes, free, room, n).and_then(|chosen| {
            match &chosen {
                Some(allocation) => {
                    let taken = self.with_idle(&allocation.cpus, terms.wishes.isolates());
                    self.keep_promises(uid, &free, &taken)?;
                }
                None => terms.without_room()?,
            }
            Ok(chosen)
        });
        let scene = || {
            let (reusable, wishes) = (room.reusable(), terms.wishes);
            let in_pod = placement.topology_manager.scope == Scope::Pod;
            let pod = in_pod.then(|| pod.demand_with(&Supply { free, reusable }, n)).flatten();
            Box::new(Scene { asked: n, free, reusable, pod, wishes, placement: *placement })
        };
        match chosen {
            Ok(None) => Ok(Grant::Shared),
            Ok(Some(allocation)) => Ok(Grant::Chosen(allocation, scene())),
            Err(rejection) => Err(Refused { rejection, scene: Some(scene()) }),
        }
    }

    /// Whether and how `n` exclusive CPUs for a container fit a pod's budget, see [`PodEntry::room_within`].
    pub(super) fn room(
        &self,
        pod: &PodEntry,
        budget: Option<usize>,
        container: &Container,
        n: usize,
    ) -> Room {
        pod.room_within(budget, container, n, |entry| self.taken(entry))
    }

    /// Chooses `n` exclusive CPUs of `free` and of what the pod can use again; `None` without room in its budget.
    pub(super) fn choose(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        wishes: &Wishes,
        free: CpuSet,
        room: Room,
        n: usize,
    ) -> Result<Option<Allocation>, Rejection> {
        let place =
            |free, reusable| self.place(uid, placement, wishes, &Supply { free, reusable }, n);
        match room {
            Room::None => Ok(None),
            Room::Fresh(reusable) => place(free, reusable).map(Some),
            // What the pod has already comes first: the rest of it would lie idle until the pod ends. That it lies
            // badly is no reason to refuse: the pod would wait for ever.
            Room::Reuse(ended) => {
                let first = match n.checked_sub(ended.len()) {
                    None | Some(0) => place(ended, CpuSet::EMPTY),
                    // It is for the wishes to say which CPUs go with each other.
                    Some(_) if *wishes != Wishes::NONE => place(free | ended, CpuSet::EMPTY),
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
        let hint = self.affinity(uid, placement, &all, ended.len() + more, NodeSet::EMPTY)?;
        let fresh = Supply { free: *free, reusable: CpuSet::EMPTY };
        let added = allocate(&self.topology, placement, &fresh, more, Some(hint))?;
        Ok(Allocation { cpus: added.cpus | *ended, hint })
    }

    /// Chooses `n` exclusive CPUs of a supply.
    pub(super) fn place(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        wishes: &Wishes,
        supply: &Supply,
        n: usize,
    ) -> Result<Allocation, Rejection> {
        if *wishes != Wishes::NONE {
            // Which nodes are near depends on which CPUs the wishes leave; a pod's affinity does not.
            let in_pod = placement.topology_manager.scope == Scope::Pod;
            let devices = wishes.devices;
            let hint =
                in_pod.then(|| self.affinity(uid, placement, supply, n, devices)).transpose()?;
            return wishes::allocate(&self.topology, placement, wishes, supply, n, hint);
        }
        let hint = self.affinity(uid, placement, supply, n, NodeSet::EMPTY)?;
        allocate(&self.topology, placement, supply, n, Some(hint))
    }

    /// The NUMA affinity of a container; in pod scope (KEP-693) that of its pod.
    ///
    /// A pod's affinity is chosen with its first container that has exclusive CPUs, for as many as its budget. It is
    /// chosen anew if the budget has changed, or nobody remembers it since the plugin started anew: then all NUMA nodes
    /// on which the pod has CPUs are in it. The devices are those of the container that it is chosen with. A pod whose
    /// budget is a limit, and no request, has it chosen with each container, for what it has then. A pod without a known
    /// budget has none, its containers each their own.
    fn affinity(
        &self,
        uid: &PodUid,
        placement: &placement::Settings,
        supply: &Supply,
        n: usize,
        devices: NodeSet,
    ) -> Result<Hint, Rejection> {
        let pod = self.pods.get(uid).filter(|_| placement.topology_manager.scope == Scope::Pod);
        let Some((pod, total)) = pod.and_then(|pod| Some((pod, pod.demand_with(supply, n)?)))
        else {
            return affinity(&self.topology, placement, supply, n, devices);
        };
        match pod.affinity {
            Some((of, hint)) if of == total => Ok(hint),
            _ => {
                let supply = Supply { free: self.free(), reusable: pod.held_together() };
                affinity(&self.topology, placement, &supply, total, devices)
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
        let promised = self.pods.promised_beside(uid);
        let available = free.len().saturating_sub(promised);
        let requested = (*chosen & *free).len();
        match requested <= available {
            true => Ok(()),
            false => Err(NotEnough { requested, available }.into()),
        }
    }
}
