//! The node drawn: sockets, NUMA nodes, uncore caches, cores and threads, and the use of each CPU.
//!
//! ```text
//!   Topology, Occupancy ──► Picture: frames in frames, cores, cells ──► text   (a terminal)
//!                                                                   └─► svg    (a file, a page)
//! ```
//!
//! [`Picture`] decides on content and order, [`text`] and [`svg`] on the form. Nothing depends on
//! colour alone: a container has a letter, a colour and a texture, see [`Badge`].

mod layout;
pub mod names;
pub mod svg;
pub mod text;
mod xml;

pub use xml::escaped;

use super::badge::Badge;
use super::status::NodeStatus;
use crate::snapshot::SnapshotError;
use cpuset::CpuSet;
use topology::{CoreKind, Domain, Topology};

/// A container with exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub badge: Badge,
    /// Its name for people; empty if the reader may not see it.
    pub name: String,
    /// Its exclusive CPUs.
    pub cpus: CpuSet,
    /// SMT siblings of these, or the rest of their uncore caches, that stay idle.
    pub idle: CpuSet,
    /// The placement of its CPUs, in words.
    pub remark: String,
}

/// How the CPUs of a machine are used.
#[derive(Debug, Clone, Default)]
pub struct Occupancy {
    pub tenants: Vec<Tenant>,
    /// CPUs that are never exclusive.
    pub reserved: CpuSet,
    /// CPUs of containers without exclusive ones.
    pub shared: CpuSet,
    /// CPUs that the kernel was booted to isolate.
    pub isolated: CpuSet,
}

/// A drawing, not yet in any form.
#[derive(Debug, Clone)]
pub struct Picture {
    pub frames: Vec<Frame>,
    /// By badge.
    pub tenants: Vec<Tenant>,
}

/// A part of the machine.
#[derive(Debug, Clone)]
pub struct Frame {
    /// What it is: one or more domains that have the same CPUs.
    pub title: String,
    pub cpus: CpuSet,
    pub inside: Inside,
}

impl Frame {
    fn cells(&self) -> Vec<Cell> {
        match &self.inside {
            Inside::Frames(frames) => frames.iter().flat_map(Frame::cells).collect(),
            Inside::Cores(cores) => cores.iter().flat_map(|core| core.cells.clone()).collect(),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Inside {
    Frames(Vec<Frame>),
    /// None in a NUMA node that has memory only.
    Cores(Vec<Core>),
}

#[derive(Debug, Clone)]
pub struct Core {
    /// On hybrid machines.
    pub kind: Option<CoreKind>,
    /// Its threads, in the order of their numbers.
    pub cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub cpu: usize,
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// Exclusive to a container: its index in [`Picture::tenants`].
    Held(usize),
    /// All containers without exclusive CPUs run on it.
    Shared,
    /// Never exclusive; shared containers may run on it.
    Reserved,
    /// Kept idle: a container with `smt: isolate` has its SMT sibling, or one with `uncore:
    /// exclusive` its uncore cache.
    Idle,
    /// The kernel was booted to isolate it (`isolcpus=`): it is never shared, and exclusive to no
    /// container.
    Isolated,
    /// No container runs on it at present: an ended container keeps it.
    Unused,
    Offline,
}

impl Usage {
    /// The sign in a cell; a CPU that is exclusive has its container's letters instead.
    pub fn sign(self) -> &'static str {
        match self {
            Usage::Held(_) => "?",
            Usage::Shared => "·",
            Usage::Reserved => "-",
            Usage::Idle => "z",
            Usage::Isolated => "i",
            Usage::Unused => "_",
            Usage::Offline => "x",
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Usage::Held(_) => "exclusive",
            Usage::Shared => "shared",
            Usage::Reserved => "reserved: never exclusive",
            Usage::Idle => "idle SMT siblings, or the rest of an uncore cache, of exclusive CPUs",
            Usage::Isolated => "isolated (isolcpus): never shared",
            Usage::Unused => "kept for containers that may restart",
            Usage::Offline => "offline",
        }
    }
}

impl Picture {
    pub fn of(topology: &Topology, mut occupancy: Occupancy) -> Picture {
        occupancy.tenants.sort_unstable_by_key(|tenant| tenant.badge);
        let draw = Draw { topology, occupancy: &occupancy };
        let mut frames = draw.frames(&topology.online(), &layers(topology));
        for node in topology.nodes().iter().filter(|node| node.cpus.is_empty()) {
            let title = format!("NUMA node {}: memory only", node.id);
            frames.push(Frame { title, cpus: CpuSet::EMPTY, inside: Inside::Cores(Vec::new()) });
        }
        let offline = topology.offline().iter();
        let cpus: CpuSet = offline.flat_map(|cpu| CpuSet::of(cpu.id)).collect();
        if !cpus.is_empty() {
            let cells = cpus.iter().map(|cpu| Cell { cpu, usage: Usage::Offline });
            let cores = cells.map(|cell| Core { kind: None, cells: vec![cell] });
            let inside = Inside::Cores(cores.collect());
            frames.push(Frame { title: "offline".to_owned(), cpus, inside });
        }
        Picture { frames, tenants: occupancy.tenants }
    }

    /// Draws the node of a status; `None` if the status is from a version that does not describe
    /// the machine.
    ///
    /// # Errors
    /// The description is not one of a machine.
    pub fn of_status(node: &NodeStatus) -> Result<Option<Picture>, SnapshotError> {
        let Some(machine) = &node.machine else { return Ok(None) };
        let (topology, _) = machine.read()?;
        let tenants = node.containers.iter().filter_map(|one| {
            Some(Tenant {
                badge: one.badge?,
                name: names::container(one),
                cpus: one.cpus - one.shared,
                idle: one.idle,
                remark: names::alignment(&one.numa_nodes, &one.uncore_caches, one.whole_cores),
            })
        });
        let occupancy = Occupancy {
            tenants: tenants.collect(),
            reserved: node.cpus.reserved,
            shared: node.cpus.shared,
            isolated: node.cpus.isolated,
        };
        Ok(Some(Picture::of(&topology, occupancy)))
    }

    /// All cells, in the order of the drawing.
    pub fn cells(&self) -> Vec<Cell> {
        self.frames.iter().flat_map(Frame::cells).collect()
    }

    /// The uses in this picture that a legend has to explain: containers have letters instead.
    pub fn signs(&self) -> Vec<Usage> {
        let mut signs: Vec<Usage> = self.cells().iter().map(|cell| cell.usage).collect();
        signs.retain(|usage| !matches!(usage, Usage::Held(_)));
        signs.sort_unstable();
        signs.dedup();
        signs
    }

    /// The picture in one sentence, for screen readers.
    pub fn sentence(&self) -> String {
        let cells = self.cells();
        let count =
            |wanted: fn(Usage) -> bool| cells.iter().filter(|cell| wanted(cell.usage)).count();
        let isolated = match count(|usage| usage == Usage::Isolated) {
            0 => String::new(),
            isolated => format!("{isolated} isolated, "),
        };
        format!(
            "{}: {} exclusive to {}, {} shared, {} reserved, {isolated}{} offline.",
            wording::count(cells.len(), "CPU"),
            count(|usage| matches!(usage, Usage::Held(_))),
            wording::count(self.tenants.len(), "container"),
            count(|usage| usage == Usage::Shared),
            count(|usage| usage == Usage::Reserved),
            count(|usage| usage == Usage::Offline),
        )
    }
}

/// Domains of a kind, with its name.
type Layer = (&'static str, Vec<Domain>);

/// The layers of frames, from the outside in. Nodes contain caches, or caches contain nodes where
/// these are smaller (sub-NUMA clustering). Where every core has a cache of its own, there is no
/// layer of caches.
fn layers(topology: &Topology) -> Vec<Layer> {
    let nodes = topology.nodes().iter().map(|node| Domain { id: node.id, cpus: node.cpus });
    let sockets = ("socket", topology.sockets().to_vec());
    let nodes = ("NUMA node", nodes.collect::<Vec<Domain>>());
    let caches = ("uncore cache", topology.uncores().to_vec());
    if caches.1.len() > 1 && caches.1.len() == topology.cores().len() {
        vec![sockets, nodes]
    } else if any_crosses(&caches.1, &nodes.1) && !any_crosses(&nodes.1, &caches.1) {
        vec![sockets, caches, nodes]
    } else {
        vec![sockets, nodes, caches]
    }
}

/// Whether one of these domains has CPUs of more than one of the others.
fn any_crosses(domains: &[Domain], others: &[Domain]) -> bool {
    domains.iter().any(|domain| {
        others.iter().filter(|other| !other.cpus.is_disjoint(&domain.cpus)).count() > 1
    })
}

struct Draw<'a> {
    topology: &'a Topology,
    occupancy: &'a Occupancy,
}

impl Draw<'_> {
    /// The frames of some CPUs. Domains in each other that have the same CPUs share a frame.
    fn frames(&self, cpus: &CpuSet, layers: &[Layer]) -> Vec<Frame> {
        let Some(((name, domains), deeper)) = layers.split_first() else { return Vec::new() };
        let mut frames = Vec::new();
        for Domain { id, cpus: whole } in domains {
            let here = *whole & *cpus;
            if here.is_empty() {
                continue;
            }
            let part = if here == *whole { "" } else { " (part)" };
            let title = format!("{name} {id}{part}");
            let mut inner = self.frames(&here, deeper);
            frames.push(match (inner.len(), deeper.is_empty()) {
                (_, true) => Frame { title, cpus: here, inside: Inside::Cores(self.cores(&here)) },
                (1, _) => {
                    let only = inner.remove(0);
                    Frame { title: format!("{title}, {}", only.title), ..only }
                }
                _ => Frame { title, cpus: here, inside: Inside::Frames(inner) },
            });
        }
        frames
    }

    fn cores(&self, cpus: &CpuSet) -> Vec<Core> {
        let cores = self.topology.cores().iter().map(|core| core.cpus & *cpus);
        let core = |core: CpuSet| Core {
            kind: core.first().and_then(|cpu| self.topology.cpu(cpu)?.kind),
            cells: core.iter().map(|cpu| Cell { cpu, usage: self.usage(cpu) }).collect(),
        };
        cores.filter(|core| !core.is_empty()).map(core).collect()
    }

    fn usage(&self, cpu: usize) -> Usage {
        let Occupancy { tenants, reserved, shared, isolated } = self.occupancy;
        match tenants.iter().position(|tenant| tenant.cpus.contains(cpu)) {
            Some(tenant) => Usage::Held(tenant),
            None if tenants.iter().any(|tenant| tenant.idle.contains(cpu)) => Usage::Idle,
            None if reserved.contains(cpu) => Usage::Reserved,
            None if shared.contains(cpu) => Usage::Shared,
            None if isolated.contains(cpu) => Usage::Isolated,
            None => Usage::Unused,
        }
    }
}

#[cfg(test)]
mod tests;
