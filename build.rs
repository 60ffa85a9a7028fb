//! Makes Rust of `proto/nri.proto`, without `protoc`.

use std::path::PathBuf;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/nri.proto");
    println!("cargo::rerun-if-changed=build.rs");
    // A static binary relocates itself, and packed relocations are 100 KB less; a dynamic one would
    // need glibc 2.36 for them at run time. A linker that does not know the option ignores it.
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    ttrpc_codegen::Codegen::new()
        .out_dir(&out)
        .include("proto")
        .input("proto/nri.proto")
        .rust_protobuf()
        .customize(ttrpc_codegen::Customize { async_all: true, ..Default::default() })
        .run()?;
    // The generator permits unsafe code that it never writes; this crate forbids it, and may not be
    // overruled.
    let bindings = out.join("nri_ttrpc.rs");
    fs::write(&bindings, fs::read_to_string(&bindings)?.replace("#![allow(unsafe_code)]\n", ""))?;
    // The generators' own list of modules cannot be included: it begins with attributes of a whole
    // file.
    fs::write(out.join("wire.rs"), "pub mod nri;\npub mod nri_ttrpc;\n")?;
    Ok(())
}
