//! What the machine looks like: CPUs, cores, uncore caches, NUMA nodes, sockets and the distances between nodes.
//!
//! [`model`] is pure and knows no files; readers and builders make its [`Facts`].

pub mod model;
pub mod tally;

pub use model::{CoreKind, Cpu, Domain, Facts, NumaNode, OfflineCpu, Place, Topology};
pub use tally::Tally;
