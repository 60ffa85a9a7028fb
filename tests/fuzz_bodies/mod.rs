//! The bodies of the fuzz targets: functions of arbitrary bytes that panic on a defect.
//!
//! `fuzz/` calls them with the input of a coverage-guided fuzzer (`hack/fuzz`), and
//! `tests/it/fuzz.rs` with the committed corpus and random bytes, so they run with every `cargo
//! test` as well.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "shared by a test and by the fuzz targets"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a finding is a panic")]

pub mod annotations;
pub mod calls;
mod edge;
mod node;
mod podresources;
mod text;

pub use annotations::{annotations, well_formed};
pub use edge::{mux, ttrpc};
pub use podresources::{authority, podresources};
pub use text::{adopt, checkpoint, config, cpulist, kubelet, masks};

pub type Body = fn(&[u8]);

/// The targets in the order of `hack/fuzz all`.
pub const TARGETS: &[(&str, Body)] = &[
    ("cpulist", cpulist),
    ("masks", masks),
    ("mux", mux),
    ("ttrpc", ttrpc),
    ("checkpoint", checkpoint),
    ("config", config),
    ("kubelet", kubelet),
    ("podresources", podresources),
    ("authority", authority),
    ("annotations", annotations),
];
