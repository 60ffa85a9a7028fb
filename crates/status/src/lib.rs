//! What clients see of the node: status, explanations, metrics, health and pictures, each a pure
//! function of one immutable [`Snapshot`], or of the [`NodeView`] that it is made of.
//!
//! `history` keeps what later explanations need; `counters` has what the ledger's owner counts.

pub mod badge;
pub mod config_state;
pub mod config_status;
pub mod counters;
pub mod domains;
pub mod explanation;
pub mod facts;
pub mod health;
pub mod history;
pub mod machine_file;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod noise;
pub mod outline;
pub mod outlook;
pub mod picture;
pub mod quiet;
pub mod snapshot;
pub mod socket;

pub use counters::Counters;
pub use health::Health;
pub use history::History;
pub use node::{DaemonSettings, Link, NodeView};
pub use node::{KubeletDevices, LastPlan, NodeFigures, lack_of_cpus};
pub use snapshot::Snapshot;

/// The JSON schema of a [`Snapshot`].
pub const SCHEMA: &str = include_str!("../schema.json");
