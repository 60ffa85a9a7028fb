//! [`Capacity`]: how much of each type of memory containers can be given, by NUMA node.

use super::amounts::{Amounts, MemoryKind};
use cpuset::NodeSet;
use std::collections::BTreeSet;

/// The most NUMA nodes of a machine whose memory is counted; others may have memory only. The work of a decision doubles with each.
pub const MAX_MEMORY_NODES: usize = 16;

/// What a NUMA node has, and what of it is reserved for the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    pub id: usize,
    /// All memory of the node in bytes, its huge pages included.
    pub total: u64,
    /// Pools of huge pages in bytes, by type.
    pub huge_pages: Amounts,
    pub reserved: Amounts,
}

/// What containers can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Ascending.
    pub(super) nodes: Vec<(usize, Amounts)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    #[error(
        "memory is counted on machines of at most {MAX_MEMORY_NODES} NUMA nodes with CPUs, and this one has {0}"
    )]
    TooManyNodes(usize),
    /// The kubelet's subtraction has no sign, and leaves an enormous node.
    #[error(
        "NUMA node {node} has {has} bytes of {kind} besides other pools, and {reserved} are reserved"
    )]
    ReservedTooMuch { node: usize, kind: MemoryKind, has: u64, reserved: u64 },
}

impl Capacity {
    /// Nodes without memory count, as for the kubelet: a set of nodes may have some.
    ///
    /// # Errors
    /// If more is reserved than a node has, or if there are too many nodes.
    pub fn new(nodes: impl IntoIterator<Item = NodeMemory>) -> Result<Capacity, CapacityError> {
        let mut all = Vec::new();
        for node in nodes {
            all.push((node.id, allocatable(&node)?));
        }
        if all.len() > MAX_MEMORY_NODES {
            return Err(CapacityError::TooManyNodes(all.len()));
        }
        all.sort_by_key(|(id, _)| *id);
        Ok(Capacity { nodes: all })
    }

    /// Each node with what containers can be given of it, ascending.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (usize, &Amounts)> {
        self.nodes.iter().map(|(id, amounts)| (*id, amounts))
    }

    /// All types that a node has.
    pub fn kinds(&self) -> BTreeSet<MemoryKind> {
        self.nodes.iter().flat_map(|(_, amounts)| amounts.keys().copied()).collect()
    }

    pub fn all(&self) -> NodeSet {
        self.nodes.iter().map(|(id, _)| *id).collect()
    }
}

/// The memory of a node that is in no pool, and each pool, without what is reserved.
fn allocatable(node: &NodeMemory) -> Result<Amounts, CapacityError> {
    let pools = node.huge_pages.values().fold(0u64, |sum, pool| sum.saturating_add(*pool));
    let mut amounts = node.huge_pages.clone();
    amounts.insert(MemoryKind::Memory, node.total.saturating_sub(pools));
    for (&kind, &reserved) in &node.reserved {
        let has = amounts.get(&kind).copied().unwrap_or(0);
        let left = has.checked_sub(reserved);
        let left =
            left.ok_or(CapacityError::ReservedTooMuch { node: node.id, kind, has, reserved })?;
        amounts.insert(kind, left);
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: MemoryKind = MemoryKind::HugePages(2 << 20);

    fn node(id: usize, total: u64, pool: u64, reserved: &[(MemoryKind, u64)]) -> NodeMemory {
        let reserved = reserved.iter().copied().collect();
        NodeMemory { id, total, huge_pages: [(HUGE, pool)].into(), reserved }
    }

    #[test]
    fn pools_and_reserved_memory_are_not_given_as_memory() {
        let nodes =
            [node(3, 100, 40, &[]), node(0, 100, 40, &[(MemoryKind::Memory, 10), (HUGE, 40)])];
        let capacity = Capacity::new(nodes).unwrap();
        let memory = |memory, huge| Amounts::from([(MemoryKind::Memory, memory), (HUGE, huge)]);
        let expect = [(0, &memory(50, 0)), (3, &memory(60, 40))];
        assert!(capacity.nodes().eq(expect), "{capacity:?}");
    }

    #[test]
    fn no_more_is_reserved_than_there_is() {
        let error = Capacity::new([node(2, 100, 40, &[(MemoryKind::Memory, 61)])]).unwrap_err();
        let expect = "NUMA node 2 has 60 bytes of memory besides other pools, and 61 are reserved";
        assert_eq!(error.to_string(), expect);
        let many = (0..17).map(|id| node(id, 1, 0, &[]));
        assert_eq!(Capacity::new(many), Err(CapacityError::TooManyNodes(17)));
    }
}
