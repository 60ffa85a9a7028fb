//! Compiles the lab's CRI definitions: in pure Rust, so that no protoc has to be installed.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/cri.proto");
    let files = protox::compile(["proto/cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
