//! The `nri-cpu-manager` command: arguments, then a subcommand, then an exit code.

use nri_cpu_manager::cli::log;
use nri_cpu_manager::cli::{self, Cli, Command};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result: Result<(), Box<dyn Error>> = match Cli::from_process().command {
        Command::Run(args) => {
            log::start();
            cli::run::run(args)
        }
        Command::Status(args) => {
            cli::status::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
        Command::Explain(args) => {
            cli::explain::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
        Command::CheckConfig(args) => {
            cli::check_config::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
        Command::Topology(args) => {
            cli::topology::run(&args, &mut io::stdout().lock(), &mut io::stderr().lock())
                .map_err(Into::into)
        }
        Command::Simulate(args) => {
            cli::simulate::run(&args, &mut io::stdout().lock(), &mut io::stderr().lock())
                .map_err(Into::into)
        }
        Command::KubeletState(args) => {
            cli::kubelet_state::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
        Command::EnableNri(args) => {
            cli::enable_nri::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
        Command::Release(args) => {
            cli::release::run(&args, &mut io::stdout().lock()).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the last resort; the exit code says the same.
            let _ = writeln!(io::stderr(), "nri-cpu-manager: {error}");
            ExitCode::FAILURE
        }
    }
}
