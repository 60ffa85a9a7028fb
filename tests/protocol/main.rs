//! The NRI edge against a runtime played by these tests, of every generation and of every kind of unkindness.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_enum_variant,
    reason = "a test fails by panicking, in its helpers as well"
)]

mod captures;
mod events;
mod framing;
mod go;
mod handshake;
mod hostile;
mod owner;
mod reconnect;
mod runtime;
mod updates;
