//! Which CPUs: the kubelet's CPU Manager as pure functions of a machine and a set of free CPUs.
//!
//! [`take()`] is one allocation. Nothing here keeps state, reads a file or a clock, or logs: who holds what is the
//! ledger's business.

mod distributed;
mod free;
#[cfg(test)]
mod machines;
pub mod options;
mod order;
mod packed;
pub mod reserve;
pub mod settings;
mod spread;
pub mod take;
pub mod topology_manager;
mod uncore;

pub use options::Options;
pub use reserve::Reservation;
pub use settings::Settings;
pub use take::{NotEnough, Strategy, UncoreOrder, take};
pub use topology_manager::{NodeLimit, Scope, TopologyManager, TopologyPolicy};
