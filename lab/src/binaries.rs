//! The program under test and its helpers, built as static programs for containers and guests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache;
use crate::command::{command, run};
use image::{Platform, Programs};

/// The static programs that guests and containers need.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// What the image has, in the release profile.
    pub programs: Programs,
    /// This crate's own command, for running scenarios inside a guest.
    pub lab: PathBuf,
    pub probe: PathBuf,
}

impl Binaries {
    pub fn build() -> Result<Self> {
        let programs = Self::shipped(Platform::HERE)?;
        let own = own_programs()?;
        Ok(Self { programs, lab: own.join("lab"), probe: own.join("probe") })
    }

    /// For a machine's architecture: `here`, or built for the other one.
    pub fn for_platform(here: &Self, platform: Platform) -> Result<Self> {
        if platform == Platform::HERE {
            return Ok(here.clone());
        }
        let lab = hack_build(platform, &["--lab"])?;
        let programs = Self::shipped(platform)?;
        Ok(Self { programs, lab: lab.join("lab"), probe: lab.join("probe") })
    }

    /// The program for containers alone.
    pub fn probe() -> Result<PathBuf> {
        Ok(own_programs()?.join("probe"))
    }

    /// An example of the library for NRI plugins.
    pub fn nri_example(name: &str) -> Result<PathBuf> {
        // The whole workspace, so that the dependencies are those of the tests.
        let script = "source hack/lib.sh; cargo_static build --workspace --example \"$0\"";
        run(in_repository(&mut command("bash", ["-c", script, name])))?;
        Ok(own_programs()?.join("examples").join(name))
    }

    /// With the command that users run.
    fn shipped(platform: Platform) -> Result<Programs> {
        Ok(Programs::within(&hack_build(platform, &[])?))
    }
}

fn hack_build(platform: Platform, arguments: &[&str]) -> Result<PathBuf> {
    image::hack_build(&cache::repository(), platform, arguments)
}

/// The directory of this crate's programs, as static builds: the running program or test is one of
/// them, or they are built.
fn own_programs() -> Result<PathBuf> {
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
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    /// Standard output and standard error, neither of which is a terminal.
    fn output(script: &str) -> [String; 2] {
        let mut bash = command("bash", ["-c", script]);
        let output = in_repository(bash.stderr(Stdio::piped())).output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    }

    /// Callers read results from standard output: a path, an image's digest.
    #[test]
    fn scripts_write_progress_to_standard_error() {
        let [stdout, stderr] =
            output("source hack/lib.sh; step building; cargo_progress; echo path");
        // Not on a terminal, so cargo is quiet.
        assert_eq!(stdout, "--quiet\npath\n");
        assert_eq!(stderr, "== building (0 s)\n");
    }

    #[test]
    fn a_long_step_prints_lines_until_its_command_ends() {
        let start = Instant::now();
        let [stdout, stderr] = output(
            "source hack/lib.sh; half_minute=0.5
             long_step building bash -c 'sleep 1.8; exit 3' || echo $?
             half_minute=20; long_step short true",
        );
        assert_eq!(stdout, "3\n");
        let lines: Vec<&str> =
            stderr.lines().map(|line| line.split(" (").next().unwrap()).collect();
        let still = lines.len() - 2;
        assert!((1..=3).contains(&still), "{stderr}");
        let expected = [&["== building"][..], &["== still building"].repeat(still), &["== short"]];
        assert_eq!(lines, expected.concat());
        // The output ends with the command, too: whoever waits for its end waits for no line.
        assert!(start.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_long_step_that_is_killed_leaves_nothing() {
        let start = Instant::now();
        let [_, stderr] = output(
            "source hack/lib.sh; half_minute=20
             long_step building bash -c 'kill -KILL $PPID'",
        );
        assert_eq!(stderr, "== building (0 s)\n");
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
