//! Which nodes a container's memory is on, within the affinity that the topology manager chose.
//!
//! As in the kubelet, an affinity without enough memory is extended to a set that includes it.
//! Without an affinity it is the best set for memory alone.

use super::amounts::{Amounts, only};
use super::room::{NodeMemoryClaim, Room, Sharing};
use super::shortage::{Refused, Shortage};
use crate::hint::Hint;
use crate::rejection::{Reason, Rejection};
use crate::topology_manager::Scope;
use cpuset::NodeSet;

/// Why no set of nodes can hold a request, in the kubelet's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    #[error(
        "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    Nowhere,
    /// No set that includes the affinity has room.
    #[error("failed to find NUMA nodes to extend the current topology hint")]
    NotAround,
    /// The affinity was preferred, and the sets that include it and have room are wider than the
    /// request needs.
    #[error("failed to find the extended preferred hint")]
    NotPreferred,
    /// The affinity has enough memory, but claims on some of its nodes are on other sets.
    #[error("preferred hint violates NUMA node allocation")]
    Violation,
}

impl NoMemory {
    /// The kubelet's rejection of a container for which its Memory Manager finds no nodes.
    pub(super) fn rejection(self) -> Rejection {
        let message = format!("Allocate failed due to [memorymanager] {self}, which is unexpected");
        Rejection::new(Reason::UnexpectedAdmission, message)
    }
}

impl Room<'_> {
    /// The nodes of a request within an affinity, which other resources have a part in: by the
    /// kubelet's rule if that allows a set, otherwise any legal one.
    ///
    /// # Errors
    /// If neither does.
    pub fn allocate(
        &self,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        affinity: Hint,
    ) -> Result<NodeSet, NoMemory> {
        let by = |sharing| self.allocate_by(request, reusable, affinity, sharing);
        by(Sharing::SameSet).or_else(|error| by(Sharing::AnySet).map_err(|_| error))
    }

    /// The nodes for a claim that grows: the present ones, or the fewest around them that have room.
    ///
    /// # Errors
    /// If none have.
    pub fn around(&self, request: &Amounts, nodes: NodeSet) -> Result<NodeSet, Rejection> {
        let affinity = Hint { nodes: Some(nodes), preferred: false };
        let answer = |request: &Amounts| self.allocate(request, &[], affinity);
        answer(request).map_err(|error| {
            let asks = Scope::Container;
            let refused =
                Refused { asks, amounts: request, reusable: &[], most: self.all_nodes().len() };
            let is_refused = |kind| answer(&only(kind, request)).is_err();
            let memory = Some(Box::new(Shortage::of(self, refused, is_refused)));
            Rejection { memory, ..error.rejection() }
        })
    }

    /// Whether exactly these nodes can hold a request legally.
    pub fn has(&self, request: &Amounts, nodes: NodeSet) -> bool {
        let hints = self.hints(request, &[], Sharing::AnySet);
        hints.iter().any(|hint| hint.nodes == Some(nodes))
    }

    /// As [`Room::allocate`], by one of the two rules.
    pub(super) fn allocate_by(
        &self,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        affinity: Hint,
        sharing: Sharing,
    ) -> Result<NodeSet, NoMemory> {
        let hints = self.hints(request, reusable, sharing);
        let sets = || hints.iter().filter_map(|hint| Some((hint.nodes?, hint.preferred)));
        // The kubelet's order: preferred sets, then small ones, then the lowest as a binary number.
        let best = |around: NodeSet| {
            let around = sets().filter(|(nodes, _)| around.is_subset(*nodes));
            around.min_by_key(|&(nodes, preferred)| (!preferred, nodes.len(), nodes))
        };
        let Some(within) = affinity.nodes else {
            return best(NodeSet::EMPTY).map(|(nodes, _)| nodes).ok_or(NoMemory::Nowhere);
        };
        if sets().any(|(nodes, _)| nodes == within) {
            return Ok(within);
        }
        if sharing == Sharing::SameSet && self.is_tied(request, within) {
            return Err(NoMemory::Violation);
        }
        match best(within) {
            None => Err(NoMemory::NotAround),
            Some((_, false)) if affinity.preferred => Err(NoMemory::NotPreferred),
            Some((nodes, _)) => Ok(nodes),
        }
    }

    /// The fewest of these nodes that have the memory, if they are at most `most`.
    pub(super) fn narrowed(
        &self,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        sharing: Sharing,
        nodes: NodeSet,
        most: usize,
    ) -> Result<NodeSet, NoMemory> {
        let sets = self.hints(request, reusable, sharing);
        let sets = sets.into_iter().filter_map(|hint| hint.nodes);
        let mut inside = sets.filter(|set| set.is_subset(nodes) && set.len() <= most);
        // The hints have small sets first.
        inside.next().ok_or(NoMemory::NotPreferred)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Capacity, MemoryKind, NodeMemory};
    use super::*;

    fn memory(bytes: u64) -> Amounts {
        Amounts::from([(MemoryKind::Memory, bytes)])
    }

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().copied().collect()
    }

    /// On three nodes of 10 bytes and one of 4: the nodes of a request, or why there are none.
    #[track_caller]
    fn check(claims: &[(&[usize], u64)], bytes: u64, affinity: Hint, expect: &str) {
        let node = |id| NodeMemory {
            id,
            total: if id < 3 { 10 } else { 4 },
            huge_pages: Amounts::new(),
            reserved: Amounts::new(),
        };
        let capacity = Capacity::new((0..4).map(node)).unwrap();
        let claim = |(nodes, bytes): &(&[usize], u64)| NodeMemoryClaim {
            nodes: set(nodes),
            amounts: memory(*bytes),
        };
        let claims: Vec<NodeMemoryClaim> = claims.iter().map(claim).collect();
        let room = Room::new(&capacity, &claims);
        let found = match room.allocate(&memory(bytes), &[], affinity) {
            Ok(nodes) => nodes.to_string(),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(found, expect, "{bytes} within {affinity:?} beside {claims:?}");
    }

    fn within(nodes: &[usize], preferred: bool) -> Hint {
        Hint { nodes: Some(set(nodes)), preferred }
    }

    #[test]
    fn without_an_affinity_the_narrowest_and_lowest_set_is_taken() {
        let any = Hint { nodes: None, preferred: false };
        check(&[], 8, any, "0");
        check(&[(&[0], 5)], 8, any, "1");
        check(&[(&[0], 5)], 15, any, "1,2");
        check(&[], 34, any, "0,1,2,3");
        check(&[], 35, any, "Nowhere");
        check(&[(&[0], 5), (&[1], 5), (&[2], 5)], 20, any, "Nowhere");
    }

    #[test]
    fn an_affinity_with_too_little_memory_is_extended() {
        check(&[], 8, within(&[1], true), "1");
        check(&[], 8, within(&[1, 2], false), "1,2");
        check(&[(&[1], 5)], 8, within(&[1], false), "0,1");
        check(&[(&[1], 5)], 8, within(&[1], true), "NotAround");
        check(&[], 8, within(&[3], false), "0,3");
        check(&[], 8, within(&[3], true), "NotPreferred");
        check(&[(&[0], 9), (&[1], 9), (&[2], 9)], 8, within(&[1], true), "NotAround");
    }

    /// A node that is used alone joins a group, and a node of a group is used alone, only where
    /// nothing else is left.
    #[test]
    fn the_kubelets_rule_comes_first() {
        let any = Hint { nodes: None, preferred: false };
        check(&[(&[0, 1], 12)], 4, any, "2");
        check(&[(&[0, 1], 12), (&[2], 8)], 5, any, "0,1");
        check(&[(&[0, 1], 12), (&[2], 8)], 5, within(&[0], true), "0");
        check(&[(&[0], 2), (&[1], 2), (&[2], 2)], 14, any, "0,1");
        check(&[(&[0], 2), (&[1], 2), (&[2], 2)], 24, any, "0,1,2");
        check(&[(&[0], 2), (&[1], 2), (&[2], 2)], 29, any, "Nowhere");
    }
}
