//! `hack/bench-noise`: what else runs or fires on exclusive CPUs, without the plugin's mechanisms, with
//! each of them, and with interrupts moved away. `cpuctl bench-gain noise` counts it, without a
//! plugin and without containers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::binaries::Binaries;
use crate::chaos::command::Location;
use crate::command;
use crate::devices;
use crate::job::Software;
use crate::task::Task;
use crate::vm::{self, Machine};

/// The machine with devices that can be kept busy.
const MACHINE: &str = "devices";
/// Modes of `bench-gain noise`.
const MODES: u64 = 5;

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seconds per mode
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Where to run: on a virtual machine or on this machine
    #[arg(long, value_enum, default_value_t = Location::Server)]
    pub on: Location,
    /// On this machine: shell command that makes interrupts, such as 'ping -f HOST'; repeat it for several
    #[arg(long = "load", value_name = "COMMAND")]
    pub loads: Vec<String>,
    /// Software of the virtual machine
    #[command(flatten)]
    pub software: Software,
}

pub fn run(options: &Options) -> Result<()> {
    let Options { seconds, on, loads, software } = options;
    let binaries = Binaries::build()?;
    match on {
        Location::Host => {
            let status = counting(&binaries.programs.cpuctl, *seconds, loads).status();
            let status = status.context("cannot start cpuctl")?;
            ensure!(status.success(), "cpuctl bench-gain noise: {status}");
        }
        Location::Server => {
            ensure!(loads.is_empty(), "--load is for --on host: the virtual machine has its own");
            let patience = Duration::from_secs(600 + 3 * MODES * seconds);
            let task = Task::Foreign(*seconds);
            let machine = Machine::load(MACHINE)?;
            let text: String = vm::run(&machine, *software, task, &binaries, patience)?;
            print!("{text}");
        }
    }
    Ok(())
}

/// In the guest, under load of its devices.
pub(crate) fn count(program: &Path, seconds: u64) -> Result<String> {
    devices::connect()?;
    command::run(&mut counting(program, seconds, &devices::loads()?))
}

fn counting(program: &Path, seconds: u64, loads: &[String]) -> Command {
    let mut command =
        command::command(program, ["bench-gain", "noise", "--seconds", &seconds.to_string()]);
    for load in loads {
        command.args(["--load", load]);
    }
    command
}
