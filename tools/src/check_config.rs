//! `cpuctl check-config`: the effect of a configuration, before a plugin uses it.
//!
//! It locks and writes nothing: a plugin may be running, with this file or another.

mod report;

pub(crate) use report::{CheckReport, OverrideReport, SettingsReport};

use crate::machine;
use clap::Args;
use config::{self, Config, FromKubelet};
use exclusivity::{Access, quiet_roots};
use kernel::Linux;
use status::config_state::overrides;
use status::outlook::Outlook;
use status::socket::TRY;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use terminal::NodeArgs;
use terminal::client;
use terminal::input;
use terminal::output::{Output, show, wrapped};

#[derive(Debug, Clone, Args)]
pub struct CheckConfigArgs {
    /// The configuration file, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// FILE is a kubelet's configuration (YAML or JSON): print the block of it for this plugin, and on
    /// standard error what is left out
    #[arg(long, conflicts_with_all = ["live", "sysfs_root", "topology", "output"])]
    pub kubelet: bool,
    #[command(flatten)]
    pub node: NodeArgs,
    /// Ask the plugin that runs on this node, and show what would change for its containers
    #[arg(long, conflicts_with = "topology")]
    pub live: bool,
    /// The plugin's state directory, for --live
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager", requires = "live")]
    pub state_dir: PathBuf,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// In a container: the directory with the host's proc/irq, sys and run
    #[arg(long, value_name = "DIR", env = "HOST_ROOT")]
    pub host_root: Option<PathBuf>,
    /// Check for another machine: a file of `topology --save`, a copy of /sys, a preset (`topology
    /// --list` shows them), or a description like "pack:2 core:8"
    #[arg(long, value_name = "FILE|DIR|PRESET", conflicts_with = "sysfs_root")]
    pub topology: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Writes the result to `out`, and what is left out of a kubelet's file to `warnings`.
pub(crate) fn run(
    args: &CheckConfigArgs,
    out: &mut dyn Write,
    warnings: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let machine = args.topology.as_deref().map(Path::new);
    input::check_once(machine.into_iter().chain([args.file.as_path()]))?;
    if args.kubelet {
        if args.file.is_dir() {
            return Err(format!(
                "{} is a directory: a kubelet reads its files (*.conf) in the order of their names over its \
                 configuration. Give one file with the fields of all",
                args.file.display()
            )
            .into());
        }
        let FromKubelet { block, left_out } =
            config::from_kubelet(&input::name(&args.file), input::config_bytes(&args.file)?)?;
        for line in left_out {
            // There is no place to report a failure.
            let _ = writeln!(warnings, "{line}");
        }
        return Ok(show(out, &block)?);
    }
    let report = check(args)?;
    let text = match args.output {
        Output::Text => wrapped(&report.to_string()),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    Ok(show(out, &text)?)
}

fn check(args: &CheckConfigArgs) -> Result<CheckReport, Box<dyn Error>> {
    let file = input::name(&args.file);
    let document = Config::from_bytes(&file, input::config_bytes(&args.file)?)?;
    let topology = match &args.topology {
        Some(what) => machine::load(what)?.topology,
        None => machine::read(&args.sysfs_root)?.topology,
    };
    let node = args.node.identity();
    let here = args.node.pick(&document)?;
    let settings = here.resolve(&topology)?;
    let outlook = if args.live { Some(outlook(args, &here)?) } else { None };
    let mut warnings = report::warnings(&here, &topology, Some(&settings));
    warnings.extend(here.not_used().iter().map(ToString::to_string));
    let mut overrides = Vec::new();
    for (at, entry) in document.overrides().iter().enumerate() {
        let alone = document.with(&[at])?;
        overrides.push(OverrideReport::of(entry, here.applied().contains(&at), &alone, &topology));
    }
    Ok(CheckReport {
        version: report::VERSION,
        file,
        machine: args.topology.clone(),
        unknown: node.is_unknown(),
        node: node.name,
        settings: SettingsReport::of(&here, &settings),
        warnings,
        applied: here.applied().to_owned(),
        overrides,
        outlook,
        interrupts: interrupts(args),
    })
}

/// Whether interrupts can be moved on this node; `None` for another machine.
fn interrupts(args: &CheckConfigArgs) -> Option<String> {
    const SYS: &str = "/sys";
    if args.topology.is_some() || args.sysfs_root != Path::new(SYS) {
        return None;
    }
    let roots = quiet_roots(args.host_root.as_deref(), Path::new("/proc"), Path::new(SYS));
    Some(Access::read(&Linux, &roots).to_string())
}

/// What the running plugin says that `here` would change.
fn outlook(args: &CheckConfigArgs, here: &Config) -> Result<Outlook, Box<dyn Error>> {
    let answer = client::ask_about(&args.state_dir, TRY, here.text())?;
    let outlook: Outlook = client::read(&answer)?;
    if outlook.overrides != here.applied_lines() {
        let node = outlook.node.unwrap_or_else(|| "without a name".to_owned());
        let why = format!(
            "the plugin runs on node {node}, and other overrides of this file apply there{}: give its --node-name and --node-labels",
            overrides(&outlook.overrides)
        );
        return Err(why.into());
    }
    Ok(outlook)
}
