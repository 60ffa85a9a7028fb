//! [`Shortage`]: how much memory a refused request asked for, and what was free for it.

use super::amounts::{Amounts, MemoryKind, amount, amount_at_least};
use super::room::{NodeMemoryClaim, Room, Sharing};
use crate::topology_manager::Scope;
use std::cmp::Reverse;
use std::fmt;

/// The most NUMA nodes that a message names for one type of memory.
const MAX_NAMED: usize = 8;

/// The memory that a refused request lacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Whose request it is.
    asks: Scope,
    /// At least one.
    lacks: Vec<Lack>,
    /// Whether a set of nodes that the policy admits for the memory alone has all of it.
    is_elsewhere: bool,
}

/// A type of memory that was lacking.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lack {
    kind: MemoryKind,
    requested: u64,
    /// The largest request that each node could hold alone, by id.
    free: Vec<(usize, u64)>,
    /// The largest request that this many nodes could hold together; `None` for one node.
    together: Option<(usize, u64)>,
}

/// A request for memory that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused<'a> {
    pub(super) asks: Scope,
    pub(super) amounts: &'a Amounts,
    /// As for [`Room::hints`].
    pub(super) reusable: &'a [NodeMemoryClaim],
    /// How many nodes the policy allows for it.
    pub(super) most: usize,
}

impl Shortage {
    /// `is_refused` says whether a type would be refused if nothing else were asked for. If none
    /// would be, all are lacking together.
    pub(super) fn of(
        room: &Room<'_>,
        refused: Refused<'_>,
        is_refused: impl Fn(MemoryKind) -> bool,
    ) -> Shortage {
        let Refused { asks, amounts, reusable, most } = refused;
        let mut lacking: Vec<(MemoryKind, u64)> =
            amounts.iter().map(|(kind, bytes)| (*kind, *bytes)).collect();
        if lacking.len() > 1 {
            let is_alone = |(kind, _): &&(MemoryKind, u64)| is_refused(*kind);
            let alone: Vec<(MemoryKind, u64)> = lacking.iter().filter(is_alone).copied().collect();
            lacking = if alone.is_empty() { lacking } else { alone };
        }
        let lack = |(kind, requested): (MemoryKind, u64)| Lack {
            kind,
            requested,
            free: room.free_by_node(kind, reusable),
            together: if most == 1 { None } else { Some((most, room.most(kind, reusable, most))) },
        };
        let lacks = lacking.into_iter().map(lack).collect();
        let sets = room.hints(amounts, reusable, Sharing::AnySet);
        let is_elsewhere =
            sets.iter().filter_map(|hint| hint.nodes).any(|nodes| nodes.len() <= most);
        Shortage { asks, lacks, is_elsewhere }
    }
}

impl fmt::Display for Shortage {
    /// `memory 30Gi requested; free for it: NUMA node 0 22.9Gi, NUMA node 1 24Gi`. Amounts that are
    /// not exact seem larger than they are if they were requested, and smaller if they are free.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, lack) in self.lacks.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            let by = match self.asks {
                Scope::Container => "",
                Scope::Pod => " by its pod",
            };
            let requested = amount_at_least(lack.requested);
            write!(f, "{separator}{} {requested} requested{by}; free for it: ", lack.kind)?;
            lack.write_free(f)?;
        }
        if self.is_elsewhere {
            f.write_str("; not on nodes that its CPUs, its devices or the rest of its pod allow")?;
        }
        Ok(())
    }
}

impl Lack {
    fn write_free(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes = self.free.clone();
        // The nodes with the most are those where the request nearly fits.
        nodes.sort_by_key(|&(id, free)| (Reverse(free), id));
        let others = nodes.split_off(nodes.len().min(MAX_NAMED));
        nodes.sort_unstable();
        for (at, (id, free)) in nodes.into_iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}NUMA node {id} {}", amount_or_none(free))?;
        }
        match others.first() {
            Some((_, 0)) => write!(f, ", {} others none", others.len())?,
            Some((_, most)) => {
                write!(f, ", {} others at most {} each", others.len(), amount(*most))?
            }
            None => {}
        }
        match self.together {
            Some((_, 0)) | None => Ok(()),
            Some((nodes, most)) => write!(f, ", any {nodes} together at most {}", amount(most)),
        }
    }
}

/// A 0 after the number of a node would look like a part of that.
fn amount_or_none(bytes: u64) -> String {
    if bytes == 0 { "none".to_owned() } else { amount(bytes) }
}
