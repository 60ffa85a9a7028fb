//! The bodies of the fuzz targets, the very ones that `tests/fuzz.rs` runs.

#[path = "../../tests/fuzz_bodies/mod.rs"]
pub mod bodies;
