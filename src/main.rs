//! The `nri-cpu-manager` command: arguments, then a subcommand, then an exit code.

use nri_cpu_manager::cli::log;
use nri_cpu_manager::cli::{self, Cli, Command};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::from_process().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the last resort; the exit code says the same.
            for line in error.to_string().lines() {
                let _ = writeln!(io::stderr(), "nri-cpu-manager: {line}");
            }
            ExitCode::from(cli::exit_status(&*error))
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    let out = &mut io::stdout();
    let warnings = &mut io::stderr();
    match command {
        Command::Run(args) => {
            log::start(args.log_format);
            cli::run::run(args)?;
        }
        Command::Status(args) => cli::status::run(&args, out)?,
        Command::Explain(args) => cli::explain::run(&args, out)?,
        Command::Noise(args) => cli::noise::run(&args, out, warnings)?,
        Command::CheckConfig(args) => cli::check_config::run(&args, out, warnings)?,
        Command::Topology(args) => cli::topology::run(&args, out, warnings)?,
        Command::Simulate(args) => cli::simulate::run(&args, out, warnings)?,
        Command::KubeletState(args) => cli::kubelet_state::run(&args, out)?,
        Command::Doctor(args) => cli::doctor::run(&args, out)?,
        Command::EnableNri(args) => cli::enable_nri::run(&args, out)?,
        Command::BenchGain(args) => cli::bench_gain::run(&args, out)?,
        Command::Uninstall(args) => cli::uninstall::run(&args, out)?,
    }
    Ok(())
}
