//! What the machine looks like: CPUs, cores, uncore caches, NUMA nodes, sockets and the distances
//! between nodes.
//!
//! Three ways lead to a [`Topology`]: [`sysfs`] reads a real machine (or a copy of its `/sys`),
//! [`synthetic`] builds a described one ([`presets`] have names), and tests write [`Facts`] by
//! hand. [`picture`] draws one for people.
//!
//! [`model`], [`sizes`], [`synthetic`], [`presets`] and [`picture`] are pure; only [`sysfs`] reads
//! files, and it logs nothing: what it could not believe comes back as [`sysfs::Warning`]s.
//! [`model`] is pure and knows no files; readers and builders make its [`Facts`].

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
