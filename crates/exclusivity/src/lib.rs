//! Keeps exclusive CPUs exclusive: between the ledger, which knows pods and containers, and
//! [`cgroups`], which knows paths.
//!
//! * `mechanism` chooses between partitions, cgroups and the runtime, by what the node can do.
//! * `layout` says which cgroups the ledger's pods and containers have and what these need, and to
//!   which pod a cgroup belongs.
//! * `figures` has what clients see of all this.
//! * `isolation` reads what the kernel keeps away from isolated partitions.
//! * `noise` finds the files that say what else runs or fires on exclusive CPUs.
//! * `quota` knows which containers' CFS quotas are lifted.
//! * `records` keeps the records of writes in the state directory.
//! * `steering` opens what moves interrupts and sets latency knobs.
//! * [`verify`] compares a decision with cgroup files and processes; it writes nothing.
//! * `watch` detects writes by other programs and new cgroups. It is not in [`cgroups`] because it asks
//!   Linux itself, asynchronously: a simulated node has its own.

mod figures;
mod isolation;
mod layout;
mod mechanism;
mod noise;
mod quota;
mod records;
mod steering;
pub mod verify;
mod watch;

pub use figures::{Figures, GroupBound};
pub use isolation::{Isolation, IsolationFiles};
pub use layout::{NodeLayout, foreign_partitions};
pub use mechanism::{Exclusivity, Means, consequence};
pub use noise::NoiseFiles;
pub use quota::{lift_quota, lifted_quotas};
pub use records::open_records;
pub use steering::{Access, open_steering, quiet_roots};
pub use watch::Watch;
