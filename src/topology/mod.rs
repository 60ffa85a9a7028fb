//! The machine: CPUs, cores, uncore caches, NUMA nodes, sockets and the distances between nodes.
//!
//! Three ways lead to a [`Topology`]: [`sysfs`] reads a real machine (or a copy of its `/sys`),
//! [`synthetic`] builds a described one ([`presets`] have names), and tests write [`Facts`] by
//! hand. [`picture`] draws one for people.
//!
//! All but [`sysfs`] are pure. [`sysfs`] reads files, but logs nothing: it returns doubtful facts
//! as [`sysfs::Warning`]s.

pub mod model;
pub mod picture;
mod place;
pub mod presets;
pub mod sizes;
pub mod synthetic;
pub mod sysfs;
pub mod tally;

pub use model::{CoreKind, Cpu, Domain, Facts, NumaNode, OfflineCpu, Topology, TopologyError};
pub use place::Place;
pub use tally::Tally;
