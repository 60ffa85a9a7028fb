//! The `nri-cpu-manager` command.

use nri_cpu_manager::Cli;
use std::io;
use std::process::ExitCode;
use terminal::{end, exit_status};

fn main() -> ExitCode {
    let result = Cli::from_process().command.run(&mut io::stdout(), &mut io::stderr());
    end("nri-cpu-manager", result, exit_status)
}
