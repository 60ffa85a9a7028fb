//! What the outside can see of the daemon: the log, metrics, health, status and explanations.
//!
//! ```text
//!   client ── http ── Question ──► the ledger's owner: NodeView ──► metrics, health, report, explanation ──► client
//! ```
//!
//! No event waits for an observer: the owner answers a question when no event waits, with an
//! immutable view of the node. What an observer reads is made from that on the server's side.
//! [`metrics`], [`health`], [`report`] and [`explanation`] are pure functions; [`http`] and
//! [`endpoint`] are the thin edge. What is worth explaining later is kept in [`history`].

pub mod badge;
pub mod clock;
pub mod config_state;
mod connections;
pub mod counters;
pub mod endpoint;
pub mod explanation;
pub mod figures;
pub mod fragmentation;
pub mod health;
pub mod history;
pub mod http;
pub mod log;
pub mod metrics;
pub mod page;
pub mod picture;
pub mod question;
pub mod report;
pub mod time;

pub use config_state::ConfigState;
pub use counters::Counters;
pub use explanation::Explanation;
pub use figures::{Figures, Link, NodeFigures};
pub use history::History;
pub use question::{NodeView, Observer, Question, questions};
pub use report::Status;
pub use time::Moment;
