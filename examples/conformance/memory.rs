//! `memory-machines.jsonl` and `memory-hints.jsonl`: which sets of NUMA nodes have the memory and
//! huge pages of a request, in the kubelet's order.

use super::Outcome;
use cpuset::NodeSet;
use placement::Hint;
use placement::memory_manager::{
    Amounts, Capacity, MemoryKind, NodeMemory, NodeMemoryClaim, Room, Sharing,
};
use quantity::Quantity;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Nodes of machines by name, with nothing reserved.
pub(super) type MemoryMachines = BTreeMap<String, Vec<NodeMemory>>;

#[derive(Deserialize)]
pub(super) struct Machine {
    name: String,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: usize,
    memory: u64,
    /// Numbers of pages, by their size.
    hugepages: BTreeMap<String, u64>,
}

/// Adds a machine to the others.
pub(super) fn read(machine: Machine, machines: &mut MemoryMachines) -> Outcome {
    let nodes = machine.nodes.iter().map(|node| {
        let pool = |(size, count): (&String, &u64)| {
            let kind = format!("hugepages-{size}").parse().ok()?;
            let MemoryKind::HugePages(bytes) = kind else { return None };
            Some((kind, bytes * count))
        };
        let huge_pages = node.hugepages.iter().map(pool).collect::<Option<Amounts>>()?;
        let reserved = Amounts::new();
        Some(NodeMemory { id: node.id, total: node.memory, huge_pages, reserved })
    });
    match nodes.collect::<Option<Vec<NodeMemory>>>() {
        Some(nodes) => {
            machines.insert(machine.name, nodes);
            Outcome::Passed
        }
        None => Outcome::Failed(format!("{}: not a machine", machine.name)),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Reserved {
    node: usize,
    limits: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    qos: String,
    #[serde(default)]
    init: Vec<Container>,
    containers: Vec<Container>,
    pod_resources: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
struct Container {
    name: String,
    memory: Option<String>,
    #[serde(default)]
    hugepages: BTreeMap<String, String>,
    #[serde(default)]
    restartable: bool,
}

/// By type; `None` for a type without preference.
type Hints = BTreeMap<String, Option<Vec<(Vec<usize>, bool)>>>;
/// Nodes, type and bytes.
type Block = (Vec<usize>, String, u64);
/// A node: its number, its claims, the set that they are on, and free and taken bytes by type.
type NodeState = (usize, u64, Vec<usize>, BTreeMap<String, (u64, u64)>);

#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    id: String,
    machine: String,
    reserved_memory: Vec<Reserved>,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    /// None if the kubelet crashes.
    state: Option<Vec<NodeState>>,
    pod: Pod,
    /// None for a question about the whole pod.
    container: Option<String>,
    #[serde(default)]
    reusable: Vec<Block>,
    #[serde(default)]
    pod_blocks: BTreeMap<String, Vec<Block>>,
    #[serde(default)]
    hints: Option<Hints>,
    panic: Option<String>,
}

pub(super) fn bytes(text: &str) -> Option<u64> {
    Some(Quantity::parse(text).ok()?.milli() / 1000)
}

/// The machine without what is reserved.
pub(super) fn capacity(nodes: &[NodeMemory], reserved: &[Reserved]) -> Option<Capacity> {
    let mut nodes = nodes.to_vec();
    for Reserved { node, limits } in reserved {
        let node = nodes.iter_mut().find(|one| one.id == *node)?;
        for (kind, text) in limits {
            *node.reserved.entry(kind.parse().ok()?).or_default() += bytes(text)?;
        }
    }
    Capacity::new(nodes).ok()
}

/// Amounts of memory and, by the size of a page, of huge pages.
pub(super) fn amounts(
    memory: Option<&str>,
    huge_pages: &BTreeMap<String, String>,
) -> Option<Amounts> {
    let mut amounts = Amounts::new();
    if let Some(memory) = memory {
        amounts.insert(MemoryKind::Memory, bytes(memory)?);
    }
    for (size, text) in huge_pages {
        amounts.insert(format!("hugepages-{size}").parse().ok()?, bytes(text)?);
    }
    amounts.retain(|_, bytes| *bytes > 0);
    Some(amounts)
}

impl Container {
    fn amounts(&self) -> Option<Amounts> {
        amounts(self.memory.as_deref(), &self.hugepages)
    }
}

fn add(to: &mut Amounts, other: &Amounts) {
    other.iter().for_each(|(kind, bytes)| *to.entry(*kind).or_default() += bytes);
}

impl Pod {
    /// The most that containers have at a time. As in the kubelet, only types that a container of the
    /// pod proper asks for.
    fn demand(&self) -> Option<Amounts> {
        let mut apps = Amounts::new();
        for container in &self.containers {
            add(&mut apps, &container.amounts()?);
        }
        let asked: Vec<MemoryKind> = apps.keys().copied().collect();
        let mut sidecars = Amounts::new();
        let mut most = Amounts::new();
        for container in &self.init {
            let mut now = sidecars.clone();
            add(&mut now, &container.amounts()?);
            if container.restartable {
                sidecars = now;
            } else {
                now.iter().for_each(|(kind, bytes)| {
                    let most = most.entry(*kind).or_default();
                    *most = (*most).max(*bytes);
                });
            }
        }
        add(&mut apps, &sidecars);
        for (kind, bytes) in most {
            let all = apps.entry(kind).or_default();
            *all = (*all).max(bytes);
        }
        apps.retain(|kind, _| asked.contains(kind));
        Some(apps)
    }
}

fn claim((nodes, kind, bytes): &Block) -> Option<NodeMemoryClaim> {
    let amounts = Amounts::from([(kind.parse().ok()?, *bytes)]);
    Some(NodeMemoryClaim { nodes: nodes.iter().copied().collect(), amounts })
}

impl Vector {
    /// Claims that leave this state: one for each set of nodes that is in use.
    fn claims(&self) -> Option<Vec<NodeMemoryClaim>> {
        let mut claims: BTreeMap<NodeSet, Amounts> = BTreeMap::new();
        for (_, _, nodes, amounts) in
            self.state.iter().flatten().filter(|(_, count, ..)| *count > 0)
        {
            let taken = claims.entry(nodes.iter().copied().collect()).or_default();
            for (kind, (_, bytes)) in amounts {
                *taken.entry(kind.parse().ok()?).or_default() += bytes;
            }
        }
        Some(
            claims.into_iter().map(|(nodes, amounts)| NodeMemoryClaim { nodes, amounts }).collect(),
        )
    }

    /// Whether the kubelet answers with what the container or pod has already.
    fn has_memory(&self) -> bool {
        match &self.container {
            Some(name) => self.pod_blocks.contains_key(name),
            None => !self.pod_blocks.is_empty(),
        }
    }

    fn run(&self, machines: &MemoryMachines) -> Option<Result<(), String>> {
        let capacity = capacity(machines.get(&self.machine)?, &self.reserved_memory)?;
        let request = match &self.container {
            Some(name) => {
                let mut all = self.pod.init.iter().chain(&self.pod.containers);
                all.find(|container| container.name == *name)?.amounts()?
            }
            None => self.pod.demand()?,
        };
        let counted = self.pod.qos == "guaranteed" && self.pod.pod_resources.is_none();
        let claims = self.claims()?;
        let reusable = self.reusable.iter().map(claim).collect::<Option<Vec<NodeMemoryClaim>>>()?;
        let theirs = self.hints.as_ref().map(|hints| {
            let hint = |(nodes, preferred): &(Vec<usize>, bool)| Hint {
                nodes: Some(nodes.iter().copied().collect()),
                preferred: *preferred,
            };
            hints
                .values()
                .flatten()
                .map(|list| list.iter().map(hint).collect())
                .collect::<Vec<Vec<Hint>>>()
        });
        if !counted || request.is_empty() {
            return Some(if theirs.is_none() {
                Ok(())
            } else {
                Err("no memory is counted".into())
            });
        }
        let room = Room::new(&capacity, &claims);
        let ours = room.hints(&request, &reusable, Sharing::SameSet);
        // One list for each type; none at all if no set has them.
        let expect = if ours.is_empty() { Vec::new() } else { vec![ours; request.len()] };
        let same = theirs.as_ref() == Some(&expect);
        Some(if same { Ok(()) } else { Err(format!("{expect:?}, expected {theirs:?}")) })
    }
}

pub(super) fn check(vector: Vector, machines: &MemoryMachines) -> Outcome {
    let gate = vector.gates.get("PodLevelResourceManagers") == Some(&true);
    // The kubelet crashes; a feature that is not here; and the kubelet asks again for what a container
    // has, where this plugin keeps it.
    if vector.panic.is_some() || (gate && vector.pod.pod_resources.is_some()) || vector.has_memory()
    {
        return Outcome::Excepted;
    }
    match vector.run(machines) {
        None => Outcome::Failed(format!("{}: not a vector: {vector:?}", vector.id)),
        Some(Err(error)) => Outcome::Failed(format!("{}: {error}, {vector:?}", vector.id)),
        Some(Ok(())) => Outcome::Passed,
    }
}
