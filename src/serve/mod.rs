//! Serves metrics, probes, the status and the page, over TCP and over a socket in the state
//! directory.
//!
//! ```text
//! client ── http ── Question ──► the ledger's owner ── NodeView ──► view::metrics ... ──► client
//! ```
//!
//! No event waits for a client: the owner answers a question only when no event waits.

mod connections;
pub mod endpoint;
pub mod http;
pub mod page;
mod question;

pub(crate) use question::Question;
pub use question::{ViewSource, questions};
