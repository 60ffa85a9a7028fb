//! [`badness()`]: how far a container's CPUs are from the best that the machine has for it.

use super::occupancy::{Occupancy, Room};
use crate::cores::whole_cores;
use crate::request::Request;
use crate::settings::IsolatedCpus;
use crate::topology_manager::TopologyPolicy;
use crate::wishes::{Smt, Uncore};
use cpuset::CpuSet;
use topology::Topology;

/// A NUMA node too many makes every access to memory slower that goes there; an uncore cache too
/// many costs less.
const NODE: usize = 3;
const CACHE: usize = 2;

/// How badly a container with this request is placed on `cpus`: 3 for each NUMA node and 2 for each
/// uncore cache more than it would need on the empty machine. NUMA nodes without its devices count
/// like those too many; with `uncore: ignore` caches do not count.
pub fn badness(machine: &Topology, request: &Request, cpus: &CpuSet) -> u32 {
    Needs::of(machine).need(request).badness(&Occupancy::of(machine, cpus))
}

/// What containers need at least on the empty machine; remembers the room for each kind of them.
pub(super) struct Needs<'t> {
    machine: &'t Topology,
    kinds: Vec<(Kind, Room)>,
}

/// What decides which CPUs a container could get on the empty machine.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    smt: Option<Smt>,
    takes_caches: bool,
    full_pcpus_only: bool,
    reserved: CpuSet,
    isolated: IsolatedCpus,
}

/// What one container needs at least.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) cpus: usize,
    nodes: usize,
    /// `None` if caches do not matter.
    caches: Option<usize>,
    /// The positions of the NUMA nodes of its devices.
    near: Vec<usize>,
    /// The container is refused with more NUMA nodes than this.
    most_nodes: Option<usize>,
    /// The container is refused with more uncore caches than this.
    most_caches: Option<usize>,
}

impl<'t> Needs<'t> {
    pub(super) fn of(machine: &'t Topology) -> Needs<'t> {
        Needs { machine, kinds: Vec::new() }
    }

    pub(super) fn need(&mut self, request: &Request) -> Need {
        let machine = self.machine;
        let settings = &request.settings;
        let cpus = request.cpus;
        let all = self.room(request);
        // More CPUs than the machine has: such a container is never placed.
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
                let together = request.pod.map_or(cpus, |pod| pod.cpus.max(cpus));
                Some(nodes_for(together).max(near.len()))
            }
            TopologyPolicy::SingleNumaNode => Some(1),
        };
        let uncore = request.wishes.uncore;
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
        let kind = Kind {
            smt: request.wishes.smt,
            takes_caches: request.wishes.takes_caches(),
            full_pcpus_only: settings.options.full_pcpus_only,
            reserved: settings.reserved,
            isolated: settings.isolated,
        };
        let at = match self.kinds.iter().position(|(known, _)| *known == kind) {
            Some(at) => at,
            None => {
                let all = self.machine.online() - kind.reserved;
                let mut all = kind.isolated.allowed(self.machine, &all);
                if kind.full_pcpus_only {
                    all -= whole_cores(self.machine, &kind.reserved);
                }
                let all = request.wishes.offered(self.machine, &all, &CpuSet::EMPTY);
                self.kinds.push((kind, Room::of(self.machine, &all)));
                self.kinds.len() - 1
            }
        };
        &self.kinds[at].1
    }
}

impl Need {
    /// How badly the container is placed on `cpus`, and what `taken` occupies: these, with those
    /// that stay idle around them, which can be on other NUMA nodes and do not count.
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
        let foreign = occupied.nodes().filter(|node| !self.near.contains(node)).count();
        let mut excess = nodes.saturating_sub(self.nodes);
        if !self.near.is_empty() {
            let unavoidable = self.nodes.saturating_sub(self.near.len());
            excess = excess.max(foreign.saturating_sub(unavoidable));
        }
        self.weighed(excess, occupied.caches())
    }

    /// The least badness that is possible with this room, by counts alone; `None` if the container
    /// has no room or would be refused.
    pub(super) fn least(&self, room: &Room) -> Option<u32> {
        let nodes = room.fewest_nodes(self.cpus)?;
        let caches = room.fewest_caches(self.cpus)?;
        let refused = self.most_nodes.is_some_and(|most| nodes > most)
            || self.most_caches.is_some_and(|most| caches > most);
        if refused { None } else { Some(self.weighed(nodes.saturating_sub(self.nodes), caches)) }
    }

    fn weighed(&self, excess_nodes: usize, caches: usize) -> u32 {
        let excess_caches = self.caches.map_or(0, |least| caches.saturating_sub(least));
        // Small numbers: a machine has far fewer nodes and caches than fit.
        u32::try_from(NODE * excess_nodes + CACHE * excess_caches).unwrap_or(u32::MAX)
    }
}
