//! Which CPUs: the kubelet's CPU Manager as pure functions of a machine and a set of free CPUs.
//!
//! [`allocate()`] is the whole decision for one container, and what the ledger calls:
//!
//! ```text
//! request ── Demand ── best NUMA affinity ── admitted? ── whole cores? ── take inside ── take the rest ── CPUs
//!            (hints, best, closest, merge)   (decide)     (allocate)      └ packed, uncore, spread, distributed
//! ```
//!
//! [`take()`] is one allocation from a free set, [`Settings`] is what the node's configuration says, checked, and a
//! [`Rejection`] is why a container may not run. The answers are the kubelet's wherever those are legal; each file says
//! where they are not. Nothing here keeps state, reads a file or a clock, or logs: who holds what is the ledger's
//! business.

pub mod allocate;
mod balance;
mod best;
mod closest;
mod combinations;
pub mod devices;
mod distributed;
mod free;
pub mod hints;
#[cfg(test)]
mod machines;
pub mod memory;
pub mod merge;
pub mod nodes;
pub mod options;
mod order;
mod packed;
pub mod rejection;
pub mod required;
pub mod reserve;
pub mod resize;
pub mod settings;
mod spread;
pub mod take;
pub mod topology_manager;
mod uncore;
pub mod wishes;

pub use allocate::{Allocation, Supply, affinity, allocate};
pub use hints::{Demand, Hint};
pub use merge::{Affinity, ResourceHints, merge};
pub use nodes::Numa;
pub use options::Options;
pub use rejection::{Reason, Rejection};
pub use reserve::Reservation;
pub use settings::Settings;
pub use take::{NotEnough, Strategy, UncoreOrder, take};
pub use topology_manager::{NodeLimit, Scope, TopologyManager, TopologyPolicy};
pub use wishes::Wishes;
