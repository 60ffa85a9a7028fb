//! What clients see of the node: status, explanations, metrics, health and pictures, each a pure
//! function of one immutable [`NodeView`].
//!
//! `history` keeps what later explanations need; `counters` has what the ledger's owner counts.

pub mod badge;
pub(crate) mod config_state;
pub(crate) mod counters;
pub(crate) mod explanation;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod noise;
pub mod outlook;
pub mod picture;
pub(crate) mod quiet;
pub mod status;

pub(crate) use counters::Counters;
pub use health::Health;
pub(crate) use history::History;
pub(crate) use node::{
    GroupBound, KubeletDevices, LastPlan, NodeFigures, OwnFigures, lack_of_cpus,
};
pub use node::{Link, NodeView};
pub use status::Status;
