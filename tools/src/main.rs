//! The `cpuctl` command.

use clap::Parser;
use cpuctl::{Cli, exit_status};
use std::io;
use std::process::ExitCode;
use terminal::end;

fn main() -> ExitCode {
    let result = Cli::parse().command.run(&mut io::stdout(), &mut io::stderr());
    end("cpuctl", result, exit_status)
}
