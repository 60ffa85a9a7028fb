//! [`place_with_memory`] and [`place_memory`]: CPUs and memory chosen together.
//!
//! Both look first for nodes by the kubelet's rule ([`Sharing::SameSet`]), and then for any legal ones:
//! the kubelet refuses a container that it could admit if the nodes of another group have the memory.

use super::{Amounts, Capacity, Claim, MemoryOffer, Room, Sharing};
use crate::engine::Placement;
use crate::hint::Hint;
use crate::kubelet::affinity_without_cpus;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::settings::Settings;
use crate::{DeviceNodes, place};
use cpuset::NodeSet;
use topology::Topology;

/// A container's request for memory.
#[derive(Debug, Clone)]
pub struct MemoryRequest<'a> {
    pub capacity: &'a Capacity,
    /// The claims of all other containers.
    pub claims: Vec<&'a Claim>,
    /// Claims among these that the request may use again, as their containers have ended.
    pub reusable: Vec<Claim>,
    pub amounts: Amounts,
    /// In pod scope, the memory of the whole pod: its NUMA affinity is chosen for that.
    pub pod: Option<PodMemory>,
}

#[derive(Debug, Clone)]
pub struct PodMemory {
    pub amounts: Amounts,
    /// The claims of its other containers, which are a part of that.
    pub held: Vec<Claim>,
}

impl<'a> MemoryRequest<'a> {
    fn room(&self) -> Room<'a> {
        Room::new(self.capacity, self.claims.iter().copied())
    }

    /// What the choice of the NUMA affinity has to consider.
    fn offer(&self, room: &Room<'_>, sharing: Sharing) -> Option<MemoryOffer> {
        match &self.pod {
            Some(pod) => MemoryOffer::new(room, &pod.amounts, &pod.held, sharing),
            None => MemoryOffer::new(room, &self.amounts, &self.reusable, sharing),
        }
    }
}

/// Chooses the CPUs of a container that starts, as [`place()`] does, and the nodes of its memory.
/// `request.memory` is set to the offer that decided.
///
/// # Errors
/// The first rejection, of the kubelet's rule.
pub fn place_with_memory(
    machine: &Topology,
    request: &mut Request,
    memory: &MemoryRequest<'_>,
) -> Result<(Placement, NodeSet), Rejection> {
    let room = memory.room();
    let attempt = |request: &Request| {
        let placement = place(machine, request)?;
        let nodes = room.allocate(&memory.amounts, &memory.reusable, placement.hint)?;
        Ok((placement, nodes))
    };
    // The affinity of a pod includes its memory already.
    if request.pod.is_some_and(|pod| pod.chosen.is_some()) {
        return attempt(request);
    }
    request.memory = memory.offer(&room, Sharing::SameSet);
    attempt(request).or_else(|refused: Rejection| {
        let legal = Request { memory: memory.offer(&room, Sharing::AnySet), ..*request };
        let placed = attempt(&legal).map_err(|_| refused)?;
        *request = legal;
        Ok(placed)
    })
}

/// Chooses the nodes of a container's memory and the affinity that they were chosen under, for a
/// container without exclusive CPUs. `chosen` is an affinity that other containers of its pod have.
///
/// # Errors
/// The first rejection, of the kubelet's rule.
pub fn place_memory(
    machine: &Topology,
    settings: &Settings,
    devices: DeviceNodes,
    memory: &MemoryRequest<'_>,
    chosen: Option<Hint>,
) -> Result<(NodeSet, Hint), Rejection> {
    let room = memory.room();
    let attempt = |sharing| {
        let hint = match chosen {
            Some(hint) => hint,
            None => {
                let offer = memory.offer(&room, sharing);
                affinity_without_cpus(machine, settings, devices, offer)?
            }
        };
        let nodes = room.allocate(&memory.amounts, &memory.reusable, hint)?;
        Ok((nodes, hint))
    };
    attempt(Sharing::SameSet)
        .or_else(|refused: Rejection| attempt(Sharing::AnySet).map_err(|_| refused))
}
