//! [`MemoryOffer`]: which sets of NUMA nodes have the memory of a request, as the engines that choose
//! CPUs need it.

use super::room::Sharing;
use super::{Amounts, NodeMemoryClaim, Room};
use crate::hint::Hint;
use cpuset::NodeSet;

/// The most NUMA nodes with counted memory on which memory and CPUs are chosen together: the limit that the
/// topology manager has by default.
pub const MAX_OFFERED_NODES: usize = 8;

/// The sets of nodes that have the memory of a request; small, because every request has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOffer {
    /// All nodes; at most [`MAX_OFFERED_NODES`].
    nodes: NodeSet,
    /// A bit for each set, at the number whose digits are its nodes in ascending order.
    sets: [u64; 4],
    /// How many nodes the preferred sets have; `None` if none of these has the memory.
    width: Option<usize>,
    /// How many types it asks for: as many resources of the topology manager.
    kinds: usize,
}

impl MemoryOffer {
    /// `None` if nothing is asked for, or if the machine has too many nodes. As in the kubelet, memory
    /// that no set of nodes has also has no preference.
    pub fn new(
        room: &Room<'_>,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        sharing: Sharing,
    ) -> Option<MemoryOffer> {
        let nodes = room.all_nodes();
        if request.is_empty() || nodes.len() > MAX_OFFERED_NODES {
            return None;
        }
        let mut offer = MemoryOffer { nodes, sets: [0; 4], width: None, kinds: request.len() };
        for Hint { nodes, preferred } in room.hints(request, reusable, sharing) {
            let Some(set) = nodes else { continue };
            if preferred {
                offer.width = Some(set.len());
            }
            if let Some(index) = offer.index(set) {
                offer.sets[index / 64] |= 1 << (index % 64);
            }
        }
        if offer.sets == [0; 4] { None } else { Some(offer) }
    }

    /// Whether this set of nodes has the memory.
    pub fn has(&self, set: NodeSet) -> bool {
        self.index(set).is_some_and(|index| self.sets[index / 64] >> (index % 64) & 1 == 1)
    }

    pub fn hint(&self, set: NodeSet) -> Option<Hint> {
        let preferred = Some(set.len()) == self.width;
        if self.has(set) { Some(Hint { nodes: Some(set), preferred }) } else { None }
    }

    /// All sets, in no particular order.
    pub fn hints(&self) -> impl Iterator<Item = Hint> {
        let sets = (1..1usize << self.nodes.len()).map(|index| self.set(index));
        sets.filter_map(|set| self.hint(set))
    }

    pub fn kinds(&self) -> usize {
        self.kinds
    }

    fn index(&self, set: NodeSet) -> Option<usize> {
        let digits = self.nodes.iter().enumerate().filter(|(_, node)| set.contains(*node));
        if set.is_subset(self.nodes) { Some(digits.map(|(at, _)| 1 << at).sum()) } else { None }
    }

    fn set(&self, index: usize) -> NodeSet {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(at, _)| index >> at & 1 == 1).map(|(_, node)| node).collect()
    }
}
