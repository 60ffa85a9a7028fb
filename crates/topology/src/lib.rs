//! The machine: CPUs, cores, uncore caches, NUMA nodes, sockets and the distances between nodes.
//!
//! A [`Topology`] is read by [`sysfs`] from a real machine (or a copy of its `/sys`), or built from
//! [`Facts`].
//!
//! All modules but [`sysfs`] are pure. [`sysfs`] reads files, but logs nothing: it returns doubtful
//! facts as [`sysfs::Warning`]s.

mod cells;
pub mod model;
pub mod sysfs;
mod tally;

pub use cells::{Cell, Cells, Part, Sockets};
pub use model::{
    CacheSize, CoreKind, Cpu, Domain, Facts, MemorySize, NumaNode, OfflineCpu, Sizes, Topology,
    TopologyError,
};
pub use tally::{Place, Tally};
