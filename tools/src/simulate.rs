//! `cpuctl simulate`: the decisions for pods on a described machine, with one
//! configuration or more.

mod decisions;
mod report;
mod words;

use crate::machine;
use clap::{Args, ValueEnum};
use config::Config;
use decisions::DecisionTable;
use exclusivity::Exclusivity;
use ledger::{Event, Ledger, Mechanism};
use report::{RefusalReport, RunReport, Setup, SimulationReport, VERSION};
use simulate::{Happening, NoRoom, Recorder, StepObserver, Time, Workload, manifests, table};
use status::config_status::ConfigStatus;
use status::memory::MemoryStatus;
use status::picture::{Picture, svg};
use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terminal::NodeArgs;
use terminal::UsageError;
use terminal::input;
use terminal::output::{Color, Drawing, cannot, show};
use topology::Topology;

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The machine: a file of `topology --save`, a copy of /sys, a preset (`topology --list` shows them), or a
    /// description like "pack:2 core:8"
    #[arg(long, value_name = "FILE|DIR|PRESET")]
    pub topology: String,
    /// The plugin's configuration, - for standard input; repeat it to compare several
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// The pods: Kubernetes manifests (YAML), or a table of arrivals and departures (.csv); - for
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// Stop at this time of the workload, in seconds [default: the last arrival]
    #[arg(long, value_name = "SECONDS", value_parser = table::seconds)]
    pub until: Option<Time>,
    /// What pods do for which the node has no room
    #[arg(long, value_enum, default_value_t = WhenFull::Wait)]
    pub no_room: WhenFull,
    /// Score the placement of live containers after each arrival from this one on
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub score_from: usize,
    /// Output format; svg draws the node at the end
    #[arg(long, short, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
    /// Also draw the node at the end into this file (SVG), - for standard output instead of --output;
    /// once for each --config
    #[arg(long, value_name = "FILE")]
    pub picture: Vec<PathBuf>,
    /// Also write every decision into this file (CSV), - for standard output instead of --output; once
    /// for each --config
    #[arg(long, value_name = "FILE")]
    pub decisions: Vec<PathBuf>,
    /// Whether to colour the picture
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// [`NoRoom`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhenFull {
    /// Retry after each departure of a pod
    Wait,
    /// Leave, without another try
    Drop,
}

impl From<WhenFull> for NoRoom {
    fn from(choice: WhenFull) -> NoRoom {
        match choice {
            WhenFull::Wait => NoRoom::Wait,
            WhenFull::Drop => NoRoom::Drop,
        }
    }
}

/// Simulates and writes to `out`; progress and warnings go to `aside`. Mistakes in arguments and
/// files are errors before the simulation starts.
pub(crate) fn run(
    args: &SimulateArgs,
    out: &mut dyn Write,
    aside: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    if args.topology == "list" {
        return Ok(show(out, &machine::list())?);
    }
    let (path, workload) = check(args)?;
    let loaded = machine::load(&args.topology)?;
    let mut warnings = loaded.warnings;
    let mut nodes = Vec::new();
    for config in &args.config {
        let document = input::config(config)?;
        if args.node.identity().is_unknown() && !document.overrides().is_empty() {
            warnings.push(format!(
                "{}: ignoring its overrides (nodes): neither --node-name nor --node-labels is given",
                document.name()
            ));
        }
        let config = args.node.pick(&document)?;
        let settings = config.resolve(&loaded.topology)?;
        if let Some(sizes) = config.odd_sizes(&loaded.topology, &settings) {
            warnings.push(format!("{}, {sizes}", config.name()));
        }
        let mut ledger = Ledger::new(loaded.topology.clone(), settings, Vec::new());
        ledger.apply(Event::Mechanism(mechanism(&config)));
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
        let settings = ledger.settings();
        let setup = Setup {
            config: name.to_owned(),
            settings: ConfigStatus::log_line(settings, ledger.mechanism(), (&config).into()),
            overrides: config.applied_lines(),
        };
        let recorder = Recorder::new(&workload, &ledger, end, args.score_from);
        let table = args.decisions.get(number).map(PathBuf::as_path);
        let decisions = DecisionTable::new(recorder, table, out, settings.memory.is_some())?;
        let progress = ProgressLine::new(aside, name, workload.pods.len());
        let observer = Observer { decisions, progress };
        let (recorder, refusals) = play(args, &mut ledger, &workload, observer)?;
        let (mut picture, placements) = report::node(&ledger);
        let memory = MemoryStatus::of(&ledger.view());
        picture.memory = memory.as_ref().map(MemoryStatus::lines).unwrap_or_default();
        if let Some(file) = args.picture.get(number) {
            let title = format!("{}, {name}", args.topology);
            let picture = svg::file(&picture, &title);
            if input::is_standard(file) {
                show(out, &picture)?;
            } else {
                fs::write(file, picture).map_err(cannot("write", file))?;
            }
        }
        let figures = recorder.figures(&ledger);
        runs.push(RunReport { setup, figures, memory, placements, refusals });
        pictures.push(picture);
    }
    if args.picture.iter().chain(&args.decisions).any(|file| input::is_standard(file)) {
        return Ok(());
    }
    let report = report(&args.topology, &path, &loaded.topology, runs);
    Ok(show(out, &text(args, &report, &pictures)?)?)
}

fn play(
    args: &SimulateArgs,
    ledger: &mut Ledger,
    workload: &Workload,
    mut observer: Observer<'_>,
) -> Result<(Recorder, Vec<RefusalReport>), String> {
    simulate::run(ledger, workload, args.no_room.into(), args.until, &mut observer);
    observer.progress.done();
    observer.decisions.finish()
}

/// Checks the arguments, then reads the workload.
fn check(args: &SimulateArgs) -> Result<(PathBuf, Workload), Box<dyn Error>> {
    let (Some(path), false) = (args.workload.clone(), args.config.is_empty()) else {
        return Err(UsageError("--config and --workload are required".to_owned()).into());
    };
    for files in [&args.picture, &args.decisions] {
        if !files.is_empty() && files.len() != args.config.len() {
            let why = "--picture and --decisions are needed once for each --config";
            return Err(UsageError(why.to_owned()).into());
        }
    }
    if args.output == Drawing::Svg && args.config.len() > 1 {
        let why = "--output svg draws one configuration; use --picture for several";
        return Err(UsageError(why.to_owned()).into());
    }
    let written = args.picture.iter().chain(&args.decisions);
    if written.filter(|file| input::is_standard(file)).count() > 1 {
        let why = "only one of --picture and --decisions can be -, standard output";
        return Err(UsageError(why.to_owned()).into());
    }
    let machine = Path::new(&args.topology);
    let files = args.config.iter().chain([&path]).map(PathBuf::as_path);
    input::check_once(files.chain([machine]))?;
    let name = PathBuf::from(input::name(&path));
    let text = input::text(&path).map_err(cannot("read", &name))?;
    let workload =
        if is_table(&path, &text) { table::parse(&text) } else { manifests::parse(&text) };
    let workload = workload.map_err(|error| format!("{}: {error}", name.display()))?;
    Ok((name, workload))
}

/// The mechanism that a node as the default install needs it would use.
fn mechanism(config: &Config) -> Mechanism {
    match config.exclusivity() {
        Exclusivity::Runtime => Mechanism::Runtime,
        Exclusivity::Auto | Exclusivity::Groups => Mechanism::Groups,
        Exclusivity::Kernel => Mechanism::Partitions,
    }
}

/// Standard input has no ending: a table begins with the names of its columns.
fn is_table(path: &Path, text: &str) -> bool {
    if input::is_standard(path) {
        let head = text.lines().next().unwrap_or_default();
        return head.split(',').any(|column| column.trim() == "pod");
    }
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}

fn report(
    machine: &str,
    workload: &Path,
    topology: &Topology,
    runs: Vec<RunReport>,
) -> SimulationReport {
    SimulationReport {
        version: VERSION,
        machine: machine.to_owned(),
        cpus: topology.cpus().len(),
        uncore_caches: topology.uncores().len(),
        numa_nodes: topology.cpu_nodes(),
        workload: workload.display().to_string(),
        runs,
    }
}

fn text(
    args: &SimulateArgs,
    report: &SimulationReport,
    pictures: &[Picture],
) -> serde_json::Result<String> {
    Ok(match args.output {
        Drawing::Text => words::text(report, pictures, args.color.style()),
        Drawing::Json => format!("{}\n", serde_json::to_string_pretty(report)?),
        Drawing::Svg => pictures.iter().map(|picture| svg::file(picture, &args.topology)).collect(),
    })
}

struct Observer<'a> {
    decisions: DecisionTable<'a>,
    progress: ProgressLine<'a>,
}

impl StepObserver for Observer<'_> {
    fn see(&mut self, now: Time, ledger: &Ledger, happening: &Happening<'_>) {
        self.decisions.see(now, ledger, happening);
        if let Happening::Arrived(pods) = happening {
            self.progress.at(*pods);
        }
    }
}

/// Reports the progress of a long simulation to standard error; a short one reports nothing.
struct ProgressLine<'a> {
    out: &'a mut dyn Write,
    name: &'a str,
    pods: usize,
    started: Instant,
    reported: Instant,
    terminal: bool,
    /// Whether the terminal shows a line.
    open: bool,
}

impl<'a> ProgressLine<'a> {
    /// The clock is checked once in this many pods.
    const PODS: usize = 64;

    fn new(out: &'a mut dyn Write, name: &'a str, pods: usize) -> ProgressLine<'a> {
        let now = Instant::now();
        let terminal = io::stderr().is_terminal();
        ProgressLine { out, name, pods, started: now, reported: now, terminal, open: false }
    }

    /// `pods` pods have arrived.
    fn at(&mut self, pods: usize) {
        // A terminal keeps one line only; elsewhere each report is a new line.
        let pause = Duration::from_millis(if self.terminal { 200 } else { 5000 });
        if !pods.is_multiple_of(Self::PODS) || self.reported.elapsed() < pause {
            return;
        }
        self.reported = Instant::now();
        let percent = pods * 100 / self.pods.max(1);
        let seconds = self.started.elapsed().as_secs();
        let line = format!("{}: {percent} %, {pods} of {} pods, {seconds} s", self.name, self.pods);
        // There is no place to report a failure.
        let _ = if self.terminal {
            write!(self.out, "\r{line}\x1b[K").and_then(|()| self.out.flush())
        } else {
            writeln!(self.out, "{line}")
        };
        self.open = self.terminal;
    }

    /// Removes the line from the terminal.
    fn done(self) {
        if self.open {
            let _ = write!(self.out, "\r\x1b[K").and_then(|()| self.out.flush());
        }
    }
}
