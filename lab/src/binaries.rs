//! The program under test and its helpers, built as static programs for containers and guests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cache;
use crate::command::{command, progress, run};
use crate::platform::Platform;

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
        let plugin = Self::build_plugin(Platform::HERE)?;
        if cfg!(target_feature = "crt-static") {
            let own = program_directory()?;
            return Ok(Self { plugin, lab: own.join("lab"), probe: own.join("probe") });
        }
        let lab = build(&["--profile", "lab", "--package", "lab", "--bins"])?;
        Ok(Self { plugin, lab: find(&lab, "lab")?, probe: find(&lab, "probe")? })
    }

    /// For a machine's architecture: `here`, or built for the other one.
    pub fn for_platform(here: &Self, platform: Platform) -> Result<Self> {
        if platform == Platform::HERE {
            return Ok(here.clone());
        }
        progress(format!("building the lab for {platform}: about five minutes the first time"));
        let lab = hack_build(platform, &["--lab"])?;
        let plugin = Self::build_plugin(platform)?;
        Ok(Self { plugin, lab: lab.join("lab"), probe: lab.join("probe") })
    }

    /// The program for containers alone.
    pub fn probe() -> Result<PathBuf> {
        if cfg!(target_feature = "crt-static") {
            return Ok(program_directory()?.join("probe"));
        }
        find(&build(&["--profile", "lab", "--package", "lab", "--bins"])?, "probe")
    }

    /// An example of the library for NRI plugins.
    pub fn nri_example(name: &str) -> Result<PathBuf> {
        // The whole workspace, so that the dependencies are those of the tests.
        let messages = build(&["--profile", "lab", "--workspace", "--example", name])?;
        find(&messages, name)
    }

    /// Only the shipped program, with the command that users run.
    pub fn build_plugin(platform: Platform) -> Result<PathBuf> {
        progress(format!(
            "building the plugin for {platform}, optimised: about five minutes the first time"
        ));
        hack_build(platform, &[])
    }
}

/// Returns the path that it prints. Cargo's progress and errors go to this program's standard
/// error, because a build takes minutes.
fn hack_build(platform: Platform, arguments: &[&str]) -> Result<PathBuf> {
    let mut build = command(cache::repository().join("hack/build"), arguments);
    build.stderr(Stdio::inherit());
    if platform != Platform::HERE {
        build.args(["--target", platform.machine()]);
    }
    let path = run(in_repository(&mut build))?;
    Ok(cache::repository().join(path.trim()))
}

/// The directory of this crate's programs, which cargo built together with the running program or
/// test.
fn program_directory() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    let directory = this.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    Ok(directory.context("this program has no directory")?.to_path_buf())
}

/// A static build. Returns cargo's messages, one JSON object per line.
fn build(arguments: &[&str]) -> Result<String> {
    // With a target, the flags do not apply to build scripts and macros, which cannot be static.
    let target = run(&mut command("rustc", ["--print", "host-tuple"]))?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    run(in_repository(&mut command(cargo, ["build", "--locked"]))
        .args(arguments)
        .args(["--target", target.trim(), "--message-format", "json-render-diagnostics"])
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))
}

fn in_repository(command: &mut Command) -> &mut Command {
    // An outer `cargo test` sets its own flags.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers read results from standard output: a path, an image's digest.
    #[test]
    fn scripts_write_progress_to_standard_error() {
        let script = "source hack/lib.sh; step building; cargo_progress; echo path";
        let mut bash = command("bash", ["-c", script]);
        let output = in_repository(bash.stderr(Stdio::piped())).output().unwrap();
        // Not on a terminal, so cargo is quiet.
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--quiet\npath\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "== building (0 s)\n");
    }
}
