//! [`Machine`]: machines from a description, for tests and the simulator.

use cpuset::{CpuSet, MAX_CPUS};
use std::collections::BTreeMap;
use std::str::FromStr;
use topology::model::{
    CoreKind, Cpu, Facts, LOCAL_DISTANCE, NodeFacts, OfflineCpu, Sizes, Topology, TopologyError,
};

/// The description of a machine with equal sockets.
///
/// `dies`, `nodes` and `caches` each cut the cores of a socket into that many consecutive parts,
/// independently: a NUMA node may be smaller or larger than an uncore cache. If cores do not divide
/// evenly, parts differ by one core.
///
/// ```
/// use machines::synthetic::Machine;
/// let one = Machine::default();
/// let machine = Machine { sockets: 2, nodes: 2, caches: 4, cores: 16, threads: 2, ..one };
/// let topology = machine.topology().unwrap();
/// assert_eq!((topology.cpus().len(), topology.uncores().len()), (64, 8));
///
/// let same: Machine = "pack:2 numa:2 l3:2 core:4 pu:2".parse().unwrap();
/// assert_eq!(same, machine);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub sockets: usize,
    /// Per socket.
    pub dies: usize,
    /// NUMA nodes with CPUs, per socket; 0 means one for all sockets, which firmware calls NPS0.
    pub nodes: usize,
    /// Uncore caches per socket.
    pub caches: usize,
    /// Per socket.
    pub cores: usize,
    /// Per core.
    pub threads: usize,
    /// Efficient cores per socket: its last cores, with one thread each. With 0 the kinds of cores
    /// are unknown.
    pub efficient: usize,
    pub numbering: Numbering,
    /// The distance between nodes of one socket (ACPI SLIT: 10 is local).
    pub near: u32,
    /// The distance to nodes of other sockets, and to nodes without CPUs.
    pub far: u32,
    /// Nodes without CPUs, numbered after all others.
    pub memory_only: usize,
    /// Bytes, in equal parts on all nodes; `None` if unknown.
    pub memory: Option<u64>,
    pub offline: CpuSet,
    pub isolated: CpuSet,
}

/// How firmware and kernel number CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numbering {
    /// The threads of a core have adjacent numbers, 0+1 2+3: virtual machines, POWER, hybrid
    /// machines.
    #[default]
    Adjacent,
    /// The first threads of all cores, socket by socket, come before all second threads, 0+4 1+5:
    /// most servers.
    Interleaved,
    /// As [`Interleaved`](Numbering::Interleaved), but consecutive CPUs are in different sockets:
    /// servers of some vendors.
    RoundRobin,
}

/// Why a description is not that of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    #[error("0 {0}: a machine has at least one")]
    Zero(&'static str),
    #[error("a socket of {cores} cores cannot be divided into {parts} {what}")]
    Cut { what: &'static str, parts: usize, cores: usize },
    #[error("the machine has more than {MAX_CPUS} CPUs")]
    TooLarge,
    /// CPUs of `offline` that the machine does not have.
    #[error("offline: {} {} not exist", wording::cpus(.0), wording::agree(.0, "does", "do"))]
    NoSuchCpus(String),
    #[error(
        "invalid machine {text:?}: unexpected {word:?}; expected words like \
         pack:2 die:1 numa:4 l3:2 core:8 pu:2, pack first, then core, then pu"
    )]
    Notation { word: String, text: String },
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

impl Default for Machine {
    /// A machine with one CPU, and the distances of common servers.
    fn default() -> Machine {
        Machine {
            sockets: 1,
            dies: 1,
            nodes: 1,
            caches: 1,
            cores: 1,
            threads: 1,
            efficient: 0,
            numbering: Numbering::default(),
            near: 12,
            far: 32,
            memory_only: 0,
            memory: None,
            offline: CpuSet::EMPTY,
            isolated: CpuSet::EMPTY,
        }
    }
}

impl Machine {
    pub fn topology(&self) -> Result<Topology, DescriptionError> {
        Ok(Topology::build(self.facts()?)?.with_memory(&self.sizes()))
    }

    /// The size of the memory of each node.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        if let Some(memory) = self.memory {
            let nodes = self.all_nodes();
            sizes.memory = (0..nodes).map(|node| (node, memory / nodes as u64)).collect();
        }
        sizes
    }

    /// The facts that a reader would find on this machine. As under Linux, only the NUMA node of
    /// offline CPUs is known.
    pub fn facts(&self) -> Result<Facts, DescriptionError> {
        self.check()?;
        let threads = self.threads_in_order();
        let all: CpuSet = (0..threads.len()).flat_map(CpuSet::of).collect();
        if !self.offline.is_subset(&all) {
            return Err(DescriptionError::NoSuchCpus((self.offline - all).to_string()));
        }
        let node_of =
            |thread: &Thread| thread.socket * self.nodes + self.part(thread.core, self.nodes);
        // Cores and caches have the number of their lowest online CPU, and CPUs come in ascending
        // order.
        let mut lowest_of_core = BTreeMap::new();
        let mut lowest_of_cache = BTreeMap::new();
        let mut facts = Facts { isolated: self.isolated, ..Facts::default() };
        for (id, thread) in threads.iter().enumerate() {
            if self.offline.contains(id) {
                facts.offline.push(OfflineCpu { id, numa: Some(node_of(thread)), socket: None });
                continue;
            }
            let cache = self.part(thread.core, self.caches);
            facts.cpus.push(Cpu {
                id,
                core: *lowest_of_core.entry((thread.socket, thread.core)).or_insert(id),
                uncore: *lowest_of_cache.entry((thread.socket, cache)).or_insert(id),
                numa: node_of(thread),
                socket: thread.socket,
                die: Some(self.part(thread.core, self.dies)),
                kind: self.kind(thread.core),
            });
        }
        facts.nodes = self.node_facts();
        Ok(facts)
    }

    fn check(&self) -> Result<(), DescriptionError> {
        let counts = [
            (self.sockets, "sockets"),
            (self.dies, "dies"),
            (self.caches, "uncore caches"),
            (self.cores, "cores"),
            (self.threads, "threads"),
        ];
        if let Some((_, what)) = counts.iter().find(|(count, _)| *count == 0) {
            return Err(DescriptionError::Zero(what));
        }
        let cuts = [
            (self.dies, "dies"),
            (self.nodes, "NUMA nodes"),
            (self.caches, "uncore caches"),
            (self.efficient, "efficient cores"),
        ];
        for (parts, what) in cuts {
            if self.cores < parts {
                return Err(DescriptionError::Cut { what, parts, cores: self.cores });
            }
        }
        // Nodes without CPUs count, too, so that the table of distances is bounded.
        let cpus = self.sockets.checked_mul(self.cores).and_then(|n| n.checked_mul(self.threads));
        match cpus.and_then(|cpus| cpus.checked_add(self.memory_only)) {
            Some(..=MAX_CPUS) => Ok(()),
            _ => Err(DescriptionError::TooLarge),
        }
    }

    /// All threads in the order of their CPU numbers.
    fn threads_in_order(&self) -> Vec<Thread> {
        let mut all = Vec::new();
        for socket in 0..self.sockets {
            for core in 0..self.cores {
                let is_efficient = self.kind(core) == Some(CoreKind::Efficient);
                let threads = if is_efficient { 1 } else { self.threads };
                all.extend((0..threads).map(|thread| Thread { socket, core, thread }));
            }
        }
        match self.numbering {
            Numbering::Adjacent => {}
            Numbering::Interleaved => {
                all.sort_unstable_by_key(|at| (at.thread, at.socket, at.core))
            }
            Numbering::RoundRobin => all.sort_unstable_by_key(|at| (at.thread, at.core, at.socket)),
        }
        all
    }

    /// The index of the part that has this core, if its socket is cut into `parts` parts.
    fn part(&self, core: usize, parts: usize) -> usize {
        core * parts / self.cores
    }

    fn kind(&self, core: usize) -> Option<CoreKind> {
        match self.efficient {
            0 => None,
            efficient if core < self.cores - efficient => Some(CoreKind::Performance),
            _ => Some(CoreKind::Efficient),
        }
    }

    fn nodes_with_cpus(&self) -> usize {
        (self.sockets * self.nodes).max(1)
    }

    fn all_nodes(&self) -> usize {
        self.nodes_with_cpus() + self.memory_only
    }

    fn node_facts(&self) -> Vec<NodeFacts> {
        let with_cpus = self.nodes_with_cpus();
        let all = self.all_nodes();
        // With `nodes: 0` there is one node for all sockets.
        let per_socket = self.nodes.max(1);
        let socket = |node: usize| if node < with_cpus { Some(node / per_socket) } else { None };
        let distance = |a: usize, b: usize| match (socket(a), socket(b)) {
            _ if a == b => LOCAL_DISTANCE,
            (Some(a), Some(b)) if a == b => self.near,
            _ => self.far,
        };
        (0..all)
            .map(|id| NodeFacts {
                id,
                distances: (0..all).map(|to| distance(id, to)).collect(),
                memoryless: false,
            })
            .collect()
    }
}

/// The position of a CPU. Cores count from 0 in each socket, threads in each core.
#[derive(Debug, Clone, Copy)]
struct Thread {
    socket: usize,
    core: usize,
    thread: usize,
}

impl FromStr for Machine {
    type Err = DescriptionError;

    /// Reads hwloc's notation: words from the outside in, each with how many there are in one of
    /// the word before.
    ///
    /// `pack:2 numa:4 l3:2 core:8 pu:2` has 2 sockets of 4 NUMA nodes of 2 uncore caches each. With
    /// `l3` before `numa`, nodes share a cache. A missing word between `pack` and `core` means one
    /// per socket.
    fn from_str(text: &str) -> Result<Machine, DescriptionError> {
        let mut machine = Machine::default();
        let mut per_socket = 1usize;
        // The level of the last word: 1 sockets, 2 parts of sockets, 3 cores, 4 threads.
        let mut depth = 0;
        for word in text.split_whitespace() {
            let bad =
                || DescriptionError::Notation { word: word.to_owned(), text: text.to_owned() };
            let (name, count) = word.split_once(':').ok_or_else(bad)?;
            let count: usize = count.parse().map_err(|_| bad())?;
            let (field, at) = match name {
                "pack" | "package" | "socket" => (&mut machine.sockets, 1),
                "die" => (&mut machine.dies, 2),
                "numa" | "numanode" => (&mut machine.nodes, 2),
                "l3" | "l3cache" => (&mut machine.caches, 2),
                "core" => (&mut machine.cores, 3),
                "pu" => (&mut machine.threads, 4),
                _ => return Err(bad()),
            };
            if at < depth || (at == depth && at != 2) || count == 0 {
                return Err(bad());
            }
            depth = at;
            *field = match at {
                2 | 3 => {
                    per_socket = per_socket.checked_mul(count).ok_or(DescriptionError::TooLarge)?;
                    per_socket
                }
                _ => count,
            };
        }
        machine.check()?;
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws each core as `CPU+CPU@cache/node`.
    fn drawn(machine: &Machine) -> String {
        let topology = machine.topology().unwrap();
        let cores = topology.cores().iter().map(|core| {
            let cpu = topology.cpu(core.id).unwrap();
            let cpus: Vec<String> = core.cpus.iter().map(|cpu| cpu.to_string()).collect();
            format!("{}@{}/{}", cpus.join("+"), cpu.uncore, cpu.numa)
        });
        cores.collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(machine: Machine, expect: &str) {
        assert_eq!(drawn(&machine), expect);
    }

    #[test]
    fn machines_are_built_as_described() {
        check(Machine::default(), "0@0/0");
        let smt = Machine { sockets: 2, cores: 2, threads: 2, ..Machine::default() };
        check(smt.clone(), "0+1@0/0 2+3@0/0 4+5@4/1 6+7@4/1");
        let interleaved = Machine { numbering: Numbering::Interleaved, ..smt.clone() };
        check(interleaved, "0+4@0/0 1+5@0/0 2+6@2/1 3+7@2/1");
        let round_robin = Machine { numbering: Numbering::RoundRobin, ..smt.clone() };
        check(round_robin, "0+4@0/0 1+5@1/1 2+6@0/0 3+7@1/1");
        // Two nodes share a cache; a node has two caches.
        check(Machine { nodes: 2, cores: 4, ..Machine::default() }, "0@0/0 1@0/0 2@0/1 3@0/1");
        check(Machine { caches: 2, cores: 4, ..Machine::default() }, "0@0/0 1@0/0 2@2/0 3@2/0");
        check(
            Machine { efficient: 2, cores: 3, threads: 2, ..Machine::default() },
            "0+1@0/0 2@0/0 3@0/0",
        );
        let one_node = Machine { sockets: 2, nodes: 0, cores: 2, ..Machine::default() };
        check(one_node, "0@0/0 1@0/0 2@2/0 3@2/0");
        // A core or cache with an offline CPU has the number of its lowest online CPU.
        let offline = "0,4".parse().unwrap();
        check(Machine { offline, ..smt }, "1@1/0 2+3@1/0 5@5/1 6+7@5/1");
    }

    #[test]
    fn distances_depend_on_the_socket() {
        let machine =
            Machine { sockets: 2, nodes: 2, cores: 2, memory_only: 1, ..Machine::default() };
        let topology = machine.topology().unwrap();
        let rows: Vec<&[u32]> = topology.nodes().iter().map(|node| &node.distances[..]).collect();
        assert_eq!(
            rows,
            [
                [10, 12, 32, 32, 32],
                [12, 10, 32, 32, 32],
                [32, 32, 10, 12, 32],
                [32, 32, 12, 10, 32],
                [32, 32, 32, 32, 10],
            ]
        );
        assert!(topology.nodes()[4].cpus.is_empty());
    }

    #[test]
    fn hwlocs_notation_is_read_or_refused() {
        let parsed = |text: &str| text.parse::<Machine>();
        let snc = parsed("pack:1 l3:1 numa:2 core:4 pu:2").unwrap();
        assert_eq!((snc.caches, snc.nodes, snc.cores, snc.threads), (1, 2, 8, 2));
        assert_eq!(parsed("").unwrap(), Machine::default());
        for bad in
            ["core", "core:x", "core:0", "pu:2 core:4", "core:2 core:2", "l1:2", "core:2 pack:2"]
        {
            assert!(matches!(parsed(bad), Err(DescriptionError::Notation { .. })), "{bad:?}");
        }
        for large in ["core:2049", "numa:99999999999 l3:99999999999", "pack:64 core:64 pu:2"] {
            assert!(
                matches!(
                    parsed(large),
                    Err(DescriptionError::TooLarge | DescriptionError::Cut { .. })
                ),
                "{large:?}"
            );
        }
    }

    #[test]
    fn contradictory_descriptions_are_refused() {
        let error = |machine: Machine| machine.facts().unwrap_err().to_string();
        assert_eq!(
            error(Machine { caches: 3, cores: 2, ..Machine::default() }),
            "a socket of 2 cores cannot be divided into 3 uncore caches"
        );
        assert_eq!(
            error(Machine { threads: 0, ..Machine::default() }),
            "0 threads: a machine has at least one"
        );
        assert_eq!(
            error(Machine { offline: "1-3".parse().unwrap(), cores: 2, ..Machine::default() }),
            "offline: CPUs 2-3 do not exist"
        );
        let none_left = Machine { offline: "0".parse().unwrap(), ..Machine::default() };
        assert_eq!(none_left.topology(), Err(TopologyError::NoCpus.into()));
    }
}
