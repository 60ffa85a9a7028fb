//! Measures what pinning gains on this machine: how late a latency-sensitive program wakes up, and how
//! long requests to it take, alone and next to bursting neighbours, without pinning and with each mechanism
//! of the plugin. `cpuctl bench-gain` runs it; docs/performance.md describes it.
//!
//! Needs root and two CPUs, no cluster and no plugin. The cgroups are the program's own (`tree.rs`), and all
//! are gone at its end.

mod affinity;
mod experiment;
mod foreign;
mod histogram;
mod machine;
mod measured;
mod neighbour;
mod report;
mod svg;
mod tree;

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cgroups::{CgroupVersion, Hierarchy};
use clap::Subcommand;
use cpuset::CpuSet;
use kernel::{Kernel, Linux};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;

use experiment::{Experiment, INTERRUPTED};
use foreign::NoiseArguments;
use machine::Machine;
use report::Report;
use tree::{Controllers, Cpus, Mode};

/// What to measure, and where to write it.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Arguments {
    /// Seconds per measurement; there are two for each mode, alone and next to neighbours, in each run
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Runs of each cell, in random order
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
    /// Modes to compare; default: all that this machine can do
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Write the distributions as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write all buckets of all runs, and facts of the machine
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program does in its children.
#[derive(Debug, Clone, Subcommand)]
enum Role {
    #[command(hide = true)]
    Measure {
        #[command(flatten)]
        place: Place,
        #[arg(long, value_parser = seconds)]
        seconds: Duration,
        #[arg(long)]
        pinned: bool,
    },
    #[command(hide = true)]
    Neighbour {
        #[command(flatten)]
        place: Place,
    },
    /// Count what else runs or fires on exclusive CPUs next to neighbours, in each mode and with
    /// interrupts moved away; all but the first need cgroup v2
    Noise(NoiseArguments),
    #[command(hide = true)]
    Spin {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        threads: usize,
        #[arg(long, value_parser = seconds)]
        seconds: Duration,
        #[arg(long)]
        pinned: bool,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Place {
    /// Files of the cgroups to enter
    #[arg(long)]
    enter: Vec<PathBuf>,
    #[arg(long)]
    cpus: CpuSet,
}

impl Place {
    fn enter(&self) -> Result<()> {
        for file in &self.enter {
            Linux.write(file, "0").with_context(|| format!("cannot enter {}", file.display()))?;
        }
        affinity::set(self.cpus)
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds = Duration::try_from_secs_f64(text.parse()?)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    ensure!(bounds.contains(&seconds), "expected 0.1 to 3600 seconds");
    Ok(seconds)
}

/// SIGINT, SIGTERM or SIGHUP came before the end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Measures, and reports on `out`. The program starts itself again, with the arguments `command` before
/// those of a child: they have to lead here.
///
/// # Errors
/// [`Interrupted`], or why it cannot measure. No cgroup is left in either case.
pub fn run(arguments: &Arguments, command: &[&'static str], out: &mut dyn Write) -> Result<()> {
    match &arguments.role {
        None => measure(arguments, command, out),
        Some(Role::Measure { place, seconds, pinned }) => measured(place, *seconds, *pinned, out),
        Some(Role::Neighbour { place }) => place.enter().and_then(|()| neighbour::run()),
        Some(Role::Noise(arguments)) => foreign::measure(arguments, command, out),
        Some(Role::Spin { place, threads, seconds, pinned }) => {
            place.enter()?;
            print_json(&foreign::spin(place.cpus, *threads, *seconds, *pinned)?, out)
        }
    }
}

fn measured(place: &Place, time: Duration, pinned: bool, out: &mut dyn Write) -> Result<()> {
    place.enter()?;
    print_json(&measured::run(time, place.cpus, pinned)?, out)
}

fn print_json(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.flush()?;
    Ok(())
}

/// A machine on which this program makes cgroups, and nobody else does with this program.
#[derive(Debug)]
struct Site {
    hierarchy: Hierarchy,
    cpus: Cpus,
    _controllers: Controllers,
    _lock: OwnedFd,
}

impl Site {
    /// From now on, this program leaves the CPUs that it measures on.
    fn prepare() -> Result<Site> {
        let hierarchy = cgroups::writable(&tree::linux(), Path::new(tree::ROOT))
            .context("needs root, to create cgroups")?;
        let cpus = machine::choose(hierarchy.free())?;
        // Neither this thread nor the next one disturbs the measured program.
        affinity::set(cpus.shared())?;
        note_signals()?;
        let lock = tree::lock()?;
        tree::remove(&hierarchy).context("cgroups of an earlier run are left")?;
        let controllers = Controllers::enable(&hierarchy)?;
        Ok(Site { hierarchy, cpus, _controllers: controllers, _lock: lock })
    }
}

fn measure(arguments: &Arguments, command: &[&'static str], out: &mut dyn Write) -> Result<()> {
    let site = Site::prepare()?;
    let hierarchy = &site.hierarchy;
    let cpus = site.cpus;
    let experiment = Experiment {
        command,
        hierarchy,
        cpus,
        neighbours: 2 * cpus.all.len(),
        time: arguments.seconds,
        runs: usize::from(arguments.runs),
    };
    let (modes, skipped) = experiment.possible(&modes(&arguments.modes, hierarchy.version()));
    for one in &skipped {
        eprintln!("skipped: {}: {}", one.mode.label(), one.reason);
    }
    ensure!(!modes.is_empty(), "this machine can do none of the modes");
    let runs = experiment.run(&modes, |number, total, cell| {
        let beside = if cell.neighbours { "next to neighbours" } else { "alone" };
        eprintln!("{number}/{total}: {}, {beside}", cell.mode.label());
    })?;

    let report = Report {
        machine: Machine::read(hierarchy.version(), cpus.all),
        cpus,
        neighbours: experiment.neighbours,
        seconds: arguments.seconds.as_secs_f64(),
        runs,
        skipped,
    };
    if let Some(file) = &arguments.json {
        write(file, &serde_json::to_string(&report)?)?;
    }
    if let Some(file) = &arguments.svg {
        write(file, &svg::picture(&report))?;
    }
    out.write_all(report.text().as_bytes()).context("cannot print the report")
}

/// Those of the command line, with no pinning, which all others are compared with.
fn modes(chosen: &[Mode], version: CgroupVersion) -> Vec<Mode> {
    let is_selected = |mode: &Mode| match mode {
        Mode::None => true,
        _ if !chosen.is_empty() => chosen.contains(mode),
        Mode::Runtime => version == CgroupVersion::V1,
        Mode::Groups | Mode::Kernel | Mode::Isolated => true,
    };
    Mode::ALL.into_iter().filter(is_selected).collect()
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// From now on, signals that end programs are only noted, and cgroups are removed first. Call this before
/// other threads start. Children have all signals.
fn note_signals() -> Result<()> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block()?;
    thread::spawn(move || {
        while signals.wait().is_ok() {
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}
