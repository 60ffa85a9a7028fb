//! A node drawn: sockets, NUMA nodes, uncore caches, cores and threads, and the use of each CPU.
//!
//! ```text
//!   Topology, Occupancy ──► Picture: frames in frames, cores, cells, legend ──► text (a terminal)
//!                                                                           └─► svg  (a file, the page)
//! ```
//!
//! [`Picture`] decides on content, order and words; [`text`] and [`svg`] decide on form only.
//! Nothing depends on colour alone: a container has letters, a colour and a texture, see [`Badge`].

mod layout;
pub mod svg;
pub mod text;
mod xml;

pub use xml::escaped;

use super::badge::Badge;
use super::facts::budget;
use super::memory::MemoryStatus;
use super::outline::NodeOutline;
use super::snapshot::{Node, full_name};
use cpuset::CpuSet;
use topology::{CoreKind, Domain, Topology};

/// The most cores in a line of a frame.
const CORES_IN_LINE: usize = 16;

/// A container with exclusive CPUs, or a pod with an own pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub badge: Badge,
    /// Whether it is a pod, whose containers share the CPUs.
    pub is_pod: bool,
    /// Empty if the reader may not see it.
    pub name: String,
    /// Its exclusive CPUs, or its own pool; those that are also shared at present are drawn as shared.
    pub cpus: CpuSet,
    /// SMT siblings of these, or the rest of their uncore caches, that stay idle.
    pub idle: CpuSet,
    /// Where its CPUs are, in words.
    pub placement: String,
}

impl Tenant {
    /// Its CPUs and their placement: `CPUs 2-7, uncore cache 0`.
    fn facts(&self) -> String {
        let cpus = wording::cpus(self.cpus);
        if self.placement.is_empty() { cpus } else { format!("{cpus}, {}", self.placement) }
    }
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
    /// CPUs that containers outside of `tenants` have for themselves.
    pub elsewhere: CpuSet,
}

#[derive(Debug, Clone)]
pub struct Picture {
    /// What holds for the whole node, a few words each, for an image that is seen without its status;
    /// empty for a machine without a plugin.
    pub facts: Vec<String>,
    pub frames: Vec<Frame>,
    /// The memory of each NUMA node, in words; empty if it is not counted.
    pub memory: Vec<String>,
    /// The containers and pods that have CPUs in the picture, by badge.
    pub tenants: Vec<Tenant>,
}

/// A part of the machine: one or more domains that have the same CPUs.
#[derive(Debug, Clone)]
pub struct Frame {
    pub title: String,
    pub cpus: CpuSet,
    pub inside: Inside,
}

impl Frame {
    fn is_innermost(&self) -> bool {
        matches!(self.inside, Inside::Cores(_))
    }

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
    /// Empty in a NUMA node that has memory only.
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
    /// Exclusive to the container with this badge, or in the own pool of the pod with it.
    Held(Badge),
    /// Exclusive to a container of a namespace that the reader has left out.
    Elsewhere,
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
    /// The picture is of a machine and not of a node: the cell has the CPU's number.
    Unknown,
}

impl Usage {
    /// What stands in a cell.
    pub fn sign(self) -> String {
        let sign = match self {
            Usage::Held(badge) => return badge.to_string(),
            Usage::Elsewhere => "o",
            Usage::Shared => "·",
            Usage::Reserved => "-",
            Usage::Idle => "z",
            Usage::Isolated => "i",
            Usage::Unused => "_",
            Usage::Offline => "x",
            Usage::Unknown => "",
        };
        sign.to_owned()
    }

    /// A word, and an explanation if it needs one.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Usage::Held(_) => ("exclusive", ""),
            Usage::Elsewhere => ("other", "exclusive, of namespaces that are not shown"),
            Usage::Shared => ("shared", ""),
            Usage::Reserved => ("reserved", "never exclusive"),
            Usage::Idle => ("idle", "SMT siblings or uncore caches of exclusive CPUs"),
            Usage::Isolated => ("isolated", "never shared (isolcpus)"),
            Usage::Unused => ("kept", "for containers that may restart"),
            Usage::Offline => ("offline", ""),
            Usage::Unknown => ("online", ""),
        }
    }

    pub fn meaning(self) -> String {
        match self.words() {
            (word, "") => word.to_owned(),
            (word, explanation) => format!("{word}: {explanation}"),
        }
    }
}

impl Picture {
    pub fn of(topology: &Topology, occupancy: Occupancy) -> Picture {
        Picture::draw(topology, occupancy, Usage::Unused)
    }

    /// A machine on which nothing runs: its cells have the numbers of the CPUs.
    pub fn of_machine(topology: &Topology) -> Picture {
        Picture::draw(topology, Occupancy::default(), Usage::Unknown)
    }

    fn draw(topology: &Topology, occupancy: Occupancy, unoccupied: Usage) -> Picture {
        let Occupancy { mut tenants, reserved, shared, isolated, elsewhere } = occupancy;
        // CPUs of an ended container are lent to the shared pool until the container is back.
        tenants.iter_mut().for_each(|tenant| tenant.cpus -= shared);
        tenants.retain(|tenant| !tenant.cpus.is_empty());
        tenants.sort_unstable_by_key(|tenant| tenant.badge);
        let occupancy = Occupancy { tenants, reserved, shared, isolated, elsewhere };
        let draw = Draw { topology, occupancy: &occupancy, unoccupied };
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
            frames.push(Frame { title: Usage::Offline.meaning(), cpus, inside });
        }
        Picture { facts: Vec::new(), frames, memory: Vec::new(), tenants: occupancy.tenants }
    }

    /// Draws a node with names, facts and memory.
    pub fn of_node(node: &Node) -> Picture {
        Picture::of_outline(&NodeOutline::of(node)).named(node)
    }

    /// This picture of an outline of the node, with what only some readers may see.
    pub fn named(mut self, node: &Node) -> Picture {
        for tenant in &mut self.tenants {
            let badge = Some(tenant.badge);
            let named = if tenant.is_pod {
                let one = node.containers.iter().find(|one| one.pool_badge == badge);
                one.map(|one| full_name(&one.pod.namespace, &one.pod.name, ""))
            } else {
                let one = node.containers.iter().find(|one| one.badge == badge);
                one.map(|one| one.full_name())
            };
            tenant.name = named.unwrap_or_default();
        }
        let memory = node.memory.as_ref().map(MemoryStatus::lines).unwrap_or_default();
        Picture { facts: facts(node), memory, ..self }
    }

    /// Draws a node for a reader who may see no names.
    pub fn of_outline(node: &NodeOutline) -> Picture {
        let tenant = |badge, is_pod, cpus: CpuSet, idle: CpuSet| Tenant {
            badge,
            is_pod,
            name: String::new(),
            cpus,
            idle,
            placement: node.placement(&cpus, &idle),
        };
        let containers = node
            .containers
            .iter()
            .filter_map(|one| Some(tenant(one.badge?, false, one.exclusive?, one.idle)));
        let pools =
            node.own_pools.iter().map(|(badge, cpus)| tenant(*badge, true, *cpus, CpuSet::EMPTY));
        let cpus = &node.cpus;
        let occupancy = Occupancy {
            tenants: containers.chain(pools).collect(),
            reserved: cpus.reserved,
            shared: cpus.shared,
            isolated: cpus.isolated,
            elsewhere: node.elsewhere,
        };
        Picture::of(&node.machine, occupancy)
    }

    /// All cells, in the order of the drawing.
    pub fn cells(&self) -> Vec<Cell> {
        self.frames.iter().flat_map(Frame::cells).collect()
    }

    /// The signs that need an explanation, besides the letters of [`Picture::tenants`]; none if all
    /// CPUs are used alike.
    pub fn legend(&self) -> Vec<Usage> {
        let mut signs = self.signs();
        if self.tenants.is_empty() && signs.len() == 1 {
            signs.clear();
        }
        signs.retain(|usage| *usage != Usage::Unknown);
        signs
    }

    /// The uses of CPUs that are exclusive to no container.
    fn signs(&self) -> Vec<Usage> {
        let mut signs: Vec<Usage> = self.cells().iter().map(|cell| cell.usage).collect();
        signs.retain(|usage| !matches!(usage, Usage::Held(_)));
        signs.sort_unstable();
        signs.dedup();
        signs
    }

    /// The whole legend in order: containers with names and facts, then signs with their meaning.
    fn entries(&self) -> Vec<(Usage, String, String)> {
        let tenants = self.tenants.iter().map(|tenant| {
            let usage = Usage::Held(tenant.badge);
            // A reader may not see names.
            if tenant.name.is_empty() {
                (usage, tenant.facts(), String::new())
            } else {
                (usage, tenant.name.clone(), tenant.facts())
            }
        });
        let signs = self.legend().into_iter().map(|usage| {
            let (word, explanation) = usage.words();
            (usage, word.to_owned(), explanation.to_owned())
        });
        tenants.chain(signs).collect()
    }

    /// A cell for a reader who points at it: `CPU 8, efficient core: A ns/db/c`.
    fn describe(&self, core: &Core, cell: Cell) -> String {
        let kind = match core.kind {
            None => "",
            Some(CoreKind::Performance) => ", performance core",
            Some(CoreKind::Efficient) => ", efficient core",
        };
        let user = match cell.usage {
            Usage::Held(badge) => {
                let tenant = self.tenants.iter().find(|tenant| tenant.badge == badge);
                let name = tenant.map_or("", |tenant| &tenant.name);
                format!("{badge} {name}").trim_end().to_owned()
            }
            Usage::Unknown => return format!("CPU {}{kind}", cell.cpu),
            other => other.meaning(),
        };
        format!("CPU {}{kind}: {user}", cell.cpu)
    }

    /// The picture in one sentence, for screen readers.
    pub fn sentence(&self) -> String {
        let cells = self.cells();
        let signs = self.signs();
        let held = cells.iter().filter(|cell| !signs.contains(&cell.usage)).count();
        let pods = self.tenants.iter().filter(|tenant| tenant.is_pod).count();
        let mut tenants = wording::count(self.tenants.len() - pods, "container");
        if pods > 0 {
            tenants = format!("{tenants} and {}", wording::count(pods, "pod"));
        }
        let mut parts = Vec::new();
        if !signs.contains(&Usage::Unknown) {
            parts.push(format!("{held} exclusive to {tenants}"));
        }
        for usage in signs {
            let count = cells.iter().filter(|cell| cell.usage == usage).count();
            parts.push(format!("{count} {}", usage.words().0));
        }
        format!("{}: {}.", wording::count(cells.len(), "CPU"), parts.join(", "))
    }
}

/// What a reader of the picture alone would ask for: mechanism, engine, reserved CPUs, moves, age.
fn facts(node: &Node) -> Vec<String> {
    vec![
        format!("exclusivity {}", node.config.exclusivity),
        format!("placement {}", node.config.own.placement),
        format!("reserved {}", wording::cpus(wording::or_none(node.figures.cpus.reserved))),
        format!("rebalance: {}", budget(node.figures.rebalance.as_ref())),
        format!("settings since {}", node.parts.config_source.loaded),
    ]
}

/// Domains of one kind, with its name.
struct Layer {
    name: &'static str,
    domains: Vec<Domain>,
}

/// The layers of frames, from the outside in. Nodes contain caches, or caches contain nodes where
/// these are smaller (sub-NUMA clustering). Where every core has a cache of its own, there is no
/// layer of caches: it would be a frame for each core.
fn layers(topology: &Topology) -> Vec<Layer> {
    let nodes = topology.nodes().iter().map(|node| Domain { id: node.id, cpus: node.cpus });
    let sockets = Layer { name: "socket", domains: topology.sockets().to_vec() };
    let nodes = Layer { name: "NUMA node", domains: nodes.collect() };
    let caches = Layer { name: "uncore cache", domains: topology.uncores().to_vec() };
    let one_each = caches.domains.len() == topology.cores().len();
    if one_each && caches.domains.len() > 1 {
        vec![sockets, nodes]
    } else if any_crosses(&caches.domains, &nodes.domains)
        && !any_crosses(&nodes.domains, &caches.domains)
    {
        vec![sockets, caches, nodes]
    } else {
        vec![sockets, nodes, caches]
    }
}

/// Whether one of these domains has CPUs of several of the others.
fn any_crosses(domains: &[Domain], others: &[Domain]) -> bool {
    domains.iter().any(|domain| {
        others.iter().filter(|other| !other.cpus.is_disjoint(&domain.cpus)).count() > 1
    })
}

struct Draw<'a> {
    topology: &'a Topology,
    occupancy: &'a Occupancy,
    /// The usage of CPUs that are not in `occupancy`.
    unoccupied: Usage,
}

impl Draw<'_> {
    /// The frames of some CPUs. Nested domains that have the same CPUs share a frame.
    fn frames(&self, cpus: &CpuSet, layers: &[Layer]) -> Vec<Frame> {
        let Some((Layer { name, domains }, deeper)) = layers.split_first() else {
            return Vec::new();
        };
        let mut frames = Vec::new();
        for Domain { id, cpus: whole } in domains {
            let here = *whole & *cpus;
            if here.is_empty() {
                continue;
            }
            let part = if here == *whole { "" } else { " (part)" };
            let title = format!("{name} {id}{part}");
            let mut inner = self.frames(&here, deeper);
            frames.push(if deeper.is_empty() {
                Frame { title, cpus: here, inside: Inside::Cores(self.cores(&here)) }
            } else if inner.len() == 1 {
                let only = inner.remove(0);
                Frame { title: format!("{title}, {}", only.title), ..only }
            } else {
                Frame { title, cpus: here, inside: Inside::Frames(inner) }
            });
        }
        frames
    }

    fn cores(&self, cpus: &CpuSet) -> Vec<Core> {
        let mut cores = Vec::new();
        for core in self.topology.cores() {
            let here = core.cpus & *cpus;
            let Some(first) = here.first() else { continue };
            cores.push(Core {
                kind: self.topology.cpu(first).and_then(|cpu| cpu.kind),
                cells: here.iter().map(|cpu| Cell { cpu, usage: self.usage(cpu) }).collect(),
            });
        }
        cores
    }

    fn usage(&self, cpu: usize) -> Usage {
        let Occupancy { tenants, reserved, shared, isolated, elsewhere } = self.occupancy;
        match tenants.iter().find(|tenant| tenant.cpus.contains(cpu)) {
            Some(tenant) => Usage::Held(tenant.badge),
            None if tenants.iter().any(|tenant| tenant.idle.contains(cpu)) => Usage::Idle,
            None if reserved.contains(cpu) => Usage::Reserved,
            None if shared.contains(cpu) => Usage::Shared,
            None if elsewhere.contains(cpu) => Usage::Elsewhere,
            None if isolated.contains(cpu) => Usage::Isolated,
            None => self.unoccupied,
        }
    }
}

/// At most `most` characters; the last one is `…` if the text had more.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
