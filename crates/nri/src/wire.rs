//! NRI's messages and the client of the runtime's service, generated from `proto/nri.proto`.
//!
//! Fields and messages have the names of the protocol. An absent message reads as its default.
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

pub use self::nri::*;
pub(crate) use self::nri_ttrpc::RuntimeClient;
