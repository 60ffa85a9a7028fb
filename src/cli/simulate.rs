//! `nri-cpu-manager simulate`: the decisions for pods on a described machine, with one
//! configuration or more.

mod decisions;
mod error;
mod progress;
mod words;

pub use error::SimulateError;

use super::client::show;
use super::drawing::{Color, Drawing};
use super::machine;
use super::node::NodeArgs;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::simulate::report::{VERSION, picture};
use crate::simulate::{
    Recorder, Report, RunReport, Time, Waiting, Workload, engine, manifests, table,
};
use crate::topology::Topology;
use crate::view::picture::{Picture, svg};
use crate::view::status::{ConfigStatus, OwnSettings};
use clap::{Args, ValueEnum};
use decisions::Watched;
use progress::Progress;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The machine: a file of `topology --save`, a copy of a /sys, a preset (list shows them), or a
    /// description in words
    #[arg(long, value_name = "FILE|DIR|PRESET")]
    pub topology: String,
    /// The plugin's configuration; more than once to compare
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Which node it is
    #[command(flatten)]
    pub node: NodeArgs,
    /// The pods: Kubernetes' YAML, or a table (.csv) of arrivals and departures
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// Stop at this moment of the workload, in seconds, instead of at the last arrival
    #[arg(long, value_name = "SECONDS", value_parser = table::seconds)]
    pub until: Option<Time>,
    /// What becomes of pods for which there is no room
    #[arg(long, value_enum, default_value_t = NoRoom::Retry)]
    pub no_room: NoRoom,
    /// How to write down what was found; svg is the node at the end
    #[arg(long, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
    /// Also draw the node at the end into this file, as SVG; once for each configuration
    #[arg(long, value_name = "FILE")]
    pub picture: Vec<PathBuf>,
    /// Also write every decision into this file, as a table (CSV); once for each configuration
    #[arg(long, value_name = "FILE")]
    pub decisions: Vec<PathBuf>,
    /// Whether to colour the picture; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// What becomes of pods for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NoRoom {
    /// They are tried again whenever a pod has gone
    Retry,
    /// They are turned away
    Drop,
}

/// Simulates and writes to `out`; progress and warnings go to `aside`.
///
/// # Errors
/// If an argument or a file has a mistake, before the simulation; or a file or `out` cannot be
/// written.
pub fn run(
    args: &SimulateArgs,
    out: &mut dyn Write,
    aside: &mut dyn Write,
) -> Result<(), SimulateError> {
    if args.topology == "list" {
        return Ok(show(out, &machine::list())?);
    }
    let (path, workload) = check(args)?;
    let loaded = machine::load(&args.topology)?;
    let mut warnings = loaded.warnings;
    let mut nodes = Vec::new();
    for config in &args.config {
        let document = Config::read(config)?;
        if args.node.identity().is_unknown() && !document.overrides().is_empty() {
            warnings.push(format!(
                "{}: its overrides (nodes) are left out, as neither --node-name nor --node-labels was given",
                document.name()
            ));
        }
        let config = args.node.pick(&document)?;
        let settings = config.resolve(&loaded.topology)?;
        let ledger = Ledger::new(loaded.topology.clone(), settings, Vec::new());
        nodes.push((config, ledger));
    }
    let doubts = warnings.iter().map(|doubt| format!("warning: {doubt}"));
    let ignored = workload.ignored.iter().map(|place| format!("ignored: {place}"));
    for line in doubts.chain(ignored) {
        // There is no place to report a failure.
        let _ = writeln!(aside, "{line}");
    }
    let end = args.until.or(workload.pods.last().map(|pod| pod.arrive)).unwrap_or(0);
    let mut runs = Vec::new();
    let mut pictures = Vec::new();
    for (number, (config, mut ledger)) in nodes.into_iter().enumerate() {
        let name = config.name();
        let mut watched = Watched::new(Recorder::new(&ledger, end), args.decisions.get(number))?;
        let mut progress = Progress::new(aside, name, workload.pods.len());
        let waiting = match args.no_room {
            NoRoom::Retry => Waiting::Retry,
            NoRoom::Drop => Waiting::Drop,
        };
        let mut tell = |pods| progress.at(pods);
        engine::run(&mut ledger, &workload, waiting, args.until, &mut watched, &mut tell);
        progress.done();
        let record = watched.finish()?;
        let drawn = picture(&ledger);
        if let Some(file) = args.picture.get(number) {
            let title = format!("{}, {name}", args.topology);
            let text = svg::draw(&drawn, svg::Form::File(&title));
            let failed = |error| SimulateError::File("write", file.clone(), error);
            fs::write(file, text).map_err(failed)?;
        }
        let overrides = config.applied_lines();
        let settings = ledger.settings();
        let own = OwnSettings::of(settings, config.partition(), config.on_active_kubelet());
        let settings = ConfigStatus::log_line(settings, ledger.mechanism(), config.strict(), own);
        runs.push(RunReport::of(name, settings, overrides, &workload, end, &ledger, &record));
        pictures.push(drawn);
    }
    let report = report(&args.topology, &path, &loaded.topology, runs);
    Ok(show(out, &text(args, &report, &pictures)?)?)
}

/// Checks the arguments, then reads the workload.
fn check(args: &SimulateArgs) -> Result<(PathBuf, Workload), SimulateError> {
    let each = |files: &[PathBuf]| files.is_empty() || files.len() == args.config.len();
    let Some(path) = args.workload.clone().filter(|_| !args.config.is_empty()) else {
        return Err(SimulateError::Arguments("--config and --workload have to be given"));
    };
    if !each(&args.picture) || !each(&args.decisions) {
        let why = "--picture and --decisions have to be given once for each --config";
        return Err(SimulateError::Arguments(why));
    }
    if args.output == Drawing::Svg && args.config.len() > 1 {
        let why =
            "--output svg is one picture: with more than one --config, name files with --picture";
        return Err(SimulateError::Arguments(why));
    }
    let read = fs::read_to_string(&path);
    let text = read.map_err(|error| SimulateError::File("read", path.clone(), error))?;
    let is_table = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let workload = if is_table { table::parse(&text) } else { manifests::parse(&text) };
    let workload = workload.map_err(|error| SimulateError::Workload(path.clone(), error))?;
    Ok((path, workload))
}

fn report(machine: &str, workload: &Path, topology: &Topology, runs: Vec<RunReport>) -> Report {
    Report {
        version: VERSION,
        machine: machine.to_owned(),
        cpus: topology.cpus().len(),
        uncore_caches: topology.uncores().len(),
        numa_nodes: topology.cpu_nodes(),
        workload: workload.display().to_string(),
        runs,
    }
}

fn text(args: &SimulateArgs, report: &Report, pictures: &[Picture]) -> io::Result<String> {
    Ok(match args.output {
        Drawing::Text => words::text(report, pictures, args.color.style()),
        Drawing::Json => format!("{}\n", serde_json::to_string_pretty(report)?),
        Drawing::Svg => pictures
            .iter()
            .map(|picture| svg::draw(picture, svg::Form::File(&args.topology)))
            .collect(),
    })
}
