//! `cpuctl schema`: JSON schemas for editors and programs.

use clap::{Args, ValueEnum};
use std::error::Error;
use std::io::Write;
use terminal::output::show;

#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    #[arg(value_enum, value_name = "DOCUMENT")]
    of: Document,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Document {
    /// The configuration file, and `config` in the chart's values
    Config,
    /// What `nri-cpu-manager status --output json` writes
    Status,
}

pub(crate) fn run(args: &SchemaArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let schema = match args.of {
        Document::Config => config::SCHEMA,
        Document::Status => status::SCHEMA,
    };
    Ok(show(out, schema)?)
}
