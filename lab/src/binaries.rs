//! The program under test and its helpers, built as static programs for containers and guests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

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
        let own = programs()?;
        Ok(Self { plugin, lab: own.join("lab"), probe: own.join("probe") })
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
        Ok(programs()?.join("probe"))
    }

    /// An example of the library for NRI plugins.
    pub fn nri_example(name: &str) -> Result<PathBuf> {
        // The whole workspace, so that the dependencies are those of the tests.
        let script = "source hack/lib.sh; cargo_static build --workspace --example \"$0\"";
        run(in_repository(&mut command("bash", ["-c", script, name])))?;
        Ok(programs()?.join("examples").join(name))
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

/// The directory of this crate's programs, as static builds: the running program or test is one of
/// them, or they are built.
fn programs() -> Result<PathBuf> {
    if cfg!(not(target_feature = "crt-static")) {
        return hack_build(Platform::HERE, &["--lab"]);
    }
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    let directory = this.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    Ok(directory.context("this program has no directory")?.to_path_buf())
}

fn in_repository(command: &mut Command) -> &mut Command {
    // An outer `cargo test` sets its own flags.
    command.current_dir(cache::repository()).env_remove("CARGO_ENCODED_RUSTFLAGS")
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
