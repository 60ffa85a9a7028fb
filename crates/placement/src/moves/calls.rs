//! [`Calls`]: calls the engine for a search, with a limit of work, so that a plan takes bounded
//! time.

use super::plan::{Limits, Resident};
use crate::engine::Placement;
use crate::place;
use crate::request::Request;
use cpuset::CpuSet;
use topology::{NumaNode, Topology};

pub(super) struct Calls<'t> {
    machine: &'t Topology,
    /// The work that is left, in calls for a request that fits one NUMA node.
    left: usize,
    /// The number of CPUs of the largest NUMA node.
    node: usize,
    /// The work of a call for a larger request, for which the engines compare sets of nodes.
    wide: usize,
}

impl<'t> Calls<'t> {
    pub(super) fn at_most(machine: &'t Topology, most: usize) -> Calls<'t> {
        let nodes = machine.nodes();
        let node = nodes.iter().map(|node| node.cpus.len()).max().unwrap_or_default();
        Calls { machine, left: most, node, wide: 1 + nodes.len() / 2 }
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The engine's answer; `None` if it refuses, or too little work is left.
    pub(super) fn place(&mut self, request: &Request) -> Option<Placement> {
        let work = if request.cpus > self.node { self.wide } else { 1 };
        let Some(left) = self.left.checked_sub(work) else {
            self.left = 0;
            return None;
        };
        self.left = left;
        place(self.machine, request).ok()
    }

    /// Where a resident could run if `free` were free, which may include its own CPUs. `None` if it
    /// would be refused, or would take more CPUs than it has now, which could break promises.
    pub(super) fn place_again(
        &mut self,
        resident: &Resident,
        free: &CpuSet,
        limits: &Limits,
    ) -> Option<CpuSet> {
        let Resident { held, mut request, .. } = *resident;
        request.free = *free;
        // An engine leaves the pod's affinity if that has too little room. A container that moves
        // must not.
        let affinity = request.pod.and_then(|pod| pod.chosen).and_then(|hint| hint.nodes);
        if !limits.across_numa_nodes || affinity.is_some() {
            let allowed = |node: &&NumaNode| {
                let is_used = !node.cpus.is_disjoint(&held);
                let may_enter = limits.across_numa_nodes
                    && affinity.is_none_or(|affinity| affinity.contains(node.id));
                is_used || may_enter
            };
            let nodes = self.machine.nodes().iter().filter(allowed);
            request.free &= nodes.map(|node| node.cpus).collect::<CpuSet>();
        }
        request.free = request.settings.isolated.allowed(self.machine, &request.free);
        let taken = request.footprint(self.machine, &held).len();
        request.promised = request.free.len().saturating_sub(taken);
        let cpus = self.place(&request)?.cpus;
        // A container does not move between isolated and other CPUs.
        let isolated = self.machine.isolated();
        if (cpus & isolated).len() != (held & isolated).len() {
            return None;
        }
        // Devices do not move, so the container must not get farther from them.
        let near = |cpus: &CpuSet| {
            let nodes = self.machine.nodes().iter();
            let near = nodes.filter(|node| resident.request.devices.all().contains(node.id));
            near.filter(|node| !node.cpus.is_disjoint(cpus)).count()
        };
        if near(&cpus) < near(&held) { None } else { Some(cpus) }
    }
}
