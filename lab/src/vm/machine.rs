//! Descriptions of virtual machines: sockets, caches, cores, threads, NUMA nodes, offline and isolated
//! CPUs.
//!
//! They are files in `lab/machines`, for the demo, tests and `hack/lab`.

use anyhow::{Context, Result};
use cpuset::CpuSet;
use topology::Topology;
use topology::model::{Cpu, Facts, NodeFacts, OfflineCpu};

use image::Platform;

mod device_tree;
mod file;
mod madt;

pub(crate) use madt::TABLES;

/// A level of the topology; each is part of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Threads,
    Cores,
    Modules,
    Dies,
    Sockets,
}

impl Level {
    /// QEMU's order.
    const INSIDE_OUT: [Self; 5] =
        [Self::Threads, Self::Cores, Self::Modules, Self::Dies, Self::Sockets];
}

/// A machine with identical sockets, as in its file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// Description in one line.
    pub about: String,
    #[serde(rename = "architecture")]
    pub platform: Platform,
    pub sockets: usize,
    /// Per socket. Each die has an uncore cache, or one per module if it has several modules.
    pub dies: usize,
    /// Per die.
    pub modules: usize,
    pub cores: usize,
    pub threads: usize,
    /// Order in which CPUs are numbered. Levels with a single member can be left out.
    pub numbering: Vec<Level>,
    /// Empty for one node.
    pub nodes: Vec<MachineNode>,
    /// A row per node; empty for 10 to itself and 20 to others.
    pub distances: Vec<Vec<u8>>,
    /// Taken offline before anything starts.
    pub offline: CpuSet,
    /// The kernel is booted to isolate them (`isolcpus=`).
    pub isolated: CpuSet,
    /// Whether it has a disk, network interfaces and others that make interrupts (`vm/devices.rs`).
    pub devices: bool,
    /// In MiB.
    pub memory: usize,
}

/// Without cores, which a file must have.
impl Default for Machine {
    fn default() -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            platform: Platform::Amd64,
            sockets: 1,
            dies: 1,
            modules: 1,
            cores: 0,
            threads: 1,
            numbering: Level::INSIDE_OUT.to_vec(),
            nodes: Vec::new(),
            distances: Vec::new(),
            offline: CpuSet::EMPTY,
            isolated: CpuSet::EMPTY,
            devices: false,
            memory: 3072,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineNode {
    /// Empty for a memory-only node.
    pub cpus: CpuSet,
    /// In MiB. A file may leave it out: an equal part of the machine's then.
    #[serde(default)]
    pub memory: usize,
}

/// Machine-wide numbers of a CPU's core, cache and socket; its die's number in the socket.
struct Position {
    core: usize,
    cache: usize,
    die: usize,
    socket: usize,
}

impl Machine {
    /// One socket, one NUMA node, no SMT: `caches` uncore caches of `cores` CPUs.
    pub fn single(name: &str, caches: usize, cores: usize) -> Self {
        Self { name: name.to_owned(), dies: caches, cores, ..Self::default() }
    }

    pub fn cpus(&self) -> usize {
        self.sockets * self.dies * self.modules * self.cores * self.threads
    }

    fn position(&self, cpu: usize) -> Position {
        let core = self.index(cpu) / self.threads;
        let cache = core / self.cores;
        let die = cache / self.modules;
        Position { core, cache, die: die % self.dies, socket: die / self.dies }
    }

    /// The topology that Linux should report.
    pub fn topology(&self) -> Result<Topology> {
        // Like the plugin's reader: the number of a domain is its lowest online CPU.
        let online: Vec<usize> =
            (0..self.cpus()).filter(|cpu| !self.offline.contains(*cpu)).collect();
        let first = |same: &dyn Fn(&Position) -> bool| {
            online.iter().copied().find(|cpu| same(&self.position(*cpu))).unwrap_or_default()
        };
        let numa = |cpu| self.nodes.iter().position(|n| n.cpus.contains(cpu)).unwrap_or_default();
        let cpus = online.iter().map(|&id| {
            let position = self.position(id);
            Cpu {
                id,
                core: first(&|other| other.core == position.core),
                uncore: first(&|other| other.cache == position.cache),
                numa: numa(id),
                socket: position.socket,
                // Linux has no dies there.
                die: (self.platform == Platform::Amd64).then_some(position.die),
                kind: None,
            }
        });
        let offline = self.offline.iter().map(|id| OfflineCpu {
            id,
            numa: Some(numa(id)),
            socket: Some(self.position(id).socket),
        });
        let numbers = 0..self.nodes.len().max(1);
        let nodes = numbers.clone().map(|id| NodeFacts {
            id,
            distances: numbers.clone().map(|to| self.distance(id, to).into()).collect(),
            memoryless: false,
        });
        let facts = Facts {
            cpus: cpus.collect(),
            offline: offline.collect(),
            nodes: nodes.collect(),
            isolated: self.isolated,
        };
        Topology::build(facts).with_context(|| format!("invalid machine {}", self.name))
    }

    /// The part of QEMU's command line that gives it this shape.
    pub fn arguments(&self) -> Vec<String> {
        let Self { sockets, dies, modules, cores, threads, memory, .. } = self;
        let mut kind = "q35";
        let mut levels = format!("dies={dies}");
        if self.platform == Platform::Arm64 {
            // No dies: their caches are in the device tree alone.
            kind = "virt,gic-version=3";
            levels = format!("clusters={}", dies * modules);
        } else if *modules > 1 {
            kind = "q35,smp-cache.0.cache=l3,smp-cache.0.topology=module";
            levels += &format!(",modules={modules}");
        }
        let shape = format!("sockets={sockets},{levels},cores={cores},threads={threads}");
        let mut arguments = Vec::new();
        let mut push = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        push("-machine", kind.to_owned());
        push("-smp", format!("{},{shape}", self.cpus()));
        push("-m", format!("{memory}M"));
        for (number, node) in self.nodes.iter().enumerate() {
            push("-object", format!("memory-backend-ram,id=memory{number},size={}M", node.memory));
            // QEMU's numbering of the same CPUs.
            let own = node.cpus.iter().filter_map(|cpu| CpuSet::of(self.index(cpu)).ok());
            let list = own.collect::<CpuSet>().to_string();
            let ranges: String =
                list.split(',').filter(|r| !r.is_empty()).map(|r| format!(",cpus={r}")).collect();
            push("-numa", format!("node,nodeid={number},memdev=memory{number}{ranges}"));
        }
        // QEMU requires all distances or none.
        let all = if self.distances.is_empty() { 0 } else { self.nodes.len() };
        for (from, to) in (0..all).flat_map(|from| (0..all).map(move |to| (from, to))) {
            push("-numa", format!("dist,src={from},dst={to},val={}", self.distance(from, to)));
        }
        arguments
    }

    /// What the kernel's command line says of it.
    pub fn parameters(&self) -> String {
        if self.isolated.is_empty() {
            return String::new();
        }
        format!("isolcpus={}", self.isolated)
    }

    fn distance(&self, from: usize, to: usize) -> u8 {
        let given = self.distances.get(from).and_then(|row| row.get(to)).copied();
        given.unwrap_or(if from == to { 10 } else { 20 })
    }

    fn count(&self, level: Level) -> usize {
        match level {
            Level::Threads => self.threads,
            Level::Cores => self.cores,
            Level::Modules => self.modules,
            Level::Dies => self.dies,
            Level::Sockets => self.sockets,
        }
    }

    /// QEMU's number of a CPU: by threads, cores, modules, dies and sockets. Its firmware lists them in
    /// that order, and Linux numbers them as listed. Another list ([`madt`]) gives another numbering.
    fn index(&self, cpu: usize) -> usize {
        let mut rest = cpu;
        let mut index = 0;
        for level in &self.numbering {
            let inside = Level::INSIDE_OUT.iter().take_while(|other| *other != level);
            let step: usize = inside.map(|level| self.count(*level)).product();
            index += rest % self.count(*level) * step;
            rest /= self.count(*level);
        }
        index
    }

    /// The APIC id of the CPU with QEMU's number `index`: a bit field per level.
    fn apic_id(&self, index: usize) -> usize {
        let mut rest = index;
        let mut id = 0;
        let mut shift = 0;
        for count in Level::INSIDE_OUT.map(|level| self.count(level)) {
            id |= (rest % count) << shift;
            rest /= count;
            shift += count.next_power_of_two().trailing_zeros();
        }
        id
    }

    /// Whether the numbers differ from QEMU's.
    fn is_renumbered(&self) -> bool {
        (0..self.cpus()).any(|cpu| self.index(cpu) != cpu)
    }
}
