//! The machine: CPUs, cores, uncore caches, NUMA nodes, sockets and the distances between nodes.
//!
//! A [`Topology`] is read by [`sysfs`] from a real machine (or a copy of its `/sys`), built by
//! [`synthetic`] from a description ([`presets`] are named descriptions), or built from [`Facts`]
//! that a test writes by hand. [`picture`] draws it.
//!
//! ```
//! use topology::Topology;
//! use topology::presets::preset;
//!
//! let machine: Topology = preset("kep-4800").ok_or("no such machine")?.topology()?;
//! assert_eq!(machine.online().len(), 32);
//! assert_eq!(machine.uncores().len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All modules but [`sysfs`] are pure. [`sysfs`] reads files, but logs nothing: it returns doubtful
//! facts as [`sysfs::Warning`]s.

mod cells;
pub mod model;
pub mod picture;
pub mod presets;
pub mod synthetic;
pub mod sysfs;
mod tally;

pub use cells::{Cell, Cells, Part};
pub use model::{
    CacheSize, CoreKind, Cpu, Domain, Facts, MemorySize, NumaNode, OfflineCpu, Sizes, Topology,
    TopologyError,
};
pub use tally::{Place, Tally};
