//! A machine as a file: `topology --save` writes it, `simulate --topology` and `topology --from`
//! read it, and the JSON of `status` has it. Domains are lists of CPUs, so that a person can read
//! and change the file. It has nothing about containers. docs/simulate.md is the reference.

use cpuset::{CpuSet, ParseError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology::model::{NodeFacts, OfflineCpu};
use topology::{CacheSize, Sizes};
use topology::{CoreKind, Cpu, Facts, Topology, TopologyError};

/// Changes when a field is removed or changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// A machine. CPUs are lists in the kernel's format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineFile {
    /// Of this form.
    pub version: u32,
    /// Sockets that have online CPUs.
    pub sockets: Vec<Part>,
    /// All NUMA nodes.
    pub numa_nodes: Vec<MachineNode>,
    /// Uncore caches (L3), by their lowest CPU.
    pub uncore_caches: Vec<Cache>,
    /// The online CPUs of each core, by the lowest one.
    pub cores: Vec<String>,
    /// If known, by socket; numbers restart in each socket.
    pub dies: Vec<Part>,
    /// Online CPUs, on hybrid machines.
    pub performance_cpus: String,
    /// Online CPUs, on hybrid machines.
    pub efficient_cpus: String,
    /// CPUs that are not online, or in cpuset partitions of other programs.
    pub offline_cpus: Vec<Offline>,
    /// CPUs that the kernel was booted to isolate (`isolcpus=`).
    pub isolated_cpus: String,
}

/// A socket or a die.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// The kernel's number.
    pub id: usize,
    /// Online.
    pub cpus: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineNode {
    /// The kernel's number.
    pub id: usize,
    /// Online; empty for a node that has memory only.
    pub cpus: String,
    /// Its distances to the NUMA nodes of this list, in their order, as the kernel says: 10 is its own.
    pub distances: Vec<u32>,
    /// Its memory in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// The number of huge pages in its pools, by the size of a page in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Whether it has no memory.
    pub memoryless: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cache {
    /// Its lowest CPU.
    pub id: usize,
    /// Online.
    pub cpus: String,
    /// 3 for an L3.
    pub level: Option<u32>,
    /// Its size in bytes, if known.
    pub bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offline {
    /// Its number.
    pub cpu: usize,
    /// Its NUMA node, if known.
    pub numa_node: Option<usize>,
    /// Its socket, if known.
    pub socket: Option<usize>,
}

/// `what` is a kind of domain.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineFileError {
    #[error("format version {0}, but this program reads version {VERSION}")]
    Version(u32),
    #[error("{0}: {1}")]
    List(&'static str, ParseError),
    #[error("CPU {cpu} is in two {what}")]
    Twice { cpu: usize, what: &'static str },
    #[error("two {what} have the number {id}")]
    Number { what: &'static str, id: usize },
    #[error("CPU {cpu} is in none of the {what}")]
    Missing { cpu: usize, what: &'static str },
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

impl MachineFile {
    /// `sizes` are the known sizes of caches and memories.
    pub fn of(topology: &Topology, sizes: &Sizes) -> MachineFile {
        let mut dies: BTreeMap<(usize, usize), CpuSet> = BTreeMap::new();
        let mut kinds: BTreeMap<CoreKind, CpuSet> = BTreeMap::new();
        for cpu in topology.cpus() {
            // A number out of a topology fits into a set.
            let one = CpuSet::of(cpu.id).unwrap_or_default();
            if let Some(die) = cpu.die {
                *dies.entry((cpu.socket, die)).or_default() |= one;
            }
            if let Some(kind) = cpu.kind {
                *kinds.entry(kind).or_default() |= one;
            }
        }
        // A core has its number from a CPU that may be offline.
        let mut cores: Vec<CpuSet> = topology.cores().iter().map(|core| core.cpus).collect();
        cores.sort_by_key(|cpus| cpus.iter().next());
        let of_kind = |kind| kinds.get(&kind).copied().unwrap_or_default().to_string();
        MachineFile {
            version: VERSION,
            sockets: topology
                .sockets()
                .iter()
                .map(|one| Part { id: one.id, cpus: one.cpus.to_string() })
                .collect(),
            numa_nodes: topology
                .nodes()
                .iter()
                .map(|one| MachineNode {
                    id: one.id,
                    cpus: one.cpus.to_string(),
                    distances: one.distances.clone(),
                    memory_bytes: sizes.memory.get(&one.id).copied(),
                    huge_pages: sizes.huge_pages.get(&one.id).cloned().unwrap_or_default(),
                    memoryless: one.memoryless,
                })
                .collect(),
            uncore_caches: topology
                .uncores()
                .iter()
                .map(|one| Cache {
                    id: one.id,
                    cpus: one.cpus.to_string(),
                    level: sizes.caches.get(&one.id).map(|size| size.level),
                    bytes: sizes.caches.get(&one.id).and_then(|size| size.bytes),
                })
                .collect(),
            cores: cores.iter().map(ToString::to_string).collect(),
            dies: dies.iter().map(|(&(_, id), cpus)| Part { id, cpus: cpus.to_string() }).collect(),
            performance_cpus: of_kind(CoreKind::Performance),
            efficient_cpus: of_kind(CoreKind::Efficient),
            offline_cpus: topology
                .offline()
                .iter()
                .map(|one| Offline { cpu: one.id, numa_node: one.numa, socket: one.socket })
                .collect(),
            isolated_cpus: topology.isolated().to_string(),
        }
    }

    pub fn read(&self) -> Result<(Topology, Sizes), MachineFileError> {
        if self.version != VERSION {
            return Err(MachineFileError::Version(self.version));
        }
        numbered("sockets", self.sockets.iter().map(|one| one.id))?;
        numbered("NUMA nodes", self.numa_nodes.iter().map(|one| one.id))?;
        numbered("uncore caches", self.uncore_caches.iter().map(|one| one.id))?;
        let socket = of("sockets", self.sockets.iter().map(|one| (one.id, &one.cpus)))?;
        let node = of("NUMA nodes", self.numa_nodes.iter().map(|one| (one.id, &one.cpus)))?;
        let cache = of("uncore caches", self.uncore_caches.iter().map(|one| (one.id, &one.cpus)))?;
        let die = of("dies", self.dies.iter().map(|one| (one.id, &one.cpus)))?;
        let core = of("cores", self.cores.iter().enumerate())?;
        // A core's number is its lowest CPU's, by convention; each core has one here.
        let mut lowest = BTreeMap::new();
        for (cpu, core) in &core {
            lowest.entry(*core).or_insert(*cpu);
        }
        let performance = parse("performance_cpus", &self.performance_cpus)?;
        let efficient = parse("efficient_cpus", &self.efficient_cpus)?;
        if let Some(cpu) = (performance & efficient).iter().next() {
            return Err(MachineFileError::Twice { cpu, what: "kinds of cores" });
        }
        let mut cpus = Vec::new();
        for id in socket.keys().chain(node.keys()).chain(cache.keys()).chain(core.keys()) {
            let domain = |of: &BTreeMap<usize, usize>, what| {
                of.get(id).copied().ok_or(MachineFileError::Missing { cpu: *id, what })
            };
            cpus.push(Cpu {
                id: *id,
                socket: domain(&socket, "sockets")?,
                numa: domain(&node, "NUMA nodes")?,
                uncore: domain(&cache, "uncore caches")?,
                core: lowest[&domain(&core, "cores")?],
                die: die.get(id).copied(),
                kind: match (performance.contains(*id), efficient.contains(*id)) {
                    (true, _) => Some(CoreKind::Performance),
                    (_, true) => Some(CoreKind::Efficient),
                    _ => None,
                },
            });
        }
        cpus.sort_by_key(|cpu| cpu.id);
        cpus.dedup();
        let offline =
            |one: &Offline| OfflineCpu { id: one.cpu, numa: one.numa_node, socket: one.socket };
        let facts = Facts {
            cpus,
            offline: self.offline_cpus.iter().map(offline).collect(),
            nodes: self
                .numa_nodes
                .iter()
                .map(|one| NodeFacts {
                    id: one.id,
                    distances: one.distances.clone(),
                    memoryless: one.memoryless,
                })
                .collect(),
            isolated: parse("isolated_cpus", &self.isolated_cpus)?,
        };
        let sizes = self.sizes();
        Ok((Topology::build(facts)?.with_memory(&sizes), sizes))
    }

    fn sizes(&self) -> Sizes {
        let caches = self.uncore_caches.iter();
        let memory = self.numa_nodes.iter();
        let pools = self.numa_nodes.iter().filter(|one| !one.huge_pages.is_empty());
        Sizes {
            caches: caches
                .filter_map(|one| Some((one.id, CacheSize { level: one.level?, bytes: one.bytes })))
                .collect(),
            memory: memory.filter_map(|one| Some((one.id, one.memory_bytes?))).collect(),
            huge_pages: pools.map(|one| (one.id, one.huge_pages.clone())).collect(),
        }
    }
}

fn parse(field: &'static str, list: &str) -> Result<CpuSet, MachineFileError> {
    list.parse().map_err(|error| MachineFileError::List(field, error))
}

/// Checks that domains of a kind have different numbers. Not for dies: their numbers restart in each
/// socket.
fn numbered(what: &'static str, ids: impl Iterator<Item = usize>) -> Result<(), MachineFileError> {
    let mut known = BTreeSet::new();
    for id in ids {
        if !known.insert(id) {
            return Err(MachineFileError::Number { what, id });
        }
    }
    Ok(())
}

/// The domain of a kind that each CPU is in.
fn of<'a>(
    what: &'static str,
    domains: impl Iterator<Item = (usize, &'a String)>,
) -> Result<BTreeMap<usize, usize>, MachineFileError> {
    let mut of = BTreeMap::new();
    for (id, list) in domains {
        for cpu in &parse(what, list)? {
            if of.insert(cpu, id).is_some() {
                return Err(MachineFileError::Twice { cpu, what });
            }
        }
    }
    Ok(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::synthetic::{Machine, Numbering};

    fn rich() -> Topology {
        let machine = Machine {
            sockets: 2,
            dies: 2,
            nodes: 2,
            caches: 2,
            cores: 6,
            threads: 2,
            efficient: 2,
            memory_only: 1,
            offline: "3,9".parse().unwrap(),
            isolated: "4-5".parse().unwrap(),
            ..Machine::default()
        };
        machine.topology().unwrap()
    }

    #[test]
    fn a_machine_is_read_as_it_was_saved() {
        let topology = rich();
        let sizes = Sizes {
            caches: [(0, CacheSize { level: 3, bytes: Some(32 << 20) })].into(),
            memory: [(0, 1 << 34), (4, 1 << 35)].into(),
            huge_pages: [(0, [(2 << 20, 512), (1 << 30, 0)].into())].into(),
        };
        let topology = topology.with_memory(&sizes);
        let text = serde_yaml::to_string(&MachineFile::of(&topology, &sizes)).unwrap();
        let read: MachineFile = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read.read().unwrap(), (topology.clone(), sizes), "{text}");
        let smaller = topology.without(&"0-1".parse().unwrap()).unwrap();
        for (node, same) in smaller.nodes().iter().zip(topology.nodes()) {
            assert_eq!(node.memory, same.memory, "node {}", node.id);
        }
    }

    /// A core keeps its number when the CPU of that number goes offline.
    #[test]
    fn cores_are_in_the_order_of_their_online_cpus() {
        let numbering = Numbering::Interleaved;
        let machine = Machine { cores: 4, threads: 2, numbering, ..Machine::default() };
        let smaller = machine.topology().unwrap().without(&"0".parse().unwrap()).unwrap();
        let file = MachineFile::of(&smaller, &Sizes::default());
        assert_eq!(file.cores, ["1,5", "2,6", "3,7", "4"]);
        let (read, sizes) = file.read().unwrap();
        assert_eq!(MachineFile::of(&read, &sizes), file);
    }

    #[test]
    fn a_file_that_contradicts_itself_is_refused() {
        let good = MachineFile::of(&rich(), &Sizes::default());
        let error = |change: &dyn Fn(&mut MachineFile)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.read().unwrap_err().to_string()
        };
        assert_eq!(
            error(&|bad| bad.version = 2),
            "format version 2, but this program reads version 1"
        );
        assert_eq!(error(&|bad| bad.cores.push("0".to_owned())), "CPU 0 is in two cores");
        assert_eq!(
            error(&|bad| bad.uncore_caches[0].cpus = "0".to_owned()),
            "CPU 1 is in none of the uncore caches"
        );
        assert_eq!(
            error(&|bad| bad.sockets.push(Part { id: 2, cpus: "100".to_owned() })),
            "CPU 100 is in none of the NUMA nodes"
        );
        assert!(error(&|bad| bad.sockets[0].cpus = "x".to_owned()).starts_with("sockets: "));
        assert_eq!(error(&|bad| bad.offline_cpus[0].cpu = 0), "CPU 0 is listed twice");
        assert_eq!(error(&|bad| bad.sockets[1].id = 0), "two sockets have the number 0");
        let repeated = |bad: &mut MachineFile| bad.numa_nodes[1].id = bad.numa_nodes[0].id;
        assert_eq!(error(&repeated), "two NUMA nodes have the number 0");
        let repeated = |bad: &mut MachineFile| bad.uncore_caches[1].id = bad.uncore_caches[0].id;
        assert_eq!(error(&repeated), "two uncore caches have the number 0");
        let both = |bad: &mut MachineFile| bad.efficient_cpus.clone_from(&bad.performance_cpus);
        assert_eq!(error(&both), "CPU 0 is in two kinds of cores");
        let none = MachineFile { version: VERSION, ..MachineFile::default() };
        assert_eq!(none.read(), Err(TopologyError::NoCpus.into()));
    }
}
