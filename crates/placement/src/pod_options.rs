//! [`PodOptions`]: the annotations by which a container overrides the node's configuration.

use super::caches::{in_free_caches, whole_caches};
use super::cores::{only_whole_cores, whole_cores};
use super::settings::{EngineKind, IsolatedCpus, PlacementSettings};
use super::strategy::UncoreOrder;
use super::topology_manager::{Scope, TopologyPolicy};
use cpuset::CpuSet;
use topology::Topology;

/// In which uncore caches a container's CPUs should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uncore {
    /// In the fewest that have room now.
    Prefer,
    /// In the fewest that could hold them on the empty machine; otherwise the container is refused.
    Require,
    /// Anywhere.
    Ignore,
    /// In the fewest that are entirely free now; otherwise the container is refused. The rest of
    /// these caches stays idle.
    Exclusive,
}

/// In which NUMA nodes a container's CPUs should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numa {
    /// In one; otherwise the container is refused.
    Single,
    /// In the fewest that have room now, and of these in the nearest to each other.
    Closest,
    /// Equal shares in several where one is too small.
    Spread,
}

/// How a container uses the threads of its cores. Either way it shares no core with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Smt {
    /// All threads are exclusive to it.
    FullCores,
    /// It uses one thread of each core; the others stay idle.
    Isolate,
}

/// The CPUs around a container's own that stay idle: no container may run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Margin {
    /// The SMT siblings of its CPUs (`smt: isolate`).
    pub siblings: bool,
    /// The rest of the uncore caches of its CPUs (`uncore: exclusive`).
    pub caches: bool,
}

impl Margin {
    pub const NONE: Margin = Margin { siblings: false, caches: false };

    /// `cpus` and the margin around them.
    pub fn around(&self, topology: &Topology, cpus: &CpuSet) -> CpuSet {
        let mut all = *cpus;
        if self.siblings {
            all |= whole_cores(topology, cpus);
        }
        if self.caches {
            all |= whole_caches(topology, cpus);
        }
        all
    }

    /// The container's `cpus` and the margin around them, without reserved CPUs.
    pub fn footprint(&self, topology: &Topology, reserved: &CpuSet, cpus: &CpuSet) -> CpuSet {
        if *self == Margin::NONE {
            return *cpus;
        }
        (self.around(topology, cpus) - *reserved) | *cpus
    }
}

/// The pod options of one container. `None` leaves the node's configuration in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct PodOptions {
    pub uncore: Option<Uncore>,
    pub numa: Option<Numa>,
    pub smt: Option<Smt>,
    pub engine: Option<EngineKind>,
    pub isolated: Option<IsolatedCpus>,
}

impl PodOptions {
    pub const NONE: PodOptions =
        PodOptions { uncore: None, numa: None, smt: None, engine: None, isolated: None };

    /// Whether no pod option changes what an engine does. Engines know nothing of isolated CPUs.
    pub(super) fn are_default_for_engines(&self) -> bool {
        PodOptions { isolated: None, ..*self } == PodOptions::NONE
    }

    /// Whether the SMT siblings of the container's CPUs stay idle.
    pub fn isolates(&self) -> bool {
        self.smt == Some(Smt::Isolate)
    }

    /// Whether the container gets whole uncore caches.
    pub fn takes_caches(&self) -> bool {
        matches!(self.uncore, Some(Uncore::Exclusive))
    }

    pub fn margin(&self) -> Margin {
        Margin { siblings: self.isolates(), caches: self.takes_caches() }
    }

    /// The container's `cpus`, and the CPUs that stay idle around them.
    pub fn footprint(&self, topology: &Topology, reserved: &CpuSet, cpus: &CpuSet) -> CpuSet {
        self.margin().footprint(topology, reserved, cpus)
    }

    /// Whether in pod scope the container uses the NUMA affinity of its pod.
    pub fn shares_affinity(&self) -> bool {
        self.numa.is_none() && self.isolated.is_none() && self.margin() == Margin::NONE
    }

    /// The node's settings, changed by these pod options. A pod option overrides the options that
    /// contradict it.
    ///
    /// Even in pod scope, a container with a pod option about NUMA nodes or isolated CPUs, or with CPUs
    /// that stay idle, has a separate affinity.
    pub fn settings(&self, node: &PlacementSettings) -> PlacementSettings {
        let mut settings = *node;
        let options = &mut settings.options;
        let manager = &mut settings.topology_manager;
        match self.uncore {
            Some(Uncore::Prefer | Uncore::Require | Uncore::Exclusive) => {
                options.prefer_align_cpus_by_uncorecache = true;
                options.distribute_cpus_across_numa = false;
                options.distribute_cpus_across_cores = false;
            }
            Some(Uncore::Ignore) => options.prefer_align_cpus_by_uncorecache = false,
            None => {}
        }
        match self.numa {
            Some(Numa::Single) => {
                manager.policy = TopologyPolicy::SingleNumaNode;
                options.align_by_socket = false;
            }
            Some(Numa::Closest) => {
                manager.prefer_closest_numa_nodes = true;
                if manager.policy == TopologyPolicy::None {
                    manager.policy = TopologyPolicy::BestEffort;
                }
            }
            Some(Numa::Spread) => {
                options.distribute_cpus_across_numa = true;
                options.prefer_align_cpus_by_uncorecache = false;
                options.distribute_cpus_across_cores = false;
            }
            None => {}
        }
        if !self.shares_affinity() {
            manager.scope = Scope::Container;
        }
        if self.smt == Some(Smt::FullCores) {
            options.full_pcpus_only = true;
            options.distribute_cpus_across_cores = false;
        }
        settings.isolated = self.isolated.unwrap_or(node.isolated);
        settings.engine = match (self.engine, self.numa) {
            (Some(engine), _) => engine,
            // `compact` takes the fewest nodes, which contradicts equal shares.
            (None, Some(Numa::Spread)) => EngineKind::Kubelet,
            (None, _) => node.engine,
        };
        // The pod option for `compact` overrides the options that `check_engine` would refuse.
        if settings.engine == EngineKind::Compact {
            options.distribute_cpus_across_numa = false;
            options.distribute_cpus_across_cores = false;
            options.align_by_socket = false;
            options.uncore_order = UncoreOrder::default();
        }
        settings
    }

    /// The part of `free` that a container with these pod options may get.
    ///
    /// `held` are the CPUs that it has already: on their cores it keeps these threads. `free` must
    /// not have reserved CPUs.
    pub fn offered(&self, topology: &Topology, free: &CpuSet, held: &CpuSet) -> CpuSet {
        let free = self.in_its_caches(topology, free, held);
        if self.smt.is_none() {
            return free;
        }
        let free = only_whole_cores(topology, &free);
        if !self.isolates() {
            return free;
        }
        let cores = topology.cores().iter().map(|core| core.cpus & free);
        cores
            .map(|core| if core.is_disjoint(held) { core.lowest(1) } else { core & *held })
            .collect()
    }

    /// The part of `free` in uncore caches that a container with these pod options may use; `held` and
    /// `free` are as in [`offered`](PodOptions::offered).
    pub fn in_its_caches(&self, topology: &Topology, free: &CpuSet, held: &CpuSet) -> CpuSet {
        if self.takes_caches() { in_free_caches(topology, free, held) } else { *free }
    }
}
