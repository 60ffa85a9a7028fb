//! The bodies of the fuzz targets, which `tests/it/fuzz.rs` runs too.

#[path = "../../tests/fuzz_bodies/mod.rs"]
pub mod bodies;
