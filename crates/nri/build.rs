//! Makes Rust of `proto/nri.proto`, without `protoc`.

use std::path::PathBuf;
use std::{env, error::Error, fs};

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    let messages = format!("{PROTO}/nri.proto");
    println!("cargo::rerun-if-changed={messages}");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    ttrpc_codegen::Codegen::new()
        .out_dir(&out)
        .include(PROTO)
        .input(messages)
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
