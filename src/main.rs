//! The `nri-cpu-manager` command.

use nri_cpu_manager::{Cli, exit_status};
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::from_process().command.run(&mut io::stdout(), &mut io::stderr()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the last resort; the exit code says the same.
            for line in error.to_string().lines() {
                let _ = writeln!(io::stderr(), "nri-cpu-manager: {line}");
            }
            ExitCode::from(exit_status(&*error))
        }
    }
}
