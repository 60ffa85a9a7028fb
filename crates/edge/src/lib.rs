//! The edges: where calls from outside become [`Message`]s to the one owner of the ledger.
//!
//! [`nri`] is the edge to the container runtime; another one would send the same messages.

mod message;
pub mod nri;

pub use message::{DaemonSender, Message, Refusal, Response, Subscriptions};
