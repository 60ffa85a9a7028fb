//! [`place_with_memory`] and [`place_memory`]: CPUs and memory chosen together.
//!
//! Both look first for nodes by the kubelet's rule ([`Sharing::SameSet`]), and then for any legal ones:
//! the kubelet refuses a container that it could admit if the nodes of another group have the memory.

use super::{Amounts, Capacity, Claim, MemoryOffer, NoMemory, Room, Sharing};
use crate::engine::Placement;
use crate::hint::Hint;
use crate::kubelet::affinity_without_cpus;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::settings::Settings;
use crate::{DeviceNodes, TopologyPolicy, place};
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
    /// The claim of the request on these nodes.
    pub fn claim(&self, nodes: NodeSet) -> Claim {
        Claim { nodes, amounts: self.amounts.clone() }
    }

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

/// How an attempt chooses nodes. Later attempts admit what the earlier ones refuse.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    sharing: Sharing,
    /// Whether a preferred affinity may be extended by nodes that only memory needs.
    extends: bool,
}

impl Attempt {
    const ALL: [Attempt; 3] = [
        Attempt { sharing: Sharing::SameSet, extends: false },
        Attempt { sharing: Sharing::AnySet, extends: false },
        // The kubelet's topology manager admits a container whose memory no set of nodes has by the
        // kubelet's rule, and then no memory is found for it (kubernetes/kubernetes#128669). Its
        // memory is on more nodes than its CPUs then.
        Attempt { sharing: Sharing::SameSet, extends: true },
    ];

    fn nodes(
        self,
        room: &Room<'_>,
        memory: &MemoryRequest<'_>,
        policy: TopologyPolicy,
        hint: Hint,
    ) -> Result<NodeSet, NoMemory> {
        if self.extends && policy != TopologyPolicy::SingleNumaNode {
            let hint = Hint { preferred: false, ..hint };
            return room.allocate(&memory.amounts, &memory.reusable, hint);
        }
        room.allocate_by(&memory.amounts, &memory.reusable, hint, self.sharing)
    }

    /// The answer of the first attempt that has one, or the refusal of the first one.
    fn first<T>(mut attempt: impl FnMut(Attempt) -> Result<T, Rejection>) -> Result<T, Rejection> {
        let [first, others @ ..] = Attempt::ALL;
        attempt(first).or_else(|refused| {
            others.into_iter().find_map(|other| attempt(other).ok()).ok_or(refused)
        })
    }
}

/// Chooses the CPUs of a container that starts, as [`place()`] does, and the nodes of its memory.
/// `request.memory` is set to the offer that decided.
///
/// # Errors
/// The rejection by the kubelet's rule.
pub fn place_with_memory(
    machine: &Topology,
    request: &mut Request,
    memory: &MemoryRequest<'_>,
) -> Result<(Placement, NodeSet), Rejection> {
    let room = memory.room();
    let policy = request.settings.topology_manager.policy;
    // The affinity of a pod includes its memory already.
    let is_chosen = request.pod.is_some_and(|pod| pod.chosen.is_some());
    let offer = |sharing| if is_chosen { None } else { memory.offer(&room, sharing) };
    request.memory = offer(Sharing::SameSet);
    let (placement, nodes, offer) = Attempt::first(|attempt| {
        let offer = offer(attempt.sharing);
        let placement = place(machine, &Request { memory: offer, ..*request })?;
        let nodes = attempt.nodes(&room, memory, policy, placement.hint)?;
        Ok((placement, nodes, offer))
    })?;
    request.memory = offer;
    Ok((placement, nodes))
}

/// Chooses the nodes of a container's memory and the affinity that they were chosen under, for a
/// container without exclusive CPUs. `chosen` is an affinity that other containers of its pod have.
///
/// # Errors
/// The rejection by the kubelet's rule.
pub fn place_memory(
    machine: &Topology,
    settings: &Settings,
    devices: DeviceNodes,
    memory: &MemoryRequest<'_>,
    chosen: Option<Hint>,
) -> Result<(NodeSet, Hint), Rejection> {
    let room = memory.room();
    let policy = settings.topology_manager.policy;
    Attempt::first(|attempt| {
        let hint = match chosen {
            Some(hint) => hint,
            None => {
                let offer = memory.offer(&room, attempt.sharing);
                affinity_without_cpus(machine, settings, devices, offer)?
            }
        };
        Ok((attempt.nodes(&room, memory, policy, hint)?, hint))
    })
}
