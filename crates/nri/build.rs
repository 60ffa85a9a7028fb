//! Compiles `proto/nri.proto` to Rust, without `protoc`.

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
    // The generated file allows unsafe code, although it has none. This crate forbids it, which no file
    // may override.
    let bindings = out.join("nri_ttrpc.rs");
    fs::write(&bindings, fs::read_to_string(&bindings)?.replace("#![allow(unsafe_code)]\n", ""))?;
    // The generated list of modules cannot be used with `include!`: it begins with attributes of a whole
    // file.
    fs::write(out.join("wire.rs"), "pub mod nri;\npub mod nri_ttrpc;\n")?;
    Ok(())
}
