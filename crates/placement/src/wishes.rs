//! [`Wishes`]: what a container asks for beyond the node's configuration.

use super::caches::{in_free_caches, whole_caches};
use super::cores::whole_cores;
use super::settings::{EngineKind, IsolatedCpus, Settings};
use super::strategy::UncoreOrder;
use super::topology_manager::{Scope, TopologyPolicy};
use cpuset::CpuSet;
use topology::Topology;

/// Where a container's CPUs should be in the machine's uncore caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uncore {
    /// In as few as have room now.
    Prefer,
    /// In as few as possible on this machine, otherwise refused.
    Require,
    /// Anywhere.
    Ignore,
    /// In the fewest that are free as a whole now, otherwise refused. The rest of them stays idle.
    Exclusive,
}

/// Where a container's CPUs should be in the machine's NUMA nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numa {
    /// In one, otherwise refused.
    Single,
    /// In as few as have room now, and in those that are nearest to each other.
    Closest,
    /// Where one is not enough: the same share in each.
    Spread,
}

/// How a container shares cores with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Smt {
    /// Not at all: all threads of its cores are its own.
    FullCores,
    /// Not at all, and it uses one thread of each core only; the others stay idle.
    Isolate,
}

/// What a container takes beside its own CPUs: no container gets these, and none runs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Margin {
    /// The SMT siblings of its CPUs (`smt: isolate`).
    pub siblings: bool,
    /// The rest of the uncore caches of its CPUs (`uncore: exclusive`).
    pub caches: bool,
}

impl Margin {
    pub const NONE: Margin = Margin { siblings: false, caches: false };

    /// All CPUs of the cores and caches that `cpus` touches, as far as they are in the margin.
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

    /// These CPUs of a container with the margin; reserved CPUs are never in it.
    pub fn footprint(&self, topology: &Topology, reserved: &CpuSet, cpus: &CpuSet) -> CpuSet {
        if *self == Margin::NONE {
            return *cpus;
        }
        (self.around(topology, cpus) - *reserved) | *cpus
    }
}

/// The wishes of one container. Without a wish the node's configuration holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Wishes {
    pub uncore: Option<Uncore>,
    pub numa: Option<Numa>,
    pub smt: Option<Smt>,
    /// How its CPUs are chosen.
    pub engine: Option<EngineKind>,
    pub isolated: Option<IsolatedCpus>,
}

impl Wishes {
    pub const NONE: Wishes =
        Wishes { uncore: None, numa: None, smt: None, engine: None, isolated: None };

    /// Whether it has no wish that an engine acts on.
    pub(super) fn are_of_node(&self) -> bool {
        Wishes { isolated: None, ..*self } == Wishes::NONE
    }

    /// Whether SMT siblings of its CPUs stay idle.
    pub fn isolates(&self) -> bool {
        self.smt == Some(Smt::Isolate)
    }

    /// Whether it has whole uncore caches.
    pub fn takes_caches(&self) -> bool {
        matches!(self.uncore, Some(Uncore::Exclusive))
    }

    pub fn margin(&self) -> Margin {
        Margin { siblings: self.isolates(), caches: self.takes_caches() }
    }

    /// These CPUs of a container, with those that are to stay idle for it.
    pub fn footprint(&self, topology: &Topology, reserved: &CpuSet, cpus: &CpuSet) -> CpuSet {
        self.margin().footprint(topology, reserved, cpus)
    }

    /// Whether, in pod scope, its NUMA affinity is its pod's.
    pub fn shares_affinity(&self) -> bool {
        self.numa.is_none() && self.isolated.is_none() && self.margin() == Margin::NONE
    }

    /// The node's settings, changed by these wishes. An option of the node that contradicts a wish
    /// gives way.
    ///
    /// A container with a wish about NUMA nodes or isolated CPUs, or one that takes more than it asks
    /// for, gets an affinity of its own, also in pod scope.
    pub fn settings(&self, node: &Settings) -> Settings {
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
            // The same share in each node is not the fewest nodes.
            (None, Some(Numa::Spread)) => EngineKind::Kubelet,
            (None, _) => node.engine,
        };
        if settings.engine == EngineKind::Compact {
            options.distribute_cpus_across_numa = false;
            options.distribute_cpus_across_cores = false;
            options.align_by_socket = false;
            options.uncore_order = UncoreOrder::default();
        }
        settings
    }

    /// The part of `free` that a container with these wishes may get.
    ///
    /// `held` are CPUs that it has already: on a core it keeps the thread that it has. Reserved CPUs
    /// must not be in `free`.
    pub fn offered(&self, topology: &Topology, free: &CpuSet, held: &CpuSet) -> CpuSet {
        let free = self.in_its_caches(topology, free, held);
        let cores = topology.cores().iter().map(|core| core.cpus);
        let whole = cores.filter(|core| core.is_subset(&free));
        match self.smt {
            None => free,
            Some(Smt::FullCores) => whole.collect(),
            Some(Smt::Isolate) => whole
                .map(|core| if (core & *held).is_empty() { core.lowest(1) } else { core & *held })
                .collect(),
        }
    }

    /// The part of `free` in uncore caches that a container with these wishes may use; `held` and
    /// `free` are as in [`offered`](Wishes::offered).
    pub fn in_its_caches(&self, topology: &Topology, free: &CpuSet, held: &CpuSet) -> CpuSet {
        if self.takes_caches() { in_free_caches(topology, free, held) } else { *free }
    }
}
