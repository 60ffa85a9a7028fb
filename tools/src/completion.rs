//! `cpuctl completion`: what a shell completes.

use crate::Cli;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::error::Error;
use std::io::Write;
use terminal::output::show;

#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// The shell that reads them, as in `source <(cpuctl completion bash)`
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cpuctl", &mut script);
    Ok(show(out, &String::from_utf8(script)?)?)
}
