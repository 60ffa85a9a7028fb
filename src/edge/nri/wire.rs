//! NRI's messages and the client of the runtime's service, generated from `proto/nri.proto`.
//!
//! Public for tests that act as the runtime; nothing else outside [`nri`](crate::edge::nri) may use it.
#![allow(
    unreachable_pub,
    rust_2018_idioms,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "generated code"
)]

include!(concat!(env!("OUT_DIR"), "/wire.rs"));

pub use nri::*;
pub use nri_ttrpc::{PluginClient, RuntimeClient};
