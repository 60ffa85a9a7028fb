//! [`Room`]: what the claims on a node's memory leave for a request.

use super::amounts::{Amounts, MemoryKind};
use super::capacity::Capacity;
use crate::combinations::next_combination;
use crate::hint::Hint;
use cpuset::NodeSet;

/// Memory of a container: how much, on which nodes together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeMemoryClaim {
    /// The NUMA nodes that it has together.
    #[cfg_attr(feature = "serde", serde(rename = "numa_nodes"))]
    pub nodes: NodeSet,
    /// Bytes by type.
    pub amounts: Amounts,
}

/// Which sets of nodes a request may use beside other claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The kubelet's rule: every claim on a node of the set is on exactly this set.
    SameSet,
    /// Every set on which all claims can be met.
    AnySet,
}

/// A set of nodes by their positions in [`Capacity::nodes`].
type Mask = usize;

/// The claims on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    Unused,
    /// All of them are on this set.
    To(Mask),
    ToSeveral,
}

/// What claims leave of a capacity.
#[derive(Debug)]
pub struct Room<'c> {
    capacity: &'c Capacity,
    claims: Vec<(Mask, &'c Amounts)>,
    ties: Vec<Tie>,
}

impl<'c> Room<'c> {
    /// Nodes of a claim that the machine no longer has are ignored.
    pub fn new(
        capacity: &'c Capacity,
        claims: impl IntoIterator<Item = &'c NodeMemoryClaim>,
    ) -> Room<'c> {
        let mut room =
            Room { capacity, claims: Vec::new(), ties: vec![Tie::Unused; capacity.nodes().len()] };
        for claim in claims {
            let mask = room.mask(claim.nodes);
            for at in bits(mask) {
                room.ties[at] = match room.ties[at] {
                    Tie::Unused => Tie::To(mask),
                    Tie::To(other) if other == mask => Tie::To(mask),
                    _ => Tie::ToSeveral,
                };
            }
            if mask != 0 {
                room.claims.push((mask, &claim.amounts));
            }
        }
        room
    }

    /// The sets of nodes that can hold a request, in the kubelet's order: small sets first, then
    /// lexicographically. A set is preferred if it has no more nodes than the request would need on
    /// the empty machine.
    ///
    /// `reusable` are claims of ended init containers of the same pod, which are among the claims:
    /// the request may use their memory.
    pub fn hints(
        &self,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        sharing: Sharing,
    ) -> Vec<Hint> {
        let tables = self.tables(request, reusable, sharing);
        let mut hints = Vec::new();
        let mut width = None;
        for size in 1..=self.ties.len() {
            let mut chosen: Vec<usize> = (0..size).collect();
            loop {
                let mask = chosen.iter().fold(0, |mask, at| mask | 1 << at);
                if tables.iter().all(|table| table.holds_when_empty(mask)) {
                    let width = *width.get_or_insert(size);
                    if self.allows(mask, sharing) && tables.iter().all(|table| table.holds(mask)) {
                        hints
                            .push(Hint { nodes: Some(self.nodes(mask)), preferred: size == width });
                    }
                }
                if !next_combination(&mut chosen, self.ties.len()) {
                    break;
                }
            }
        }
        hints
    }

    /// Whether several nodes together have a request beside the claims within them, and are not
    /// allowed for it by the kubelet's rule.
    pub(super) fn is_tied(&self, request: &Amounts, nodes: NodeSet) -> bool {
        let mask = self.mask(nodes);
        let has = |(kind, bytes): (&MemoryKind, &u64)| {
            let of = |amounts: &Amounts| i128::from(amounts.get(kind).copied().unwrap_or(0));
            let all: i128 = bits(mask).map(|at| of(&self.capacity.nodes[at].1)).sum();
            let claims = self.claims.iter().filter(|(claim, _)| claim & !mask == 0);
            let taken: i128 = claims.map(|(_, amounts)| of(amounts)).sum();
            all - taken >= i128::from(*bytes)
        };
        nodes.len() > 1 && !self.allows(mask, Sharing::SameSet) && request.iter().all(has)
    }

    pub(super) fn all_nodes(&self) -> NodeSet {
        self.capacity.all()
    }

    /// The largest request for one type that these nodes can hold together beside the claims.
    pub fn free(&self, kind: MemoryKind, nodes: NodeSet) -> u64 {
        self.free_by_set(kind, &[])[self.mask(nodes)]
    }

    /// The largest request for one type that each node can hold alone, by id. `reusable` is as in
    /// [`Room::hints`].
    pub(super) fn free_by_node(
        &self,
        kind: MemoryKind,
        reusable: &[NodeMemoryClaim],
    ) -> Vec<(usize, u64)> {
        let free = self.free_by_set(kind, reusable);
        let nodes = self.capacity.nodes().enumerate();
        nodes.map(|(at, (id, _))| (id, free[1 << at])).collect()
    }

    /// The largest request for one type that any `size` nodes can hold together.
    pub(super) fn most(&self, kind: MemoryKind, reusable: &[NodeMemoryClaim], size: usize) -> u64 {
        let free = self.free_by_set(kind, reusable).into_iter().enumerate();
        let of_size = free.filter(|(mask, _)| mask.count_ones() as usize == size);
        of_size.map(|(_, free)| free).max().unwrap_or(0)
    }

    /// By set of nodes, the largest request for one type that these can hold together.
    fn free_by_set(&self, kind: MemoryKind, reusable: &[NodeMemoryClaim]) -> Vec<u64> {
        let tables = self.tables(&Amounts::from([(kind, 0)]), reusable, Sharing::AnySet);
        // There is one table, for one type. Claims exceed the nodes if these have become smaller.
        let free = tables.into_iter().flat_map(|table| table.free);
        free.map(|free| u64::try_from(free).unwrap_or(0)).collect()
    }

    /// How many nodes a request needs on the empty machine; `None` if even all are too few.
    pub(super) fn fewest(&self, request: &Amounts) -> Option<usize> {
        let tables = self.tables(request, &[], Sharing::SameSet);
        let holds = |mask: &Mask| tables.iter().all(|table| table.holds_when_empty(*mask));
        let masks = (1..1usize << self.ties.len()).filter(holds);
        masks.map(|mask| mask.count_ones() as usize).min()
    }

    /// Whether the claims can be met all at once.
    pub fn is_legal(&self) -> bool {
        self.capacity.kinds().into_iter().all(|kind| {
            let empty = Amounts::from([(kind, 0)]);
            let tables = self.tables(&empty, &[], Sharing::AnySet);
            tables.iter().all(|table| table.free.iter().all(|free| *free >= 0))
        })
    }

    fn allows(&self, mask: Mask, sharing: Sharing) -> bool {
        let free = |at| matches!(self.ties[at], Tie::Unused) || self.ties[at] == Tie::To(mask);
        sharing == Sharing::AnySet || bits(mask).all(free)
    }

    fn tables(
        &self,
        request: &Amounts,
        reusable: &[NodeMemoryClaim],
        sharing: Sharing,
    ) -> Vec<Table> {
        let reusable: Vec<(Mask, &Amounts)> =
            reusable.iter().map(|claim| (self.mask(claim.nodes), &claim.amounts)).collect();
        let table = |(&kind, &bytes): (&MemoryKind, &u64)| {
            let of = |amounts: &Amounts| i128::from(amounts.get(&kind).copied().unwrap_or(0));
            let nodes: Vec<i128> = self.capacity.nodes().map(|(_, amounts)| of(amounts)).collect();
            let empty = sums(&nodes);
            // By set: what claims on exactly this set take, without what the request may use.
            let mut taken = vec![0; empty.len()];
            self.claims.iter().for_each(|(mask, amounts)| taken[*mask] += of(amounts));
            reusable.iter().for_each(|(mask, amounts)| taken[*mask] -= of(amounts));
            let free = match sharing {
                Sharing::SameSet => {
                    empty.iter().zip(&taken).map(|(all, used)| all - used).collect()
                }
                Sharing::AnySet => headroom(&empty, taken),
            };
            Table { needed: i128::from(bytes), empty, free }
        };
        request.iter().map(table).collect()
    }

    fn mask(&self, nodes: NodeSet) -> Mask {
        let all = self.capacity.nodes().enumerate();
        all.filter(|(_, (id, _))| nodes.contains(*id)).fold(0, |mask, (at, _)| mask | 1 << at)
    }

    fn nodes(&self, mask: Mask) -> NodeSet {
        let all = self.capacity.nodes().enumerate();
        all.filter(|(at, _)| mask >> at & 1 == 1).map(|(_, (id, _))| id).collect()
    }
}

/// What each set of nodes has of one type.
struct Table {
    needed: i128,
    empty: Vec<i128>,
    free: Vec<i128>,
}

impl Table {
    fn holds_when_empty(&self, mask: Mask) -> bool {
        self.empty[mask] >= self.needed
    }

    fn holds(&self, mask: Mask) -> bool {
        self.free[mask] >= self.needed
    }
}

fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..usize::BITS as usize).filter(move |at| mask >> at & 1 == 1)
}

/// By set of nodes, the sum of its nodes.
fn sums(nodes: &[i128]) -> Vec<i128> {
    let mut sums = vec![0; 1 << nodes.len()];
    for mask in 1..sums.len() {
        let lowest = mask.trailing_zeros() as usize;
        sums[mask] = sums[mask & (mask - 1)] + nodes[lowest];
    }
    sums
}

/// By set of nodes, how much more a claim on it can have: the least that any larger set has left
/// beside the claims within it. `taken` is by exactly that set. Both transforms go through the sets
/// once for each node, so the work does not grow with the number of claims.
fn headroom(capacity: &[i128], taken: Vec<i128>) -> Vec<i128> {
    let mut within = taken;
    let nodes = capacity.len().trailing_zeros() as usize;
    for node in 0..nodes {
        for mask in 0..within.len() {
            if mask >> node & 1 == 1 {
                within[mask] += within[mask ^ 1 << node];
            }
        }
    }
    let mut least: Vec<i128> = capacity.iter().zip(&within).map(|(all, used)| all - used).collect();
    for node in 0..nodes {
        for mask in 0..least.len() {
            if mask >> node & 1 == 0 {
                least[mask] = least[mask].min(least[mask | 1 << node]);
            }
        }
    }
    least
}

#[cfg(test)]
mod tests;
