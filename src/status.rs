//! `nri-cpu-manager status`: the node and its containers, as a running plugin sees them.

use super::NamespaceArgs;
use clap::{Args, ValueEnum};
use cpuset::CpuSet;
use ledger::PoolKind;
use placement::memory_manager::amount;
use serde_json::Value;
use serve::page::{self, Reader};
use status::domains::{DomainUse, Spread, numa_nodes, uncore_caches};
use status::facts::{Fact, Level, facts};
use status::memory::{self, MemoryStatus};
use status::picture::{Picture, text as drawn};
use status::snapshot::{Container, Node, Record, Snapshot, namespace_of};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use terminal::UsageError;
use terminal::client::{self, ClientError};
use terminal::output::{Color, fitted, offer, show, table, terminal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use wording::Moment;
use wording::{count, or_none};

/// Clears a terminal and begins at its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// The time between two statuses, in seconds, if `--watch` gives none.
const PAUSE: &str = "2";
/// How many of the last refusals and of the last troubles have a line each.
const RECORDS: usize = 5;
/// Where values of facts begin.
const LABEL: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// For people
    Text,
    /// For people, with a line for each container on shared CPUs, refusal and trouble
    Wide,
    /// For programs: one JSON document
    Json,
    /// A picture
    Svg,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The plugin's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = StatusOutput::Text)]
    pub output: StatusOutput,
    #[command(flatten)]
    pub namespaces: NamespaceArgs,
    /// Show the status again after this many seconds (by default 2), until Ctrl-C; wait for a
    /// plugin that restarts
    #[arg(
        long,
        short,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = PAUSE,
        value_parser = pause
    )]
    pub watch: Option<Duration>,
    /// Whether to colour the picture
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

fn pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.1);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected seconds, at least 0.1".to_owned())
}

pub fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let Some(pause) = args.watch else {
        let answer = client::ask(&args.state_dir, "/status")?;
        return Ok(show(out, &shown(args, &answer)?)?);
    };
    if args.output == StatusOutput::Svg {
        let why =
            "--watch repeats text or JSON: the page of the plugin follows the node as a picture";
        return Err(UsageError(why.to_owned()).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(watch(args, pause, out));
    // A question that the plugin has not answered must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Shows the status until SIGINT, or until the reader of `out` has gone away.
async fn watch(
    args: &StatusArgs,
    pause: Duration,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let terminal = io::stdout().is_terminal();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut waiting = false;
    loop {
        let state_dir = args.state_dir.clone();
        let answer = tokio::select! {
            answer = spawn_blocking(move || client::ask(&state_dir, "/status")) => answer?,
            _ = interrupt.recv() => return Ok(()),
        };
        match answer {
            Ok(answer) => {
                waiting = false;
                let text = shown(args, &answer)?;
                let block = if terminal { format!("{CLEAR}{text}") } else { format!("{text}\n") };
                if !offer(out, &block)? {
                    return Ok(());
                }
            }
            Err(error) => {
                if !waiting {
                    // There is no place to report a failure.
                    let _ = writeln!(io::stderr(), "waiting for the plugin: {error}");
                }
                waiting = true;
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// The plugin's answer in the form that was requested.
fn shown(args: &StatusArgs, answer: &str) -> Result<String, Box<dyn Error>> {
    if args.output == StatusOutput::Json {
        let mut snapshot: Value = serde_json::from_str(answer).map_err(ClientError::from)?;
        keep(&mut snapshot, &args.namespaces);
        return Ok(format!("{snapshot:#}\n"));
    }
    let mut snapshot: Snapshot = client::read(answer)?;
    if !args.namespaces.namespaces.is_empty()
        && let Some(node) = &mut snapshot.node
    {
        node.show_only(&args.namespaces.namespaces);
    }
    Ok(match args.output {
        StatusOutput::Svg => page::picture(Reader::Entitled(&snapshot))?,
        output => {
            // In a pipe lines are as long as they are: other programs read them.
            let style =
                drawn::Style { width: terminal().unwrap_or(usize::MAX), ..args.color.style() };
            text(&snapshot, style, output == StatusOutput::Wide)
        }
    })
}

/// Lists about containers, below `/node`, and where an entry has its namespace: by itself, or before the first slash.
const LISTS: [(&str, &str); 6] = [
    ("containers", "/pod/namespace"),
    ("refusals", "/namespace"),
    ("troubles", "/namespace"),
    ("noise/recent/containers", "/name"),
    ("plugin/quiet/goal/containers", "/name"),
    ("plugin/quiet/report/denied", "/container"),
];

/// Removes containers and records of other namespaces. The rest stays as it came: a newer plugin's
/// answer may have fields that this program does not know.
fn keep(snapshot: &mut Value, namespaces: &NamespaceArgs) {
    for (list, name) in LISTS {
        if let Some(Value::Array(entries)) = snapshot.pointer_mut(&format!("/node/{list}")) {
            entries.retain(|one| {
                let name = one.pointer(name).and_then(Value::as_str).unwrap_or_default();
                namespaces.includes(namespace_of(name))
            });
        }
    }
}

/// What is wrong comes first, then containers, then everything else. `each`: whether each container on shared CPUs
/// has a line.
pub fn text(snapshot: &Snapshot, style: drawn::Style, each: bool) -> String {
    let mut text = Text { text: String::new(), width: style.width, at: snapshot.at };
    let on = snapshot.node_name.as_ref().map(|name| format!(" on node {name}"));
    let ready = if snapshot.health.is_ready() { "ready" } else { "NOT READY" };
    text.line(&format!(
        "nri-cpu-manager {}{} at {}: {ready}",
        snapshot.plugin_version,
        on.unwrap_or_default(),
        snapshot.at
    ));
    let facts = facts(snapshot);
    for Fact { level, label, value, advice } in facts.iter().filter(|one| one.level < Level::Note) {
        let word = if *level == Level::Obstacle { "not ready" } else { "warning" };
        let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        text.line(&format!("{word}: {label}: {value}{advice}"));
    }
    if let Some(node) = &snapshot.node {
        text.records("refused", node.refusals.iter().filter(|one| !one.settled).collect(), each);
        text.node(node, style, each);
    }
    text.notes(&facts);
    if let Some(node) = &snapshot.node {
        text.records("troubles", node.troubles.iter().collect(), each);
    }
    text.text
}

/// A text whose lines fit into a terminal.
struct Text {
    text: String,
    width: usize,
    /// When it was true.
    at: Moment,
}

impl Text {
    fn line(&mut self, line: &str) {
        self.text.push_str(&fitted(line, self.width, 2));
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn node(&mut self, node: &Node, style: drawn::Style, each: bool) {
        if let Some(filter) = &node.filter {
            let namespaces = filter.namespaces.join(", ");
            self.line(&format!(
                "shown: containers and records in {namespaces}; CPUs and counts of the node"
            ));
        }
        self.gap();
        let width = if style.width == usize::MAX { drawn::WIDTH } else { style.width };
        self.text.push_str(&drawn::draw(&Picture::of_node(node), drawn::Style { width, ..style }));
        self.gap();
        self.containers(node, each);
        self.gap();
        self.rows(&domains(node));
        if let Some(memory) = &node.memory {
            self.gap();
            self.rows(&memory_rows(memory));
        }
        self.gap();
    }

    /// As a table; in a narrow terminal each row becomes a few lines.
    fn rows(&mut self, rows: &[Vec<String>]) {
        let text = table(rows);
        if text.lines().all(|line| line.chars().count() <= self.width) {
            self.text.push_str(&text);
            return;
        }
        let Some((heads, rows)) = rows.split_first() else { return };
        for row in rows {
            let named = heads.iter().zip(row).filter(|(_, cell)| !cell.is_empty() && *cell != "-");
            let cells: Vec<String> = named
                .map(|(head, cell)| match head.as_str() {
                    "" | "CONTAINER" | "MEMORY" => cell.clone(),
                    head => format!("{} {cell}", head.to_lowercase()),
                })
                .collect();
            self.line(&cells.join("  "));
        }
    }

    fn containers(&mut self, node: &Node, each: bool) {
        let heads = [
            "",
            "CONTAINER",
            "CPUS",
            "USE",
            "NUMA",
            "UNCORE",
            "CORES",
            "MEMORY",
            "KEPT BY",
            "STATE",
            "AGE",
        ];
        let listed = node.listed();
        let is_folded =
            |one: &Container| !each && one.letters().is_none() && one.left_alone.is_none();
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        let own = listed.iter().filter(|one| !is_folded(one));
        rows.extend(own.map(|one| row(node, one, self.at)));
        if node.memory.is_none() {
            rows.iter_mut().for_each(|row| drop(row.remove(7)));
        }
        if rows.len() > 1 {
            self.rows(&rows);
        }
        let mut folded: Vec<(String, usize)> = Vec::new();
        for one in listed.iter().filter(|one| is_folded(one)) {
            let cpus = one.runs_on.to_string();
            match folded.iter_mut().find(|(list, _)| *list == cpus) {
                Some((_, count)) => *count += 1,
                None => folded.push((cpus, 1)),
            }
        }
        for (cpus, number) in folded {
            let share = if number == 1 { "shares" } else { "share" };
            self.line(&format!("{} {share} {cpus}", count(number as u64, "container")));
        }
        if listed.is_empty() {
            let place = match &node.filter {
                Some(filter) => format!("in {}", filter.namespaces.join(", ")),
                None => "on this node".to_owned(),
            };
            self.line(&format!("no containers {place}"));
        }
    }

    /// Facts that need no attention.
    fn notes(&mut self, facts: &[Fact]) {
        let mut last = "";
        for fact in facts.iter().filter(|fact| fact.level == Level::Note) {
            let label = if fact.label == last { String::new() } else { format!("{}:", fact.label) };
            last = &fact.label;
            self.text.push_str(&fitted(
                &format!("{label:LABEL$}{}", fact.value),
                self.width,
                LABEL,
            ));
        }
    }

    /// Newest first; equal ones in a row become one line with their number. `each`: whether all have a line.
    fn records(&mut self, title: &str, records: Vec<&Record>, each: bool) {
        if records.is_empty() {
            return;
        }
        self.line(&format!("{title} (newest first):"));
        let same = |a: &&Record, b: &&Record| {
            (&a.namespace, &a.pod, &a.container, &a.text)
                == (&b.namespace, &b.pod, &b.container, &b.text)
        };
        let runs: Vec<_> = records.chunk_by(same).rev().collect();
        let shown = if each { runs.len() } else { RECORDS };
        for run in runs.iter().take(shown) {
            let Some(last) = run.last() else { continue };
            let times =
                if run.len() > 1 { format!(" ({} times)", run.len()) } else { String::new() };
            let age = last.at.age_at(self.at);
            let line = format!("  {age} ago  {}: {}{times}", last.full_name(), last.text);
            self.text.push_str(&fitted(&line, self.width, 4));
        }
        if let Some(more) = runs.len().checked_sub(shown).filter(|more| *more > 0) {
            self.line(&format!("  and {more} more: --output wide"));
        }
    }
}

/// NUMA nodes with their uncore caches; of a cache in several nodes, the part in each.
fn domains(node: &Node) -> Vec<Vec<String>> {
    let mut rows = vec![["", "CPUs", "exclusive", "free"].map(str::to_owned).to_vec()];
    let mut row = |label: String, one: &DomainUse, inside: CpuSet| {
        let lists = [one.cpus, one.exclusive, one.free].map(|cpus| or_none(cpus & inside));
        rows.push([vec![label], lists.to_vec()].concat());
    };
    let cpus = &node.figures.cpus;
    let caches = uncore_caches(&node.machine, cpus);
    for numa in numa_nodes(&node.machine, cpus) {
        let inside = numa.cpus;
        row(format!("NUMA node {}", numa.id), &numa, inside);
        for uncore in caches.iter().filter(|one| !one.cpus.is_disjoint(&inside)) {
            let part = if uncore.cpus.is_subset(&inside) { "" } else { " (part)" };
            row(format!("  uncore cache {}{part}", uncore.id), uncore, inside);
        }
    }
    rows
}

fn memory_rows(memory: &MemoryStatus) -> Vec<Vec<String>> {
    let head = ["", "memory", "allocatable", "allocated", "free"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in &memory.numa_nodes {
        let [allocatable, allocated, free] = [one.allocatable, one.allocated, one.free].map(amount);
        let node = format!("NUMA node {}", one.id);
        rows.push(vec![node, one.kind.clone(), allocatable, allocated, free]);
    }
    for one in &memory.together {
        rows.push(vec![one.label(), one.kind.clone(), String::new(), amount(one.allocated)]);
    }
    rows
}

fn row(node: &Node, one: &Container, at: Moment) -> Vec<String> {
    let dash = || "-".to_owned();
    let numbers = |numbers: &[usize]| {
        let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        if list.is_empty() { dash() } else { list.join(",") }
    };
    let is_exclusive = one.exclusive.is_some();
    let usage = match (is_exclusive, one.shared.is_empty()) {
        (true, true) => "exclusive",
        (true, false) => "exclusive+shared",
        (false, _) if one.left_alone.is_some() => "left alone",
        (false, _) if !one.own_pool.is_empty() => "own pool",
        (false, _) if one.view.pool == PoolKind::Reserved => "reserved",
        (false, _) => "shared",
    };
    let spread = Spread::of(&node.machine, &one.exclusive_cpus());
    let cores = match (is_exclusive, spread.whole_cores) {
        (false, _) => "-",
        (true, true) => "whole",
        _ if !one.idle.is_empty() => "idle siblings",
        (true, false) => "partial",
    };
    let since = one.since.or(one.created);
    vec![
        one.usage().sign(),
        one.full_name(),
        or_none(*one.runs_on),
        usage.to_owned(),
        numbers(&spread.numa_nodes),
        numbers(&spread.uncore_caches),
        cores.to_owned(),
        one.memory.as_ref().map_or_else(dash, memory::short),
        if is_exclusive { one.enforced_by.to_string() } else { dash() },
        one.phase.name().to_owned(),
        since.map_or_else(dash, |since| since.age_at(at)),
    ]
}
