//! `cpuctl topology`: shows the machine as the plugin sees it.

use crate::machine::{self, LoadedMachine};
use cpuset::CpuSet;
use machines::picture::TopologyText;
use serde::Serialize;
use status::machine_file::MachineFile;
use status::picture::{Picture, svg};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use terminal::UsageError;
use terminal::output::{Drawing, cannot, show};
use topology::Topology;
use wording::count;

#[derive(Debug, clap::Args)]
pub struct TopologyArgs {
    /// Always a mistake
    #[arg(value_name = "PRESET", hide = true)]
    pub unexpected: Option<String>,
    /// Where sysfs is mounted, or a copy of it
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Another machine: a file that --save has written (- for standard input), a copy of /sys, a
    /// preset (see --list), or a description like "pack:2 core:8"
    #[arg(long, value_name = "FILE|DIR|PRESET", conflicts_with = "sysfs_root")]
    pub from: Option<String>,
    /// List the presets: machines to use by their names
    #[arg(long, conflicts_with_all = ["from", "sysfs_root", "save", "output"])]
    pub list: bool,
    /// Write the machine to a file (- for standard output), for `topology --from`, and --topology
    /// of `simulate` and `check-config`
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub save: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Drawing::Text)]
    pub output: Drawing,
}

/// Writes the machine to `out`, and the reader's warnings to `warnings`.
pub(crate) fn run(
    args: &TopologyArgs,
    out: &mut dyn Write,
    warnings: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    if let Some(what) = &args.unexpected {
        let hint = machine::hint(what);
        let why = format!("unexpected argument {what:?}: a machine is named by --from{hint}");
        return Err(UsageError(why).into());
    }
    if args.list || args.from.as_deref() == Some("list") {
        return Ok(show(out, &machine::list())?);
    }
    let LoadedMachine { topology, sizes, warnings: doubts } = match &args.from {
        Some(what) => machine::load(what)?,
        None => machine::read(&args.sysfs_root)?,
    };
    let text = match (&args.save, args.output) {
        (Some(file), _) => save(file, &MachineFile::of(&topology, &sizes))?,
        (None, Drawing::Text) => TopologyText { topology: &topology, sizes: &sizes }.to_string(),
        (None, Drawing::Json) => {
            serde_json::to_string_pretty(&MachineReport::of(&topology))? + "\n"
        }
        (None, Drawing::Svg) => {
            let title = args.from.as_deref().unwrap_or("this machine");
            svg::file(&Picture::of_machine(&topology), title)
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
fn save(file: &Path, machine: &MachineFile) -> Result<String, Box<dyn Error>> {
    let version = env!("CARGO_PKG_VERSION");
    let yaml = serde_yaml::to_string(machine)?;
    let text = format!("# A machine, written by cpuctl {version}.\n{yaml}");
    if file == Path::new("-") {
        return Ok(text);
    }
    fs::write(file, text).map_err(cannot("write", file))?;
    let cores = count(machine.cores.len(), "core");
    let caches = count(machine.uncore_caches.len(), "uncore cache");
    Ok(format!("{}: {cores}, {caches}\n", file.display()))
}

/// Changes when a field is removed or changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// The names are a promise to scripts; docs/status.md is the reference.
#[derive(Debug, Serialize)]
struct MachineReport {
    /// See [`VERSION`].
    version: u32,
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
    uncore_cache: Option<usize>,
    numa_node: Option<usize>,
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
            uncore_cache: Some(cpu.uncore),
            numa_node: Some(cpu.numa),
            socket: Some(cpu.socket),
            online: true,
        });
        let offline = topology.offline().iter().map(|cpu| CpuEntry {
            cpu: cpu.id,
            core: None,
            uncore_cache: None,
            numa_node: cpu.numa,
            socket: cpu.socket,
            online: false,
        });
        let cpus: BTreeMap<usize, CpuEntry> =
            online.chain(offline).map(|entry| (entry.cpu, entry)).collect();
        let offline: CpuSet =
            topology.offline().iter().flat_map(|cpu| CpuSet::of(cpu.id)).collect();
        MachineReport {
            version: VERSION,
            cpus: cpus.into_values().collect(),
            numa_nodes: topology
                .nodes()
                .iter()
                .map(|node| NodeEntry {
                    id: node.id,
                    cpus: node.cpus.to_string(),
                    distances: node.distances.clone(),
                })
                .collect(),
            smt: topology.threads_per_core(),
            isolated: topology.isolated().to_string(),
            online: topology.online().to_string(),
            offline: offline.to_string(),
        }
    }
}
