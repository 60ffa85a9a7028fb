//! What the outside can see of the daemon: the log, metrics, health, status and explanations.
//!
//! ```text
//! client ── http ── Question ──► the ledger's owner ── NodeView ──► metrics, report ... ──► client
//! ```
//!
//! No event waits for an observer: the owner answers a question when no event waits, with an
//! immutable view of the node. The server makes the observer's text from that view. `metrics`,
//! `health`, [`report`] and `explanation` are pure functions; [`http`] and [`endpoint`] are the
//! thin edge. `history` keeps what later explanations need.

pub mod badge;
pub(crate) mod clock;
pub(crate) mod config_state;
mod connections;
pub(crate) mod counters;
pub mod endpoint;
pub(crate) mod explanation;
pub mod figures;
pub(crate) mod fragmentation;
pub(crate) mod health;
pub(crate) mod history;
pub mod http;
pub mod log;
pub(crate) mod metrics;
pub mod page;
pub mod picture;
pub(crate) mod question;
pub mod report;
pub(crate) mod time;

pub(crate) use counters::Counters;
pub(crate) use figures::NodeFigures;
pub use figures::{Figures, Link};
pub(crate) use history::History;
pub(crate) use question::Question;
pub use question::{NodeView, Observer, questions};
pub use report::Status;
