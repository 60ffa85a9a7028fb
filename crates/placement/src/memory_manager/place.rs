//! [`place_with_memory`] and [`place_memory`]: CPUs and memory chosen together.
//!
//! Both look first for nodes by the kubelet's rule ([`Sharing::SameSet`]), and then for any legal ones:
//! the kubelet refuses a container that it could admit if the nodes of another group have the memory.
//! Under a strict policy a container that fits no set of the admitted size is refused; without one its
//! memory is spread.

use super::amounts::only;
use super::shortage::{Refused, Shortage};
use super::{Amounts, Capacity, MemoryKind, MemoryOffer, NoMemory, NodeMemoryClaim, Room, Sharing};
use crate::engine::Placement;
use crate::hint::Hint;
use crate::kubelet::affinity_without_cpus;
use crate::rejection::Rejection;
use crate::request::Request;
use crate::settings::PlacementSettings;
use crate::{DeviceNodes, Scope, TopologyPolicy, place};
use cpuset::NodeSet;
use topology::Topology;

/// A container's request for memory.
#[derive(Debug, Clone)]
pub struct MemoryRequest<'a> {
    pub capacity: &'a Capacity,
    /// The claims of all other containers.
    pub claims: Vec<&'a NodeMemoryClaim>,
    /// Claims among these that the request may use again, as their containers have ended.
    pub reusable: Vec<NodeMemoryClaim>,
    pub amounts: Amounts,
    /// In pod scope, the memory of the whole pod: its NUMA affinity is chosen for that.
    pub pod: Option<PodMemory>,
}

#[derive(Debug, Clone)]
pub struct PodMemory {
    pub amounts: Amounts,
    /// The claims of its other containers, which are a part of that.
    pub held: Vec<NodeMemoryClaim>,
    /// Whether whole cores cannot meet the CPUs of the pod. As in the kubelet, the container that
    /// lacks them is refused then, and not the first one for the memory of all.
    pub lacks_cores: bool,
}

impl<'a> MemoryRequest<'a> {
    /// The claim of the request on these nodes.
    pub fn claim(&self, nodes: NodeSet) -> NodeMemoryClaim {
        NodeMemoryClaim { nodes, amounts: self.amounts.clone() }
    }

    fn room(&self) -> Room<'a> {
        Room::new(self.capacity, self.claims.iter().copied())
    }

    /// This request, for one type.
    fn only(&self, kind: MemoryKind) -> MemoryRequest<'a> {
        let pod = self.pod.as_ref();
        let pod = pod.map(|pod| PodMemory { amounts: only(kind, &pod.amounts), ..pod.clone() });
        MemoryRequest { amounts: only(kind, &self.amounts), pod, ..self.clone() }
    }
}

/// How an attempt chooses nodes.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    sharing: Sharing,
    /// Whether a preferred affinity may be extended by nodes that only memory needs.
    extends: bool,
}

impl Attempt {
    const KUBELETS: Attempt = Attempt { sharing: Sharing::SameSet, extends: false };
    const ANY_SET: Attempt = Attempt { sharing: Sharing::AnySet, extends: false };
    /// The kubelet's topology manager admits a container whose memory no set of nodes has by the
    /// kubelet's rule, and then no memory is found for it (kubernetes/kubernetes#128669). Its
    /// memory is on more nodes than its CPUs then.
    const EXTENDED: Attempt = Attempt { sharing: Sharing::SameSet, extends: true };

    /// The attempts that admit what [`Attempt::KUBELETS`] refuses, in order.
    fn later(policy: TopologyPolicy) -> &'static [Attempt] {
        if policy.is_strict() {
            &[Attempt::ANY_SET]
        } else {
            &[Attempt::ANY_SET, Attempt::EXTENDED]
        }
    }
}

/// Chooses a NUMA affinity near an offer of memory, and what else is chosen with it.
type Affinity<'f, T> = dyn Fn(Option<MemoryOffer>) -> Result<(Hint, T), Rejection> + 'f;

/// An answer to a [`Search`].
struct Found<T> {
    /// What was chosen with the affinity.
    others: T,
    nodes: NodeSet,
    /// The offer that decided.
    offer: Option<MemoryOffer>,
}

/// Why an attempt fails.
enum Failure {
    Affinity(Rejection),
    Memory(NoMemory),
}

/// The search for the nodes of a request.
#[derive(Debug, Clone, Copy)]
struct Search<'s, 'c> {
    memory: &'s MemoryRequest<'c>,
    room: &'s Room<'c>,
    policy: TopologyPolicy,
    /// The affinity, if it does not depend on the memory: that of a pod, which includes its memory
    /// already, or of CPUs that the container has.
    chosen: Option<Hint>,
}

impl Search<'_, '_> {
    /// # Errors
    /// The rejection by the kubelet's rule, with the memory that was lacking if more CPUs or other
    /// devices would not help.
    fn find<T>(self, affinity: &Affinity<'_, T>) -> Result<Found<T>, Rejection> {
        self.attempts(affinity).map_err(|failure| self.rejection(failure, affinity))
    }

    /// The answer of the first attempt that has one, or the failure of the first one.
    fn attempts<T>(self, affinity: &Affinity<'_, T>) -> Result<Found<T>, Failure> {
        self.attempt(Attempt::KUBELETS, affinity).or_else(|failure| {
            let later = Attempt::later(self.policy).iter();
            let mut found = later.filter_map(|attempt| self.attempt(*attempt, affinity).ok());
            found.next().ok_or(failure)
        })
    }

    fn attempt<T>(self, attempt: Attempt, affinity: &Affinity<'_, T>) -> Result<Found<T>, Failure> {
        let offer = self.offer(attempt.sharing);
        let (hint, others) = affinity(offer).map_err(Failure::Affinity)?;
        // Without an offer the affinity does not say that the pod's other containers have room.
        if let (None, Some(pod), None) = (self.chosen, &self.memory.pod, offer)
            && self.policy.is_strict()
            && !pod.lacks_cores
        {
            let whole = self.room.allocate_by(&pod.amounts, &pod.held, hint, attempt.sharing);
            whole.map_err(Failure::Memory)?;
        }
        let nodes = self.nodes(attempt, hint).map_err(Failure::Memory)?;
        Ok(Found { others, nodes, offer })
    }

    /// What the choice of the NUMA affinity has to consider.
    fn offer(self, sharing: Sharing) -> Option<MemoryOffer> {
        match (self.chosen, &self.memory.pod) {
            (Some(_), _) => None,
            (None, Some(pod)) => MemoryOffer::new(self.room, &pod.amounts, &pod.held, sharing),
            (None, None) => {
                let MemoryRequest { amounts, reusable, .. } = self.memory;
                MemoryOffer::new(self.room, amounts, reusable, sharing)
            }
        }
    }

    fn nodes(self, attempt: Attempt, hint: Hint) -> Result<NodeSet, NoMemory> {
        let MemoryRequest { amounts, reusable, .. } = self.memory;
        if attempt.extends {
            let hint = Hint { preferred: false, ..hint };
            return self.room.allocate(amounts, reusable, hint);
        }
        let nodes = self.room.allocate_by(amounts, reusable, hint, attempt.sharing)?;
        if nodes.len() == 1 || nodes.len() <= self.most() {
            return Ok(nodes);
        }
        // CPUs that were chosen before the memory was known can be on more nodes than that needs.
        let within = hint.nodes.unwrap_or(nodes);
        self.room.narrowed(amounts, reusable, attempt.sharing, within, self.most())
    }

    /// The most nodes on which the policy allows the memory.
    fn most(self) -> usize {
        let all = self.room.all_nodes().len();
        let whole = self.memory.pod.as_ref().map_or(&self.memory.amounts, |pod| &pod.amounts);
        match self.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => all,
            TopologyPolicy::Restricted => self.room.fewest(whole).unwrap_or(all),
            TopologyPolicy::SingleNumaNode => 1,
        }
    }

    fn rejection<T>(self, failure: Failure, affinity: &Affinity<'_, T>) -> Rejection {
        let rejection = match failure {
            // CPUs or devices are lacking anyway.
            Failure::Affinity(rejection) if affinity(None).is_err() => return rejection,
            Failure::Affinity(rejection) => rejection,
            // The kubelet's topology manager takes memory that no set of nodes has for memory that
            // has no preference, and its Memory Manager refuses it then.
            Failure::Memory(_) if self.policy.is_strict() => Rejection::topology_affinity(),
            Failure::Memory(error) => error.rejection(),
        };
        let (asks, amounts, reusable) = match (self.chosen, &self.memory.pod) {
            (None, Some(pod)) => (Scope::Pod, &pod.amounts, &pod.held),
            _ => (Scope::Container, &self.memory.amounts, &self.memory.reusable),
        };
        let refused = Refused { asks, amounts, reusable, most: self.most() };
        let is_refused = |kind| {
            let memory = self.memory.only(kind);
            Search { memory: &memory, ..self }.attempts(affinity).is_err()
        };
        Rejection {
            memory: Some(Box::new(Shortage::of(self.room, refused, is_refused))),
            ..rejection
        }
    }
}

/// Chooses the CPUs of a container that starts, as [`place()`] does, and the nodes of its memory.
/// `request.memory` is set to the offer that decided.
///
/// # Errors
/// As for [`place()`]. If memory is lacking, the rejection says which.
pub fn place_with_memory(
    machine: &Topology,
    request: &mut Request,
    memory: &MemoryRequest<'_>,
) -> Result<(Placement, NodeSet), Rejection> {
    let room = &memory.room();
    let policy = request.settings.topology_manager.policy;
    let chosen = request.pod.and_then(|pod| pod.chosen);
    let search = Search { memory, room, policy, chosen };
    request.memory = search.offer(Sharing::SameSet);
    let found = search.find(&|offer| {
        let placement = place(machine, &Request { memory: offer, ..*request })?;
        Ok((placement.hint, placement))
    })?;
    request.memory = found.offer;
    Ok((found.others, found.nodes))
}

/// Chooses the nodes of a container's memory and the affinity that they were chosen under, for a
/// container without exclusive CPUs. `chosen` is an affinity that other containers of its pod have.
///
/// # Errors
/// The rejection by the kubelet's rule. If memory is lacking, it says which.
pub fn place_memory(
    machine: &Topology,
    settings: &PlacementSettings,
    devices: DeviceNodes,
    memory: &MemoryRequest<'_>,
    chosen: Option<Hint>,
) -> Result<(NodeSet, Hint), Rejection> {
    let room = &memory.room();
    let policy = settings.topology_manager.policy;
    let found = Search { memory, room, policy, chosen }.find(&|offer| {
        let hint = match chosen {
            Some(hint) => hint,
            None => affinity_without_cpus(machine, settings, devices, offer)?,
        };
        Ok((hint, hint))
    })?;
    Ok((found.nodes, found.others))
}

#[cfg(test)]
mod tests;
