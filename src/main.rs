//! The `nri-cpu-manager` command.

use clap::Parser;
use nri_cpu_manager::cli::{self, Cli, Command};
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Topology(args) => {
            cli::topology::run(&args, &mut io::stdout().lock(), &mut io::stderr().lock())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nri-cpu-manager: {error}");
            ExitCode::FAILURE
        }
    }
}
