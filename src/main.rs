//! The `nri-cpu-manager` command.
fn main() {}
