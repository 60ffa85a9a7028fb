//! [`badness()`]: how far a container's CPUs are from the best that the machine has for it.

use super::occupancy::{Occupancy, Room};
use crate::cores::whole_cores;
use crate::pod_options::{Smt, Uncore};
use crate::request::Request;
use crate::settings::IsolatedCpus;
use crate::topology_manager::TopologyPolicy;
use cpuset::CpuSet;
use topology::Topology;

/// An additional NUMA node costs more than an uncore cache: accesses to its memory are slower.
const NODE: usize = 3;
const CACHE: usize = 2;

/// How badly a container with this request is placed on `cpus`: 3 for each NUMA node and 2 for each
/// uncore cache in excess of its need on the empty machine. NUMA nodes without its devices count as
/// excess, too. With `uncore: ignore` caches do not count.
pub fn badness(machine: &Topology, request: &Request, cpus: &CpuSet) -> u32 {
    Needs::of(machine).need(request).badness(&Occupancy::of(machine, cpus))
}

/// Computes what containers need on the empty machine, and caches the room there by
/// [`Constraints`].
pub(super) struct Needs<'t> {
    machine: &'t Topology,
    rooms: Vec<(Constraints, Room)>,
}

/// The parts of a request on which the CPUs depend that it could get on the empty machine.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Constraints {
    smt: Option<Smt>,
    takes_caches: bool,
    full_pcpus_only: bool,
    reserved: CpuSet,
    isolated: IsolatedCpus,
}

/// The least that a container needs on the empty machine.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) cpus: usize,
    nodes: usize,
    /// `None` if caches do not matter.
    caches: Option<usize>,
    /// The positions of the NUMA nodes of its devices.
    near: Vec<usize>,
    /// With more NUMA nodes the container is refused.
    most_nodes: Option<usize>,
    /// With more uncore caches the container is refused.
    most_caches: Option<usize>,
}

impl<'t> Needs<'t> {
    pub(super) fn of(machine: &'t Topology) -> Needs<'t> {
        Needs { machine, rooms: Vec::new() }
    }

    pub(super) fn need(&mut self, request: &Request) -> Need {
        let machine = self.machine;
        let settings = &request.settings;
        let cpus = request.cpus;
        let all = self.room(request);
        // The maximum stands for a request that exceeds the machine, which is never placed.
        let nodes_for = |n| all.fewest_nodes(n).unwrap_or(usize::MAX);
        let nodes = nodes_for(cpus);
        let caches = all.fewest_caches(cpus).unwrap_or(usize::MAX);
        let listed = machine.nodes().iter().enumerate();
        let near: Vec<usize> = listed
            .filter(|(_, node)| request.devices.all().contains(node.id))
            .map(|(at, _)| at)
            .collect();
        let most_nodes = match settings.topology_manager.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => None,
            // Several NUMA nodes of one socket are as good as one.
            _ if settings.options.align_by_socket => None,
            TopologyPolicy::Restricted => {
                let pod_cpus = request.pod.map_or(cpus, |pod| pod.cpus.max(cpus));
                Some(nodes_for(pod_cpus).max(near.len()))
            }
            TopologyPolicy::SingleNumaNode => Some(1),
        };
        let uncore = request.pod_options.uncore;
        Need {
            cpus,
            nodes,
            caches: if uncore == Some(Uncore::Ignore) { None } else { Some(caches) },
            near,
            most_nodes,
            most_caches: if uncore == Some(Uncore::Require) { Some(caches) } else { None },
        }
    }

    /// The room that a container with this request has on the empty machine.
    fn room(&mut self, request: &Request) -> &Room {
        let settings = &request.settings;
        let constraints = Constraints {
            smt: request.pod_options.smt,
            takes_caches: request.pod_options.takes_caches(),
            full_pcpus_only: settings.options.full_pcpus_only,
            reserved: settings.reserved,
            isolated: settings.isolated,
        };
        let at = match self.rooms.iter().position(|(known, _)| *known == constraints) {
            Some(at) => at,
            None => {
                let all = self.machine.online() - constraints.reserved;
                let mut all = constraints.isolated.allowed(self.machine, &all);
                if constraints.full_pcpus_only {
                    all -= whole_cores(self.machine, &constraints.reserved);
                }
                let all = request.pod_options.offered(self.machine, &all, &CpuSet::EMPTY);
                self.rooms.push((constraints, Room::of(self.machine, &all)));
                self.rooms.len() - 1
            }
        };
        &self.rooms[at].1
    }
}

impl Need {
    /// The badness of `cpus`, and the occupancy of `taken`, which also has the CPUs that stay idle
    /// around them. Idle CPUs can be on other NUMA nodes and do not count as badness.
    pub(super) fn weigh(
        &self,
        machine: &Topology,
        cpus: &CpuSet,
        taken: &CpuSet,
    ) -> (u32, Occupancy) {
        let occupancy = Occupancy::of(machine, taken);
        let badness = if taken == cpus {
            self.badness(&occupancy)
        } else {
            self.badness(&Occupancy::of(machine, cpus))
        };
        (badness, occupancy)
    }

    pub(super) fn badness(&self, occupied: &Occupancy) -> u32 {
        let nodes = occupied.nodes().count();
        let without_devices = occupied.nodes().filter(|node| !self.near.contains(node)).count();
        let mut excess = nodes.saturating_sub(self.nodes);
        if !self.near.is_empty() {
            // The nodes of the devices may be too few for the CPUs.
            let unavoidable = self.nodes.saturating_sub(self.near.len());
            excess = excess.max(without_devices.saturating_sub(unavoidable));
        }
        self.weighed(excess, occupied.caches())
    }

    /// A lower bound of the badness with this room, by counts alone; `None` if the container has no
    /// room or would be refused.
    pub(super) fn least(&self, room: &Room) -> Option<u32> {
        let nodes = room.fewest_nodes(self.cpus)?;
        let caches = room.fewest_caches(self.cpus)?;
        let refused = self.most_nodes.is_some_and(|most| nodes > most)
            || self.most_caches.is_some_and(|most| caches > most);
        if refused { None } else { Some(self.weighed(nodes.saturating_sub(self.nodes), caches)) }
    }

    fn weighed(&self, excess_nodes: usize, caches: usize) -> u32 {
        let excess_caches = self.caches.map_or(0, |least| caches.saturating_sub(least));
        // The sum always fits: machines have few nodes and caches.
        u32::try_from(NODE * excess_nodes + CACHE * excess_caches).unwrap_or(u32::MAX)
    }
}
