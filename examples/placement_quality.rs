//! Placement quality under churn: how well engines place containers while pods come and go, on 14
//! machines. docs/placement-quality.md describes the benchmark; `hack/bench-placement` runs it.

use clap::Parser;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

#[path = "placement_quality/benchmark.rs"]
mod benchmark;
#[path = "placement_quality/parallel.rs"]
mod parallel;
#[allow(dead_code, reason = "shared with the conformance example, which uses the rest")]
#[path = "conformance/runner.rs"]
mod runner;
#[path = "placement_quality/tables.rs"]
mod tables;

use benchmark::{ENGINES, EngineConfig, Length, MIXES, Mix, NamedMachine, machines};
use tables::{Cells, Summary};

const LOADS: [u64; 2] = [80, 95];
const LENGTH: Length = Length { arrivals: 2000, warm_up: 400 };

/// Measures placement quality under churn.
#[derive(Debug, Parser)]
#[command(name = "hack/bench-placement")]
struct Args {
    /// Only mixes with this name; repeat it for several
    #[arg(long, value_name = "NAME")]
    mix: Vec<String>,
    /// Only these loads, in percent
    #[arg(long, value_name = "PERCENT", default_values_t = LOADS)]
    load: Vec<u64>,
    /// Only machines with this text in their name
    #[arg(long, value_name = "TEXT")]
    machine: Vec<String>,
    /// The number of workloads for each cell. One alone says little: it can be off by five points
    #[arg(long, value_name = "N", default_value_t = 16)]
    seeds: u64,
    /// Only engines with this name
    #[arg(long, value_name = "NAME")]
    engine: Vec<String>,
    /// Print the integer sums of each cell instead of tables
    #[arg(long)]
    raw: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut machines = machines(&vectors)?;
    machines.retain(|machine| {
        args.machine.is_empty() || args.machine.iter().any(|text| machine.name.contains(text))
    });
    let mixes = chosen(&MIXES, |mix| mix.name, &args.mix)?;
    let engines = chosen(&ENGINES, |engine| engine.name, &args.engine)?;
    if machines.is_empty() {
        return Err("no machine has a name like that".into());
    }
    let mut summary = Summary::default();
    for mix in mixes {
        for load in &args.load {
            let engines: Vec<&EngineConfig> =
                engines.iter().copied().filter(|engine| engine.is_for(mix)).collect();
            let cells = cells(&machines, (mix, *load), &engines, args.seeds);
            if args.raw {
                print!("{}", cells.raw());
            } else {
                println!("{}", cells.tables());
            }
            if mix.name == MIXES[0].name {
                summary.add(&cells);
            }
        }
    }
    println!("{summary}");
    Ok(())
}

/// The items with one of these names; all items if there are no names.
fn chosen<'a, T>(
    all: &'a [T],
    name: fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<&'a T>, String> {
    for name_given in names {
        if !all.iter().any(|one| name(one) == name_given) {
            let known: Vec<&str> = all.iter().map(name).collect();
            return Err(format!(
                "unknown name {name_given:?}: expected one of {}",
                known.join(", ")
            ));
        }
    }
    let is_chosen =
        |one: &&T| names.is_empty() || names.iter().any(|name_given| name_given == name(one));
    Ok(all.iter().filter(is_chosen).collect())
}

/// Runs each engine on each machine, with each seed.
fn cells<'a>(
    machines: &'a [NamedMachine],
    (mix, load): (&'a Mix, u64),
    engines: &[&'a EngineConfig],
    seeds: u64,
) -> Cells<'a> {
    let mut cells = Cells::new(mix, load, machines, engines.to_vec());
    let mut jobs = Vec::new();
    for machine in 0..machines.len() {
        for engine in 0..engines.len() {
            jobs.extend((1..=seeds).map(|seed| (machine, engine, seed)));
        }
    }
    let run = |&(machine, engine, seed): &(usize, usize, u64)| {
        benchmark::run(&machines[machine], (mix, load), engines[engine], seed, LENGTH)
    };
    parallel::each(&jobs, run, |&(machine, engine, _), figures| {
        cells.add(machine, engine, &figures);
    });
    cells
}
