//! The bodies of the fuzz targets, which `tests/fuzz.rs` runs too.

#[path = "../../tests/fuzz_bodies/mod.rs"]
pub mod bodies;
