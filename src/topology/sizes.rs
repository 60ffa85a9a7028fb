//! How large caches and memories are: shown to people, of no weight in placement.

use std::collections::BTreeMap;

/// The sizes found on a machine. What the kernel does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The uncore caches, by their number (see [`Cpu::uncore`](super::Cpu::uncore)).
    pub caches: BTreeMap<usize, CacheSize>,
    /// Bytes of memory of each NUMA node, by its number.
    pub memory: BTreeMap<usize, u64>,
}

/// What is known of one uncore cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// Its level: 3 for an L3.
    pub level: u32,
    /// Its capacity in bytes.
    pub bytes: Option<u64>,
}
