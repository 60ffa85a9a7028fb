//! What the fuzz targets do with their bytes, and what must hold whatever the bytes are.
//!
//! Plain functions that panic when something is wrong: `fuzz/` hands them what a coverage-guided
//! fuzzer makes up (`hack/fuzz`), `tests/fuzz.rs` the committed corpus and random bytes, so that
//! they also run with every `cargo test`.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "shared by a test and by the fuzz targets"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a finding is a panic")]

pub mod calls;
mod edge;
mod node;
mod text;

pub use edge::{mux, ttrpc};
pub use text::{adopt, checkpoint, config, cpulist, kubelet, masks};

/// What a target does with its bytes.
pub type Body = fn(&[u8]);

/// A target by name, in the order of `hack/fuzz all`.
pub const TARGETS: &[(&str, Body)] = &[
    ("cpulist", cpulist),
    ("masks", masks),
    ("mux", mux),
    ("ttrpc", ttrpc),
    ("checkpoint", checkpoint),
    ("config", config),
    ("kubelet", kubelet),
];
