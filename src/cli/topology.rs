//! `nri-cpu-manager topology`: shows the machine as the plugin sees it.

use super::client::show;
use super::drawing::Drawing;
use super::machine::{self, Loaded, MachineError};
use crate::cpuset::CpuSet;
use crate::snapshot::Snapshot;
use crate::topology::picture::Picture;
use crate::topology::{NumaNode, Topology};
use crate::view::picture::{self, Occupancy, svg};
use crate::wording::count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to show, and how.
#[derive(Debug, clap::Args)]
pub struct TopologyArgs {
    /// The directory to read instead of /sys; one that has sys in it will do as well
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Another machine: a file that --save has written, a copy of a /sys, a preset (list shows
    /// them) or a description
    #[arg(long, value_name = "FILE|DIR|PRESET", conflicts_with = "sysfs_root")]
    pub from: Option<String>,
    /// Write the machine to a file (- for standard output), for `simulate` or `topology --from`
    /// elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub save: Option<PathBuf>,
    /// How to write the machine down
    #[arg(long, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
}

/// How to write a machine down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs: JSON
    Json,
}

/// Why the machine cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopologyCommandError {
    /// There is no machine to show.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// It cannot be saved.
    #[error("cannot write {0}: {1}")]
    Save(PathBuf, io::Error),
    /// It has no form in YAML; this does not happen.
    #[error("cannot write the machine as YAML: {0}")]
    Form(#[from] serde_yaml::Error),
    /// The output cannot be written.
    #[error("cannot write the topology: {0}")]
    Write(#[from] io::Error),
}

/// Reads the machine and writes it to `out`, and the reader's warnings to `warnings`.
///
/// # Errors
/// If there is no machine to read, or `out` cannot be written. A reader that goes away (`| head`)
/// is no error.
pub fn run(
    args: &TopologyArgs,
    out: &mut dyn Write,
    warnings: &mut dyn Write,
) -> Result<(), TopologyCommandError> {
    if args.from.as_deref() == Some("list") {
        return Ok(show(out, &machine::list())?);
    }
    let Loaded { topology, sizes, warnings: doubts } = match &args.from {
        Some(what) => machine::load(what)?,
        None => machine::read(&args.sysfs_root)?,
    };
    let text = match (&args.save, args.output) {
        (Some(file), _) => save(file, &Snapshot::of(&topology, &sizes))?,
        (None, Drawing::Text) => Picture { topology: &topology, sizes: &sizes }.to_string(),
        (None, Drawing::Json) => json(&topology)?,
        (None, Drawing::Svg) => {
            let occupancy = Occupancy { shared: topology.online(), ..Occupancy::default() };
            let picture = picture::Picture::of(&topology, occupancy);
            let title = args.from.as_deref().unwrap_or("this machine");
            svg::draw(&picture, svg::Form::File(title))
        }
    };
    show(out, &text)?;
    for doubt in doubts {
        // There is no place to report a failure.
        let _ = writeln!(warnings, "warning: {doubt}");
    }
    Ok(())
}

/// Saves a machine and returns the text for standard output; `-` is standard output itself.
fn save(file: &Path, snapshot: &Snapshot) -> Result<String, TopologyCommandError> {
    let version = env!("CARGO_PKG_VERSION");
    let yaml = serde_yaml::to_string(snapshot)?;
    let text = format!("# A machine, written by nri-cpu-manager {version}.\n{yaml}");
    if file == Path::new("-") {
        return Ok(text);
    }
    fs::write(file, text).map_err(|error| TopologyCommandError::Save(file.to_owned(), error))?;
    let (cores, caches) = (snapshot.cores.len(), snapshot.uncore_caches.len());
    let (cores, caches) = (count(cores, "core"), count(caches, "uncore cache"));
    Ok(format!("{}: {cores}, {caches}\n", file.display()))
}

/// A machine as one indented JSON object, ending in a new line.
///
/// # Errors
/// None in practice: all types have a JSON form.
pub fn json(topology: &Topology) -> io::Result<String> {
    let mut text = serde_json::to_string_pretty(&MachineReport::of(topology))?;
    text.push('\n');
    Ok(text)
}

/// The whole machine. The names are a promise to scripts.
#[derive(Debug, Serialize)]
struct MachineReport {
    cpus: Vec<CpuEntry>,
    numa_nodes: Vec<NodeEntry>,
    /// Threads of the largest core.
    smt: usize,
    isolated: String,
    online: String,
    offline: String,
}

/// One CPU; `null` for unknown facts of an offline one.
#[derive(Debug, Clone, Copy, Serialize)]
struct CpuEntry {
    cpu: usize,
    /// The lowest CPU number of the core.
    core: Option<usize>,
    /// The lowest CPU number that shares the uncore cache.
    uncore: Option<usize>,
    numa: Option<usize>,
    socket: Option<usize>,
    online: bool,
}

/// One NUMA node; `distances` in ascending node order, empty if unknown.
#[derive(Debug, Serialize)]
struct NodeEntry {
    id: usize,
    cpus: String,
    distances: Vec<u32>,
}

impl MachineReport {
    fn of(topology: &Topology) -> MachineReport {
        let online = topology.cpus().iter().map(|cpu| CpuEntry {
            cpu: cpu.id,
            core: Some(cpu.core),
            uncore: Some(cpu.uncore),
            numa: Some(cpu.numa),
            socket: Some(cpu.socket),
            online: true,
        });
        let offline = topology.offline().iter().map(|cpu| CpuEntry {
            cpu: cpu.id,
            core: None,
            uncore: None,
            numa: cpu.numa,
            socket: cpu.socket,
            online: false,
        });
        let cpus: BTreeMap<usize, CpuEntry> =
            online.chain(offline).map(|entry| (entry.cpu, entry)).collect();
        let offline: CpuSet =
            topology.offline().iter().flat_map(|cpu| CpuSet::of(cpu.id)).collect();
        MachineReport {
            cpus: cpus.into_values().collect(),
            numa_nodes: topology.nodes().iter().map(NodeEntry::of).collect(),
            smt: topology.threads_per_core(),
            isolated: topology.isolated().to_string(),
            online: topology.online().to_string(),
            offline: offline.to_string(),
        }
    }
}

impl NodeEntry {
    fn of(node: &NumaNode) -> NodeEntry {
        NodeEntry { id: node.id, cpus: node.cpus.to_string(), distances: node.distances.clone() }
    }
}
