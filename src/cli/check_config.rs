//! `nri-cpu-manager check-config`: what a configuration means, before a plugin follows it.
//!
//! It locks, makes and changes nothing: a plugin may run, with this file or another.

mod report;
mod trial;

pub use report::{AssignmentReport, Effect, Outlook, OverrideReport, Report, SettingsReport};

use super::client::{self, show};
use super::machine::{self, MachineError};
use super::node::NodeArgs;
use super::topology::Output;
use crate::checkpoint;
use crate::config::{Config, ConfigError};
use crate::ledger::Claim;
use crate::view::Status;
use clap::Args;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Arguments of `check-config`.
#[derive(Debug, Clone, Args)]
pub struct CheckConfigArgs {
    /// The configuration file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which node it is
    #[command(flatten)]
    pub node: NodeArgs,
    /// The directory of a plugin's state file: says what would change for the containers in it
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where the machine is read from
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Another machine than this one: a file of `topology --save`, a copy of a /sys, a preset
    /// (`topology --from list` shows them), or a description in words
    #[arg(long, value_name = "FILE|DIR|PRESET", conflicts_with = "sysfs_root")]
    pub topology: Option<String>,
    /// How to write it down
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Why a file cannot be used, or not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckConfigError {
    /// There is no configuration to read.
    #[error("cannot read {}: {source}. Is FILE right?", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no machine to read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The state file cannot be used.
    #[error("cannot use {}: {why}. Is --state-dir right?", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The output cannot be written.
    #[error("cannot write what was found: {0}")]
    Write(#[from] io::Error),
}

/// Checks the file and writes what it means to `out`.
///
/// # Errors
/// If the file cannot be used on this node, the machine or the state cannot be read, or `out`
/// cannot be written.
pub fn run(args: &CheckConfigArgs, out: &mut dyn Write) -> Result<(), CheckConfigError> {
    let report = check(args)?;
    let text = match args.output {
        Output::Text => report.to_string(),
        Output::Json => {
            format!("{}\n", serde_json::to_string_pretty(&report).map_err(io::Error::from)?)
        }
    };
    Ok(show(out, &text)?)
}

fn check(args: &CheckConfigArgs) -> Result<Report, CheckConfigError> {
    let document = Config::read(&args.file).map_err(|error| match error {
        // That error's advice is about the option --config, which this command lacks.
        ConfigError::Unreadable { path, source } => CheckConfigError::Unreadable { path, source },
        error => error.into(),
    })?;
    let topology = match &args.topology {
        Some(what) => machine::load(what)?.topology,
        None => machine::read(&args.sysfs_root)?.topology,
    };
    let node = args.node.identity();
    let here = args.node.pick(&document)?;
    let settings = here.resolve(&topology)?;
    let outlook = match &args.state_dir {
        None => None,
        Some(dir) => {
            let after = trial::after(&topology, &settings, claims(dir)?);
            Some(Outlook { shared_now: shared_now(dir), ..after })
        }
    };
    let overrides = document.overrides();
    let yields = overrides.into_iter().enumerate().map(|(at, entry)| {
        let yields = document.with(&[at])?;
        Ok(OverrideReport::of(entry, here.applied().contains(&at), &yields, &topology))
    });
    Ok(Report {
        file: args.file.display().to_string(),
        machine: args.topology.clone(),
        unknown: node.is_unknown(),
        node: node.name,
        settings: SettingsReport::of(&here, &settings),
        applied: here.applied().to_owned(),
        overrides: yields.collect::<Result<_, ConfigError>>()?,
        outlook,
    })
}

/// The claims in the state file; none without a file.
fn claims(dir: &Path) -> Result<Vec<Claim>, CheckConfigError> {
    let path = dir.join(checkpoint::FILE);
    let wrong = |why| CheckConfigError::State { path: path.clone(), why };
    match fs::read(&path) {
        Ok(bytes) => checkpoint::decode(&bytes).map_err(wrong),
        Err(error) if error.kind() == ErrorKind::NotFound && dir.is_dir() => Ok(Vec::new()),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// The shared pool of the plugin that runs with this state, if one does.
fn shared_now(dir: &Path) -> Option<String> {
    let answer = client::ask(dir, "/status").ok()?;
    let status: Status = client::read(&answer).ok()?;
    Some(status.node?.cpus.shared.to_string())
}
