//! Keeps exclusive CPUs exclusive: between the ledger, which knows pods and containers, and
//! [`cgroups`], which knows paths.
//!
//! * `mechanism` chooses between partitions, cgroups and the runtime, by what the node can do.
//! * `layout` says which cgroups the ledger's pods and containers have and what these need, and to
//!   which pod a cgroup belongs.
//! * `memory` keeps the record of writes in the state directory.
//! * `quota` knows which containers' CFS quotas are lifted.
//! * `watch` detects writes by other programs and new cgroups. It is not in the crate because it asks
//!   Linux itself, asynchronously: a simulated node has its own.

mod layout;
mod mechanism;
mod memory;
mod quota;
mod watch;

pub use layout::{NodeLayout, foreign_partitions};
pub use mechanism::{Exclusivity, Means, consequence};
pub use memory::open_memory;
pub use quota::{lift_quota, lifted_quotas};
pub use watch::Watch;
