//! Scenarios on machines: `hack/lab run`, `hack/lab all`, `hack/lab list`.
//!
//! All scenarios of a machine and a runtime share one boot, each on an empty node, and are reported
//! separately.

use std::fmt;
use std::iter::repeat_n;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::binaries::Binaries;
use crate::command::progress;
use crate::containerd::Version;
use crate::debian::KernelPackage;
use crate::job::{Oci, Software};
use crate::scenario::shape::Shape;
use crate::scenario::{self, Scenario};
use crate::task::Task;
use crate::vm::{Machine, Turn, Vm};
use image::Platform;

#[cfg(test)]
mod page;

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

/// The result of a scenario on a machine.
struct Row {
    machine: String,
    scenario: &'static str,
    version: Version,
    verdict: Verdict,
    /// Without the boot.
    time: Duration,
}

enum Verdict {
    Passed,
    Failed(String),
    /// Says nothing about the plugin.
    NotBooted(String),
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, scenario, .. } = self;
        let (version, seconds) = (self.version.name(), self.time.as_secs_f64());
        let (what, why) = match &self.verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Failed(why) => ("FAILED", why.as_str()),
            Verdict::NotBooted(why) => ("NOT BOOTED", why.as_str()),
        };
        write!(f, "{what}: {machine}, {scenario}, containerd {version} ({seconds:.1} s)")?;
        why.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

pub fn list() -> Result<()> {
    println!("machines (lab/machines):");
    for name in Machine::names()? {
        let machine = Machine::load(&name)?;
        println!("  {name:18} {:3} CPUs  {}", machine.cpus(), machine.about);
    }
    println!("\nscenarios:");
    for scenario in scenario::ALL {
        println!("  {:20} {}", scenario.name, scenario.about);
    }
    Ok(())
}

/// The last line of standard output is `N passed, N failed`.
pub fn run(options: &Run) -> Result<()> {
    let mut binaries = Binaries::build()?;
    if let Some(plugin) = &options.plugin {
        binaries.programs.plugin.clone_from(plugin);
    }
    let scenarios = scenarios(&options.scenario)?;
    let scenarios: Vec<Scenario> =
        scenarios.into_iter().flat_map(|one| repeat_n(one, options.times)).collect();
    let mut rows = Vec::new();
    for machine in machines(&options.machine)? {
        let exclusivity = options.exclusivity.clone().unwrap_or_default();
        let shape = Shape::of(&machine)?.with(&exclusivity);
        let binaries = Binaries::for_platform(&binaries, machine.platform)?;
        rows.extend(on_machine(&machine, &shape, &options.software, &scenarios, &binaries));
    }
    finish(&rows)
}

/// The scenarios of a full run on every machine, with both containerd versions.
pub fn all() -> Result<()> {
    let binaries = Binaries::build()?;
    let mut rows = Vec::new();
    for machine in machines("all")? {
        let shape = Shape::of(&machine)?;
        let scenarios: Vec<Scenario> =
            scenario::ALL.into_iter().filter(|one| one.is_in_full_run(&shape)).collect();
        for version in [Version::V2_1, Version::V1_7] {
            rows.extend(on_machine(&machine, &shape, &usual(version), &scenarios, &binaries));
        }
    }
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
fn on_machine(
    machine: &Machine,
    shape: &Shape,
    software: &Software,
    scenarios: &[Scenario],
    binaries: &Binaries,
) -> Vec<Row> {
    let applicable: Vec<&Scenario> = scenarios.iter().filter(|one| one.applies(shape)).collect();
    let tasks: Vec<Task> = applicable
        .iter()
        .map(|scenario| Task::Scenario(scenario.name.to_owned(), shape.clone()))
        .collect();
    let mut rows = Vec::new();
    let row = |scenario: &Scenario, verdict, time| Row {
        machine: machine.name.clone(),
        scenario: scenario.name,
        version: software.version,
        verdict,
        time,
    };
    let mut on_result = |at: usize, result: Result<Value, String>, time| {
        let verdict = result.map_or_else(Verdict::Failed, |_| Verdict::Passed);
        let row = row(applicable[at], verdict, time);
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
    if let Err(error) = vm.run_all(&tasks, &mut on_result) {
        let why = format!("{error:#}");
        for scenario in applicable.iter().skip(rows.len()) {
            rows.push(row(scenario, Verdict::NotBooted(why.clone()), Duration::ZERO));
        }
    }
    rows
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
    match names {
        "all" => Ok(scenario::ALL.to_vec()),
        names => names.split(',').map(Scenario::named).collect(),
    }
}

fn finish(rows: &[Row]) -> Result<()> {
    for row in rows {
        println!("{row}");
    }
    let passed = rows.iter().filter(|row| matches!(row.verdict, Verdict::Passed)).count();
    let failed = rows.len() - passed;
    println!("{passed} passed, {failed} failed");
    if rows.is_empty() {
        bail!("nothing was run: no scenario applies to the machine");
    }
    if failed > 0 {
        bail!("{failed} of {} failed", rows.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_what_failed() {
        let (machine, version) = ("small".to_owned(), Version::V1_7);
        let verdict = Verdict::Failed("failed: check all containers: no".to_owned());
        let time = Duration::from_millis(1500);
        assert_eq!(
            Row { machine, scenario: "churn", version, verdict, time }.to_string(),
            "FAILED: small, churn, containerd 1.7 (1.5 s)\n  failed: check all containers: no"
        );
    }
}
