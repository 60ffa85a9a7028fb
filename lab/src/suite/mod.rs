//! Scenarios on machines: `hack/lab run`, `hack/lab all`, `hack/lab list`.
//!
//! All scenarios of a machine and a runtime share one boot, each on an empty node, and are reported
//! separately.

use std::iter::repeat_n;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::binaries::Binaries;
use crate::cache;
use crate::command::{millis, progress};
use crate::containerd::Version;
use crate::debian::KernelPackage;
use crate::job::{Oci, Software};
use crate::platform::Platform;
use crate::scenario::catalogue::{self, Scenario};
use crate::scenario::script::Script;
use crate::scenario::shape::Shape;
use crate::vm::{self, Machine, Turn, Vm};

mod full_run;
#[cfg(test)]
mod page;
mod table;

use full_run::{FullRun, write_lines};
pub use table::{Row, Verdict};

/// Per scenario. Emulated CPUs are slow, and on a busy machine much slower.
const PATIENCE: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, clap::Args)]
pub struct Run {
    /// Machines: comma-separated names, path of a machine file, or all
    pub machine: String,
    /// Scenarios: comma-separated names, or all
    pub scenario: String,
    /// Software of the VMs
    #[command(flatten)]
    pub software: Software,
    /// Plugin binary to use instead of the one built here
    #[arg(long)]
    pub plugin: Option<PathBuf>,
    /// Exclusivity mechanism, as in the configuration
    #[arg(long, value_parser = ["runtime", "groups", "auto", "kernel"])]
    pub exclusivity: Option<String>,
    /// Repetitions of each scenario
    #[arg(long, default_value_t = 1)]
    pub times: usize,
}

#[derive(Debug, Clone, clap::Args)]
pub struct All {
    /// Continue an interrupted run of the same programs and machines
    #[arg(long)]
    pub resume: bool,
}

pub fn list() -> Result<()> {
    println!("machines (lab/machines):");
    for name in Machine::names()? {
        let machine = Machine::load(&name)?;
        println!("  {name:18} {:3} CPUs  {}", machine.cpus(), machine.about);
    }
    println!("\nscenarios:");
    for scenario in catalogue::all() {
        println!("  {:20} {}", scenario.name, scenario.about);
    }
    println!("\nscenarios that are not part of all:");
    for scenario in catalogue::long() {
        println!("  {:20} {}", scenario.name, scenario.about);
    }
    Ok(())
}

/// The last line of standard output is `N passed, N failed`.
pub fn run(options: &Run) -> Result<()> {
    let mut binaries = Binaries::build()?;
    if let Some(plugin) = &options.plugin {
        binaries.plugin.clone_from(plugin);
    }
    let scenarios = scenarios(&options.scenario)?;
    let scenarios: Vec<Scenario> =
        scenarios.into_iter().flat_map(|one| repeat_n(one, options.times)).collect();
    let mut rows = Vec::new();
    for machine in machines(&options.machine)? {
        let exclusivity = options.exclusivity.clone().unwrap_or_default();
        let shape = Shape { exclusivity, ..Shape::of(&machine)? };
        let binaries = Binaries::for_platform(&binaries, machine.platform)?;
        rows.extend(on_machine(&machine, &shape, &options.software, &scenarios, &binaries)?);
    }
    finish(&rows)
}

/// Runs every scenario on every machine to which it applies, with both containerd versions, and
/// prints the table.
pub fn all(options: &All) -> Result<()> {
    let binaries = Binaries::build()?.copies()?;
    let machine = |name: String| cache::repository().join(format!("lab/machines/{name}.yaml"));
    let mut files = vec![binaries.plugin.clone(), binaries.lab.clone(), binaries.probe.clone()];
    files.extend(Machine::names()?.into_iter().map(machine));
    let mut full_run = FullRun::open(&files, options.resume)?;
    for machine in machines("all")? {
        for version in [Version::V2_1, Version::V1_7] {
            if full_run.has(&machine.name, version) {
                continue;
            }
            let start = Instant::now();
            let shape = Shape::of(&machine)?;
            let scenarios = catalogue::all();
            let rows = on_machine(&machine, &shape, &usual(version), &scenarios, &binaries)?;
            full_run.add(&machine.name, version, rows, start.elapsed())?;
        }
    }
    let rows = full_run.rows();
    println!("{}", table::draw(&rows));
    let minutes = full_run.time().as_secs().div_ceil(60);
    println!("booted and played in {minutes} minutes");
    finish(&rows)
}

/// The software of a full run: each containerd version with another OCI runtime, to cover both.
pub fn usual(version: Version) -> Software {
    let oci = match version {
        Version::V2_1 => Oci::Crun,
        Version::V1_7 => Oci::Runc,
    };
    Software { oci, ..version.into() }
}

/// Plays scenarios on one machine with one runtime: a row per applicable scenario. Without a boot,
/// all fail.
pub fn on_machine(
    machine: &Machine,
    shape: &Shape,
    software: &Software,
    scenarios: &[Scenario],
    binaries: &Binaries,
) -> Result<Vec<Row>> {
    let applicable: Vec<(Scenario, Script)> = scenarios
        .iter()
        .filter_map(|scenario| Some((*scenario, scenario.script(shape)?)))
        .collect();
    let parts: Vec<_> = applicable.iter().map(|(_, script)| script.steps()).collect();
    let mut rows = Vec::new();
    let row = |scenario: &Scenario, verdict, time| Row {
        machine: machine.name.clone(),
        scenario: scenario.name.to_owned(),
        version: software.version,
        verdict,
        millis: millis(time),
    };
    let mut on_part = |at: usize, played: vm::Played, time| {
        let Some((scenario, script)) = applicable.get(at) else { return };
        let verdict = match played {
            Ok(outcomes) => Verdict::of(script.judge(&outcomes)),
            Err(why) => Verdict::Failed(vec![why]),
        };
        let row = row(scenario, verdict, time);
        progress(row.to_string());
        rows.push(row);
    };
    let vm = Vm {
        machine,
        kernel: KernelPackage::default(),
        software: *software,
        binaries,
        turn: Turn::Alone,
        patience: PATIENCE,
    };
    if let Err(error) = vm.play(&parts, &mut on_part) {
        let why = format!("{error:#}");
        for (scenario, _) in applicable.iter().skip(rows.len()) {
            rows.push(row(scenario, Verdict::NotBooted(why.clone()), Duration::ZERO));
        }
    }
    Ok(rows)
}

fn machines(names: &str) -> Result<Vec<Machine>> {
    if names != "all" {
        return names.split(',').map(Machine::load).collect();
    }
    let mut machines = Vec::new();
    for name in Machine::names()? {
        let machine = Machine::load(&name)?;
        if machine.platform == Platform::HERE {
            machines.push(machine);
        } else {
            progress(format!("skipped: {name}: {} is run by name only", machine.platform));
        }
    }
    Ok(machines)
}

pub fn scenarios(names: &str) -> Result<Vec<Scenario>> {
    let mut all = catalogue::all();
    if names == "all" {
        return Ok(all);
    }
    all.extend(catalogue::long());
    let known: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    let find = |name: &str| {
        let scenario = all.iter().find(|scenario| scenario.name == name).copied();
        scenario.with_context(|| {
            format!("unknown scenario {name:?}: use one of {}, or all", known.join(", "))
        })
    };
    names.split(',').map(find).collect()
}

fn finish(rows: &[Row]) -> Result<()> {
    write_lines(&cache::directory("results")?.join("last.jsonl"), rows)?;
    for row in rows {
        println!("{row}");
    }
    let failed = rows.iter().filter(|row| !row.passed()).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    if rows.is_empty() {
        bail!("nothing was run: no scenario applies to the machine");
    }
    if failed > 0 {
        bail!("{failed} of {} failed", rows.len());
    }
    Ok(())
}
