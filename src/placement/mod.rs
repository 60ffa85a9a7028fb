//! Which CPUs: the kubelet's CPU Manager as pure functions of a machine and a set of free CPUs.
//!
//! [`take()`] is one allocation. Nothing here keeps state, reads a file or a clock, or logs: who holds what is the
//! ledger's business.

mod distributed;
mod free;
#[cfg(test)]
mod machines;
mod order;
mod packed;
mod spread;
pub mod take;
mod uncore;

pub use take::{NotEnough, Strategy, UncoreOrder, take};
