//! The machine for placement: flat lists of domains, each with the set of its CPUs.
//!
//! Only online CPUs are in domains. Numbers (`id`) are labels: they order domains and name them for
//! users, but nothing else follows from them. They may be sparse, and on some machines they are
//! shuffled.

use super::cells::Cells;
use super::tally::{Place, Tally};
use cpuset::{CpuSet, PastLimit};
use std::collections::BTreeMap;

/// The distance of a NUMA node to itself, by the definition of ACPI's SLIT.
pub const LOCAL_DISTANCE: u32 = 10;

/// Unchecked facts about a machine, from which [`Topology::build`] makes one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The online CPUs, in any order.
    pub cpus: Vec<Cpu>,
    pub offline: Vec<OfflineCpu>,
    /// NUMA nodes, including those without CPUs, in any order. [`Facts::cpus`] says which CPUs they
    /// have.
    pub nodes: Vec<NodeFacts>,
    /// CPUs taken from the scheduler's load balancing at boot (`isolcpus=`).
    pub isolated: CpuSet,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub id: usize,
    /// The distance to each node, in ascending order of node numbers (ACPI SLIT: 10 is local);
    /// empty if unknown.
    pub distances: Vec<u32>,
    pub memoryless: bool,
}

/// An online CPU (a hardware thread) and its domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    pub id: usize,
    /// The core. Unique on the machine; by convention the lowest number of its CPUs.
    pub core: usize,
    /// The uncore cache. Unique on the machine; by convention the lowest number of its CPUs.
    pub uncore: usize,
    pub numa: usize,
    /// The physical package.
    pub socket: usize,
    /// The die's number within the socket, if known.
    pub die: Option<usize>,
    /// `None` if unknown, as on machines that are not hybrid.
    pub kind: Option<CoreKind>,
}

/// The kind of a core on a hybrid machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreKind {
    /// Built for speed (the kernel's `cpu_core`).
    Performance,
    /// Built for low power (the kernel's `cpu_atom` and `cpu_lowpower`).
    Efficient,
}

/// A CPU that exists but is offline. The kernel reports little about such a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfflineCpu {
    pub id: usize,
    pub numa: Option<usize>,
    pub socket: Option<usize>,
}

/// A core, an uncore cache or a socket, with its online CPUs (at least one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// The number that [`Cpu`] names the domain by.
    pub id: usize,
    pub cpus: CpuSet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    pub id: usize,
    /// The online CPUs; empty for a node that has memory only.
    pub cpus: CpuSet,
    /// The distance to each node, in the order of [`Topology::nodes`]; empty if unknown.
    pub distances: Vec<u32>,
    pub memoryless: bool,
    /// `None` unless [`Topology::with_memory`] has set it.
    pub memory: Option<MemorySize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySize {
    /// Those of huge pages included.
    pub bytes: u64,
    /// The number of huge pages in pools, by the size of a page in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The known sizes of caches and memories. The choice of CPUs ignores them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// By the number of the uncore cache (see [`Cpu::uncore`]).
    pub caches: BTreeMap<usize, CacheSize>,
    /// Bytes of memory, by NUMA node; those of huge pages included.
    pub memory: BTreeMap<usize, u64>,
    /// By NUMA node: the number of huge pages in its pools, by the size of a page in bytes.
    pub huge_pages: BTreeMap<usize, BTreeMap<u64, u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// 3 for an L3.
    pub level: u32,
    pub bytes: Option<u64>,
}

/// A machine. All lists are ascending by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// By CPU number; `None` for offline CPUs.
    places: Vec<Option<Place>>,
    sizes: Tally,
    cores_are_equal: bool,
    cells: Cells,
    offline: Vec<OfflineCpu>,
    cores: Vec<Domain>,
    uncores: Vec<Domain>,
    nodes: Vec<NumaNode>,
    sockets: Vec<Domain>,
    online: CpuSet,
    isolated: CpuSet,
}

/// Why facts do not describe a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error("the machine has no online CPU")]
    NoCpus,
    #[error("CPU {0} is listed twice")]
    Twice(usize),
    #[error(transparent)]
    PastLimit(#[from] PastLimit),
}

impl Topology {
    /// Builds the machine from facts: groups CPUs into domains and orders everything by number.
    ///
    /// # Errors
    /// If no CPU is online, a CPU is listed twice, or a number is past the limit of [`CpuSet`].
    pub fn build(facts: Facts) -> Result<Topology, TopologyError> {
        let Facts { mut cpus, mut offline, nodes, isolated } = facts;
        cpus.sort_unstable_by_key(|cpu| cpu.id);
        offline.sort_unstable_by_key(|cpu| cpu.id);
        let mut online = CpuSet::EMPTY;
        for id in cpus.iter().map(|cpu| cpu.id) {
            if online.contains(id) {
                return Err(TopologyError::Twice(id));
            }
            online.insert(id)?;
        }
        if online.is_empty() {
            return Err(TopologyError::NoCpus);
        }
        let mut present = online;
        for id in offline.iter().map(|cpu| cpu.id) {
            if present.contains(id) {
                return Err(TopologyError::Twice(id));
            }
            present.insert(id)?;
        }
        let numa = group(&cpus, |cpu| cpu.numa)?;
        // A node may have CPUs but no facts. Facts of the same number replace this entry.
        let named = numa.iter().map(|node| NodeFacts { id: node.id, ..NodeFacts::default() });
        let known: BTreeMap<usize, NodeFacts> =
            named.chain(nodes).map(|node| (node.id, node)).collect();
        let nodes: Vec<NumaNode> = known
            .into_values()
            .map(|NodeFacts { id, distances, memoryless }| NumaNode {
                id,
                cpus: numa
                    .iter()
                    .find(|node| node.id == id)
                    .map_or(CpuSet::EMPTY, |node| node.cpus),
                distances,
                memoryless,
                memory: None,
            })
            .collect();
        let cores = group(&cpus, |cpu| cpu.core)?;
        let uncores = group(&cpus, |cpu| cpu.uncore)?;
        let sockets = group(&cpus, |cpu| cpu.socket)?;
        let node_ids: Vec<usize> = nodes.iter().map(|node| node.id).collect();
        let mut places = vec![None; cpus.last().map_or(0, |cpu| cpu.id + 1)];
        for cpu in &cpus {
            let place = Place {
                core: position(cores.binary_search_by_key(&cpu.core, |core| core.id)),
                uncore: position(uncores.binary_search_by_key(&cpu.uncore, |uncore| uncore.id)),
                node: position(node_ids.binary_search(&cpu.numa)),
                socket: position(sockets.binary_search_by_key(&cpu.socket, |socket| socket.id)),
            };
            if let Some(slot) = places.get_mut(cpu.id) {
                *slot = Some(place);
            }
        }
        let mut topology = Topology {
            cores,
            uncores,
            sockets,
            nodes,
            cpus,
            places,
            sizes: Tally::default(),
            cores_are_equal: true,
            cells: Cells::default(),
            offline,
            online,
            isolated,
        };
        topology.sizes = topology.tally(&online);
        topology.cores_are_equal = topology.sizes.cores.windows(2).all(|two| two[0] == two[1]);
        topology.cells = Cells::new(
            online.iter().filter_map(|cpu| Some((cpu, topology.place(cpu)?))),
            topology.nodes.iter().map(|node| node.distances.as_slice()),
        );
        Ok(topology)
    }

    /// This machine with the memory of its NUMA nodes, where `sizes` has it.
    #[must_use]
    pub fn with_memory(mut self, sizes: &Sizes) -> Topology {
        for node in &mut self.nodes {
            let huge_pages = sizes.huge_pages.get(&node.id).cloned().unwrap_or_default();
            let bytes = sizes.memory.get(&node.id).copied();
            node.memory = bytes.map(|bytes| MemorySize { bytes, huge_pages });
        }
        self
    }

    /// This machine with the memory of another one that has the same nodes.
    fn with_memory_of(mut self, other: &Topology) -> Topology {
        for (node, same) in self.nodes.iter_mut().zip(&other.nodes) {
            debug_assert_eq!(node.id, same.id, "other nodes");
            node.memory.clone_from(&same.memory);
        }
        self
    }

    /// Only online CPUs.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    pub fn cpu(&self, id: usize) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().and_then(|at| self.cpus.get(at))
    }

    /// The domains of a CPU, in constant time; `None` if the CPU is not online.
    pub fn place(&self, id: usize) -> Option<Place> {
        self.places.get(id).copied().flatten()
    }

    /// The number of online CPUs of `set` in each domain.
    pub fn tally(&self, set: &CpuSet) -> Tally {
        let mut tally = Tally {
            cores: vec![0; self.cores.len()],
            uncores: vec![0; self.uncores.len()],
            nodes: vec![0; self.nodes.len()],
            sockets: vec![0; self.sockets.len()],
        };
        set.iter().filter_map(|cpu| self.place(cpu)).for_each(|place| tally.add(place));
        tally
    }

    /// The number of online CPUs in each domain.
    pub fn sizes(&self) -> &Tally {
        &self.sizes
    }

    /// Whether all cores have as many online CPUs: not on hybrid machines, nor where some threads
    /// are offline.
    pub fn cores_are_equal(&self) -> bool {
        self.cores_are_equal
    }

    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    pub fn offline(&self) -> &[OfflineCpu] {
        &self.offline
    }

    pub fn cores(&self) -> &[Domain] {
        &self.cores
    }

    pub fn uncores(&self) -> &[Domain] {
        &self.uncores
    }

    /// All nodes, including those without CPUs.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    pub fn sockets(&self) -> &[Domain] {
        &self.sockets
    }

    pub fn online(&self) -> CpuSet {
        self.online
    }

    /// CPUs taken from the scheduler's load balancing at boot (`isolcpus=`).
    pub fn isolated(&self) -> CpuSet {
        self.isolated
    }

    /// The threads of the largest core: 1 without SMT.
    pub fn threads_per_core(&self) -> usize {
        self.cores.iter().map(|core| core.cpus.len()).max().unwrap_or(1)
    }

    /// This machine with only one CPU of each core, as if it had no SMT: the core's lowest CPU of
    /// `preferred`, or its lowest if none is preferred.
    pub fn with_one_cpu_per_core(&self, preferred: &CpuSet) -> Topology {
        let mut remaining = CpuSet::EMPTY;
        for core in &self.cores {
            let first = core.cpus & *preferred;
            remaining |= if first.is_empty() { core.cpus.lowest(1) } else { first.lowest(1) };
        }
        let facts = Facts {
            cpus: self.cpus.iter().filter(|cpu| remaining.contains(cpu.id)).copied().collect(),
            offline: Vec::new(),
            nodes: self.node_facts(),
            isolated: self.isolated & remaining,
        };
        // Cannot fail: a machine has at least one core.
        Topology::build(facts).map_or_else(|_| self.clone(), |built| built.with_memory_of(self))
    }

    /// This machine with `cpus` offline.
    ///
    /// # Errors
    /// If no CPU is left online.
    pub fn without(&self, cpus: &CpuSet) -> Result<Topology, TopologyError> {
        let (gone, left): (Vec<Cpu>, Vec<Cpu>) =
            self.cpus.iter().partition(|cpu| cpus.contains(cpu.id));
        let gone = gone.iter().map(|&Cpu { id, numa, socket, .. }| OfflineCpu {
            id,
            numa: Some(numa),
            socket: Some(socket),
        });
        let built = Topology::build(Facts {
            cpus: left,
            offline: self.offline.iter().copied().chain(gone).collect(),
            nodes: self.node_facts(),
            isolated: self.isolated,
        })?;
        Ok(built.with_memory_of(self))
    }

    fn node_facts(&self) -> Vec<NodeFacts> {
        let facts = |node: &NumaNode| NodeFacts {
            id: node.id,
            distances: node.distances.clone(),
            memoryless: node.memoryless,
        };
        self.nodes.iter().map(facts).collect()
    }

    /// The number of NUMA nodes with CPUs.
    pub fn cpu_nodes(&self) -> usize {
        self.sizes.nodes.iter().filter(|&&cpus| cpus > 0).count()
    }
}

/// The position of a domain in its list. The list has it, because it was grouped from the same
/// CPUs.
fn position(search: Result<usize, usize>) -> u16 {
    debug_assert!(search.is_ok(), "a domain of no CPU");
    let (Ok(at) | Err(at)) = search;
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Groups CPUs by a domain's number, ascending.
fn group(cpus: &[Cpu], id: impl Fn(&Cpu) -> usize) -> Result<Vec<Domain>, PastLimit> {
    let mut domains: BTreeMap<usize, CpuSet> = BTreeMap::new();
    for cpu in cpus {
        domains.entry(id(cpu)).or_default().insert(cpu.id)?;
    }
    Ok(domains.into_iter().map(|(id, cpus)| Domain { id, cpus }).collect())
}
