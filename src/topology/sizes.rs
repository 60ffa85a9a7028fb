//! The sizes of caches and memories, for people; placement ignores them.

use std::collections::BTreeMap;

/// The known sizes of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The uncore caches, by their number (see [`Cpu::uncore`](super::Cpu::uncore)).
    pub caches: BTreeMap<usize, CacheSize>,
    /// Bytes of memory of each NUMA node, by its number.
    pub memory: BTreeMap<usize, u64>,
}

/// Level and size of an uncore cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// Its level: 3 for an L3.
    pub level: u32,
    /// Its capacity in bytes, if known.
    pub bytes: Option<u64>,
}
