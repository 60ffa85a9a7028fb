//! Options for the linker.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A static binary relocates itself, and packed relocations are 100 KB less; a dynamic one would
    // need glibc 2.36 for them at run time. A linker that does not know the option ignores it.
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
