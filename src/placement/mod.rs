//! Which CPUs: pure functions of a machine and of what is free.
//!
//! A [`Request`] is everything that an answer depends on beside the machine. An [`Engine`] answers
//! it with a [`Placement`] or a [`Rejection`]: [`Kubelet`] as the kubelet's CPU Manager and
//! Topology Manager do, wherever their answers are legal; its files say where they are not.
//! [`preferences`] is what a pod may ask for on top.
//!
//! [`take()`] is one allocation from a free set, [`Settings`] the checked configuration. Nothing
//! here keeps state, reads a file or a clock, or logs: the ledger knows which container holds what.

pub mod answer;
mod boolean;
pub mod cores;
pub mod kubelet;
#[cfg(test)]
mod machines;
pub mod memory;
pub mod nodes;
pub mod options;
pub mod preferences;
pub mod rejection;
pub mod request;
pub mod settings;
pub mod topology_manager;
pub mod wishes;

pub use answer::{Placement, Supply};
pub use kubelet::Kubelet;
pub use kubelet::allocate::{affinity, allocate};
pub use kubelet::hints::{Demand, Hint};
pub use kubelet::merge::{Affinity, ResourceHints, merge};
pub use kubelet::reserve::Reservation;
pub use kubelet::strategy::{Strategy, UncoreOrder};
pub use kubelet::take::take;
pub use nodes::Numa;
pub use options::Options;

pub use rejection::{NotEnough, Reason, Rejection};
pub use request::{Engine, Request, place, resize};
pub use settings::Settings;
pub use topology_manager::{NodeLimit, Scope, TopologyManager, TopologyPolicy};
pub use wishes::Wishes;
