//! Serves metrics, probes, the status and the page, over TCP and over a socket in the state
//! directory.
//!
//! ```text
//! client ── http ── Question ──► the ledger's owner ── NodeView ──► render: metrics ...      ──► client
//! client ── http ── Question ──► the ledger's owner ── DryRun ─► render: what a change would do ──► client
//! probe  ── http ◄── Health ──── the ledger's owner, after each event and every second
//! ```
//!
//! No event waits for a client: the owner answers a question only when no event waits. All else is done by two threads
//! of the least priority: one has the connections, one makes the answers.

mod connections;
pub mod endpoint;
pub mod http;
pub mod page;
mod question;
mod render;

pub use question::{DryRun, Observers, Question, ViewSource, questions};
