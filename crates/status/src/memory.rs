//! Memory by NUMA node and type, on nodes where memory is counted. In JSON, amounts are bytes.

use cpuset::NodeSet;
use ledger::View;
use placement::memory_manager::{MemoryKind, NodeMemoryClaim, Room, amount};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStatus {
    /// By node, then by type.
    pub numa_nodes: Vec<NodeMemoryStatus>,
    /// Memory of containers that have several nodes: the kernel takes its pages from any of these.
    pub together: Vec<JointMemoryStatus>,
    /// Of all nodes together.
    pub types: Vec<MemoryTypeStatus>,
}

/// One type of a node's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeMemoryStatus {
    /// The NUMA node's number.
    pub id: usize,
    /// `memory`, `hugepages-2Mi`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For containers: without what is reserved for the system.
    pub allocatable: u64,
    /// To containers whose memory is on this node alone.
    pub allocated: u64,
    /// The largest request that fits this node alone.
    pub free: u64,
}

/// One type of memory that containers have on several nodes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JointMemoryStatus {
    /// These nodes.
    pub numa_nodes: Vec<usize>,
    /// `memory`, `hugepages-2Mi`.
    #[serde(rename = "type")]
    pub kind: String,
    /// In bytes, to containers on exactly these nodes.
    pub allocated: u64,
}

/// One type of memory, on all nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryTypeStatus {
    /// `memory`, `hugepages-2Mi`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The largest request in bytes that fits all nodes together.
    pub free: u64,
    /// The largest request that fits one node.
    pub free_in_one_node: u64,
    /// How scattered free memory is, from 0 to 1.
    pub fragmentation: f64,
}

impl MemoryStatus {
    /// `None` if memory is not counted.
    pub fn of(view: &View) -> Option<MemoryStatus> {
        let capacity = view.settings.memory.as_ref()?;
        let claims = || view.containers.iter().filter_map(|container| container.memory.as_ref());
        let room = Room::new(capacity, claims());
        let mut allocated: BTreeMap<(NodeSet, MemoryKind), u64> = BTreeMap::new();
        for claim in claims() {
            // As in `Room`, nodes that the machine no longer has do not count.
            let nodes = claim.nodes.intersection(capacity.all());
            for (kind, bytes) in &claim.amounts {
                let sum = allocated.entry((nodes, *kind)).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let mut numa_nodes = Vec::new();
        let mut types = Vec::new();
        for kind in capacity.kinds() {
            let first = numa_nodes.len();
            for (id, amounts) in capacity.nodes() {
                let allocatable = amounts.get(&kind).copied().unwrap_or(0);
                // Most pools of huge pages are empty.
                if allocatable == 0 && kind != MemoryKind::Memory {
                    continue;
                }
                let node = NodeSet::of(id);
                numa_nodes.push(NodeMemoryStatus {
                    id,
                    kind: kind.to_string(),
                    allocatable,
                    allocated: allocated.get(&(node, kind)).copied().unwrap_or(0),
                    free: room.free(kind, node),
                });
            }
            let nodes: &[NodeMemoryStatus] = &numa_nodes[first..];
            if nodes.is_empty() {
                continue;
            }
            let free = room.free(kind, capacity.all());
            let in_one = nodes.iter().map(|node| node.free).max().unwrap_or(0);
            let largest = nodes.iter().map(|node| node.allocatable).max().unwrap_or(0);
            types.push(MemoryTypeStatus {
                kind: kind.to_string(),
                free,
                free_in_one_node: in_one,
                fragmentation: fragmentation(in_one, free.min(largest)),
            });
        }
        // Stable: the types of a node keep their order.
        numa_nodes.sort_by_key(|node| node.id);
        let together = allocated.iter().filter(|((nodes, _), _)| nodes.len() > 1);
        let together = together.map(|((nodes, kind), bytes)| JointMemoryStatus {
            numa_nodes: nodes.iter().collect(),
            kind: kind.to_string(),
            allocated: *bytes,
        });
        let together = together.collect();
        Some(MemoryStatus { numa_nodes, together, types })
    }

    /// A line for each node, and for each set of nodes that containers have together.
    pub fn lines(&self) -> Vec<String> {
        let nodes = self.numa_nodes.chunk_by(|a, b| a.id == b.id).map(|types| {
            let each = types.iter().map(|one| {
                let NodeMemoryStatus { kind, allocatable, allocated, free, .. } = one;
                let [allocatable, allocated, free] =
                    [allocatable, allocated, free].map(|n| amount(*n));
                format!("{kind} {allocatable}, {allocated} allocated, {free} free")
            });
            let id = types.iter().map(|one| one.id).min().unwrap_or(0);
            format!("NUMA node {id}: {}", each.collect::<Vec<_>>().join("; "))
        });
        let together = self.together.iter();
        let together = together.map(|one| {
            format!("{}: {} {} allocated", one.label(), one.kind, amount(one.allocated))
        });
        nodes.chain(together).collect()
    }
}

impl JointMemoryStatus {
    /// `nodes 0,1 together`.
    pub fn label(&self) -> String {
        format!("nodes {} together", self.list())
    }

    /// `0,1`.
    pub fn list(&self) -> String {
        list(&self.numa_nodes)
    }
}

/// 0 if one node has all that one node could have.
fn fragmentation(free_in_one_node: u64, at_best: u64) -> f64 {
    if at_best == 0 { 0.0 } else { 1.0 - free_in_one_node as f64 / at_best as f64 }
}

/// The counted memory of a container: `memory 8Gi, hugepages-2Mi 1Gi`.
pub fn amounts(memory: &NodeMemoryClaim) -> String {
    let words = memory.amounts.iter().map(|(kind, bytes)| format!("{kind} {}", amount(*bytes)));
    words.collect::<Vec<_>>().join(", ")
}

/// `NUMA node 0`, `NUMA nodes 0,1`.
pub fn nodes(memory: &NodeMemoryClaim) -> String {
    let plural = if memory.nodes.len() == 1 { "" } else { "s" };
    format!("NUMA node{plural} {}", numbers(memory.nodes))
}

/// `memory 8Gi on 0,1`.
pub fn short(memory: &NodeMemoryClaim) -> String {
    format!("{} on {}", amounts(memory), numbers(memory.nodes))
}

fn numbers(nodes: NodeSet) -> String {
    list(&nodes.iter().collect::<Vec<_>>())
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Ledger, Settings};
    use machines::synthetic::Machine;
    use placement::memory_manager::{Amounts, Capacity, NodeMemory};

    const GI: u64 = 1 << 30;
    const HUGE: MemoryKind = MemoryKind::HugePages(2 << 20);

    /// A view of two nodes of 10 GiB and a pool of 1 GiB each.
    fn view() -> View {
        let machine = Machine { sockets: 2, cores: 4, ..Machine::default() };
        let node = |id| NodeMemory {
            id,
            total: 11 * GI,
            huge_pages: Amounts::from([(HUGE, GI), (MemoryKind::HugePages(GI), 0)]),
            reserved: Amounts::new(),
        };
        let memory = Some(Capacity::new((0..2).map(node)).unwrap());
        let settings = Settings { memory, ..Settings::default() };
        View::clone(&Ledger::new(machine.topology().unwrap(), settings, Vec::new()).view())
    }

    #[test]
    fn an_empty_machine_has_all_its_memory_free_in_one_piece_a_node() {
        let memory = MemoryStatus::of(&view()).unwrap();
        let line = "memory 10Gi, 0 allocated, 10Gi free; hugepages-2Mi 1Gi, 0 allocated, 1Gi free";
        let lines = [0, 1].map(|id| format!("NUMA node {id}: {line}"));
        assert_eq!(memory.lines(), lines);
        let types = memory.types.iter();
        let types = types.map(|one| (&*one.kind, one.free, one.free_in_one_node));
        let expect = [("memory", 20 * GI, 10 * GI), ("hugepages-2Mi", 2 * GI, GI)];
        assert_eq!(types.collect::<Vec<_>>(), expect);
        assert!(memory.types.iter().all(|one| one.fragmentation == 0.0));
    }

    #[test]
    fn without_counted_memory_there_is_no_status() {
        let mut view = view();
        view.settings = Default::default();
        assert_eq!(MemoryStatus::of(&view), None);
    }

    #[test]
    fn memory_in_pieces_is_fragmented() {
        assert_eq!(fragmentation(5, 10), 0.5);
        assert_eq!(fragmentation(10, 10), 0.0);
        assert_eq!(fragmentation(0, 0), 0.0);
    }

    #[test]
    fn memory_of_a_container_is_named_by_type_and_node() {
        let amounts = Amounts::from([(HUGE, GI), (MemoryKind::Memory, 8 * GI)]);
        let claim = NodeMemoryClaim { nodes: [0, 1].into_iter().collect(), amounts };
        assert_eq!(short(&claim), "memory 8Gi, hugepages-2Mi 1Gi on 0,1");
        assert_eq!(nodes(&claim), "NUMA nodes 0,1");
    }
}
