//! [`Request`]: with the machine, everything that an engine's answer depends on.

use super::devices::DeviceNodes;
use super::hint::Hint;
use super::memory_manager::MemoryOffer;
use super::pod_options::PodOptions;
use super::rejection::Rejection;
use super::settings::PlacementSettings;
use super::topology_manager::TopologyPolicy;
use cpuset::{CpuSet, NodeSet};
use topology::Topology;

/// A request for exclusive CPUs. The ledger keeps it to explain the decision later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub cpus: usize,
    /// CPUs that are exclusive to no other container, including those of the container itself.
    /// Reserved and offline CPUs may be among them: an engine never gives them out. The settings
    /// say which isolated CPUs it may give out.
    pub free: CpuSet,
    pub reuse: Reuse,
    /// How many CPUs must stay free for other pods, of those in `free` that this container may get.
    pub promised: usize,
    /// The demand of the whole pod in pod scope (KEP-693); `None` in container scope.
    pub pod: Option<PodDemand>,
    pub pod_options: PodOptions,
    pub devices: DeviceNodes,
    /// Where the memory is that the CPUs' NUMA nodes should have: the container's or, in pod scope,
    /// the pod's. `None` if memory is not counted.
    pub memory: Option<MemoryOffer>,
    /// The node's settings, with the pod options applied ([`PodOptions::settings`]).
    pub settings: PlacementSettings,
}

impl Request {
    /// Whether it asks for more CPUs than are left, wherever these lie.
    pub fn exceeds_free(&self, machine: &Topology) -> bool {
        let left = self.settings.isolated.allowed(machine, &(self.free | self.reuse.cpus));
        self.cpus.saturating_add(self.promised) > left.len()
    }
}

/// CPUs that the pod holds and that none of its containers uses: mostly those of ended init
/// containers. The container uses them again where the result is no worse than with free ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reuse {
    pub cpus: CpuSet,
    /// How many of the CPUs that the container leaves stay with the pod, because its budget covers
    /// them. The others become free.
    pub kept: usize,
}

impl Reuse {
    pub const NONE: Reuse = Reuse { cpus: CpuSet::EMPTY, kept: 0 };

    pub(super) fn within(self, part: CpuSet) -> Reuse {
        Reuse { cpus: self.cpus & part, ..self }
    }
}

/// The demand of a whole pod, from which its NUMA affinity follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDemand {
    /// The number of CPUs that the affinity must hold.
    pub cpus: usize,
    /// CPUs that containers of the pod hold. The affinity must include their NUMA nodes.
    pub held: CpuSet,
    /// The affinity that the engine chose with an earlier container of the pod, if it was for as
    /// many CPUs.
    pub chosen: Option<Hint>,
}

/// What a running container holds before a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// No exclusive CPUs: it used the shared pool.
    Shared,
    /// Exclusive CPUs, more or fewer than the new request.
    Exclusive(CpuSet),
    /// The rest of its exclusive CPUs, possibly none, after the others went offline. The request
    /// did not change.
    Reduced {
        left: CpuSet,
        /// Online CPUs of cores that lost a thread.
        broken: CpuSet,
    },
}

impl Running {
    pub fn held(&self) -> CpuSet {
        match self {
            Running::Shared => CpuSet::EMPTY,
            Running::Exclusive(held) => *held,
            Running::Reduced { left, .. } => *left,
        }
    }
}

impl Request {
    /// A request with these pod options, on a node with these settings, and nothing else.
    pub fn new(
        cpus: usize,
        free: CpuSet,
        pod_options: PodOptions,
        node: &PlacementSettings,
    ) -> Request {
        Request {
            cpus,
            free,
            reuse: Reuse::NONE,
            promised: 0,
            pod: None,
            pod_options,
            devices: DeviceNodes::NONE,
            memory: None,
            settings: pod_options.settings(node),
        }
    }

    /// The rejection of this request for whole caches. `usable` are the CPUs that it could get
    /// without that pod option; the container holds `held`.
    pub(super) fn too_few_caches(
        &self,
        topology: &Topology,
        usable: &CpuSet,
        held: &CpuSet,
    ) -> Rejection {
        let reserved = &self.settings.reserved;
        let offered = self.pod_options.offered(topology, usable, held) | *held;
        let caches = || topology.uncores().iter().map(|cache| cache.cpus);
        let free = caches().filter(|cache| !cache.is_disjoint(&offered)).count();
        let blocked = caches().filter(|cache| !cache.is_disjoint(reserved)).count();
        Rejection::not_enough_whole_caches(self.cpus, free, offered.len(), blocked)
    }

    /// This request, but for `cpus` CPUs of a machine without other containers.
    pub(super) fn alone(&self, machine: &Topology, cpus: usize) -> Request {
        let pod = self.pod.map(|pod| PodDemand {
            cpus: pod.cpus.saturating_sub(self.cpus) + cpus,
            held: CpuSet::EMPTY,
            chosen: None,
        });
        let free = machine.online();
        Request { cpus, free, reuse: Reuse::NONE, promised: 0, pod, memory: None, ..*self }
    }

    /// This request under a policy that admits every NUMA affinity.
    pub(super) fn on_any_nodes(&self) -> Request {
        let mut request = *self;
        let policy = &mut request.settings.topology_manager.policy;
        if *policy != TopologyPolicy::None {
            *policy = TopologyPolicy::BestEffort;
        }
        request
    }

    /// This request for CPUs of these NUMA nodes only.
    pub(super) fn on_nodes(&self, machine: &Topology, nodes: NodeSet) -> Request {
        let within = machine.nodes().iter().filter(|node| nodes.contains(node.id));
        let within: CpuSet = within.map(|node| node.cpus).collect();
        let reuse = self.reuse.within(within);
        Request { free: self.free & within, reuse, memory: None, ..*self }
    }

    /// `cpus`, and the CPUs that stay idle around them ([`Margin`](super::pod_options::Margin)).
    pub fn footprint(&self, machine: &Topology, cpus: &CpuSet) -> CpuSet {
        self.pod_options.footprint(machine, &self.settings.reserved, cpus)
    }
}
