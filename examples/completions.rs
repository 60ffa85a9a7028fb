//! Writes completions of the command line for shells, for releases: `cargo run --example completions
//! -- DIR`. They are made when a release is built, so that the program on nodes carries no generator.

use clap::CommandFactory;
use clap_complete::Shell;
use nri_cpu_manager::cli::Cli;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Writes a file for each of bash, zsh and fish, by the names that these look for.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, &name, directory)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: completions DIR");
        return ExitCode::from(2);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("completions: {}: {error}", Path::new(&directory).display());
            ExitCode::FAILURE
        }
    }
}
