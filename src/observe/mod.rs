//! What the outside can see of the daemon: the log, metrics, health.
//!
//! ```text
//!   client ── http ── Question ──► the ledger's owner: Figures (plain data) ──► metrics, health: text ──► client
//! ```
//!
//! Nobody waits for an observer: a figure is added up where a decision is made anyway, everything else is counted when it
//! is asked for, and a question waits until no event does. [`metrics`], [`health`] and [`fragmentation`] are pure
//! functions of [`Figures`]; [`http`] and [`endpoint`] are the thin edge.

pub mod counters;
pub mod endpoint;
pub mod figures;
pub mod fragmentation;
pub mod health;
pub mod http;
pub mod log;
pub mod metrics;
pub mod question;

pub use counters::Counters;
pub use figures::{Figures, Link, NodeFigures};
pub use question::{Observer, Question, questions};
