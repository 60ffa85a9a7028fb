//! What the commands of both programs share.
//!
//! * `client` asks a running plugin through its socket.
//! * `input` reads files that arguments name, `-` among them.
//! * `node` has the options that say which node a configuration is for.
//! * `output` has formats, colours, tables and lines that fit.

pub mod client;
pub mod input;
mod node;
pub mod output;

pub use node::NodeArgs;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// A mistake on the command line that shows only after parsing: options that contradict each other,
/// or one that another needs. The exit status is that of clap's own errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}. See --help")]
pub struct UsageError(pub String);

/// The exit status of a command that failed.
pub fn exit_status(error: &(dyn Error + 'static)) -> u8 {
    if error.is::<UsageError>() { 2 } else { 1 }
}

/// The end of a program. An error goes to standard error, with the program's name before each line.
pub fn end(
    program: &str,
    result: Result<(), Box<dyn Error>>,
    status: fn(&(dyn Error + 'static)) -> u8,
) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // Standard error is the last resort; the exit code says the same.
    for line in error.to_string().lines() {
        let _ = writeln!(io::stderr(), "{program}: {line}");
    }
    ExitCode::from(status(&*error))
}
