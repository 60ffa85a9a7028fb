//! What clients see of the node: status, explanations, metrics, health and pictures, each a pure
//! function of one immutable [`Snapshot`], or of the [`NodeView`] that it is made of.
//!
//! `history` keeps what later explanations need; `counters` has what the ledger's owner counts.

pub mod badge;
pub mod config;
pub mod config_state;
pub(crate) mod counters;
pub mod domains;
pub(crate) mod explanation;
pub mod facts;
pub(crate) mod health;
pub(crate) mod history;
pub mod memory;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod noise;
pub mod outline;
pub mod outlook;
pub mod picture;
pub(crate) mod quiet;
pub mod snapshot;

pub(crate) use counters::Counters;
pub use health::Health;
pub(crate) use history::History;
pub use node::{DaemonSettings, Link, NodeView};
pub(crate) use node::{KubeletDevices, LastPlan, NodeFigures, lack_of_cpus};
pub use snapshot::Snapshot;
