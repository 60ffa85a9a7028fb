//! The programs under test and their helpers, built as they ship: static, so that they run in any
//! container or guest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cache;
use crate::command::{command, progress, run};

/// The static programs that guests and containers need.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// The plugin, in the release profile.
    pub plugin: PathBuf,
    /// This crate's own command, for running scenarios inside a guest.
    pub lab: PathBuf,
    pub probe: PathBuf,
}

impl Binaries {
    pub fn build() -> Result<Self> {
        progress("building the static programs (first time: some minutes)");
        let plugin = Self::build_plugin()?;
        if cfg!(target_feature = "crt-static") {
            let own = beside_this_program()?;
            return Ok(Self { plugin, lab: own.join("lab"), probe: own.join("probe") });
        }
        let lab = build(&["--profile", "lab", "--package", "lab", "--bins"])?;
        Ok(Self { plugin, lab: find(&lab, "lab")?, probe: find(&lab, "probe")? })
    }

    /// Copies that later builds do not change, for runs that take hours.
    pub fn copies(&self) -> Result<Self> {
        let directory = cache::directory("programs")?;
        let keep = |from: &PathBuf| -> Result<PathBuf> {
            let name = from.file_name().context("a program has no name")?;
            let to = directory.join(name);
            // Another file: what runs already goes on with the old one.
            cache::remove(&to)?;
            std::fs::copy(from, &to)
                .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
            Ok(to)
        };
        Ok(Self { plugin: keep(&self.plugin)?, lab: keep(&self.lab)?, probe: keep(&self.probe)? })
    }

    /// Only the shipped program, with the command that users run.
    pub fn build_plugin() -> Result<PathBuf> {
        let path =
            run(in_repository(&mut command(cache::repository().join("hack/build"), [""; 0])))?;
        Ok(cache::repository().join(path.trim()))
    }
}

/// Where this crate's programs are, which cargo has built together with the one that runs: a
/// program or a test of it.
fn beside_this_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell which program runs")?;
    let directory = this.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    Ok(directory.context("the program that runs is in no directory")?.to_path_buf())
}

/// A static build. Returns cargo's messages, one JSON object per line.
fn build(arguments: &[&str]) -> Result<String> {
    // Naming the target keeps the flags away from build scripts and macros, which cannot be static.
    let target = run(&mut command("rustc", ["--print", "host-tuple"]))?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    run(in_repository(&mut command(cargo, ["build", "--locked"]))
        .args(arguments)
        .args(["--target", target.trim(), "--message-format", "json-render-diagnostics"])
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))
}

fn in_repository(command: &mut Command) -> &mut Command {
    // An outer `cargo test` has set its own flags, for that run only.
    command.current_dir(cache::repository()).env_remove("CARGO_ENCODED_RUSTFLAGS")
}

fn find(messages: &str, name: &str) -> Result<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no executable {name}"))
}
