//! Placement quality under churn, in short: a part of `hack/bench-placement`, whose integer sums
//! must be those in `tests/placement_quality.txt`. Any change there is a change of decisions.
//!
//! `UPDATE=1 cargo test --test it placement_quality` rewrites the file, for a commit that explains
//! the change. So few arrivals do not show which engine is better; the whole benchmark does.

#[allow(dead_code, reason = "shared with the example, which uses the rest")]
#[path = "../../examples/placement_quality/benchmark.rs"]
mod benchmark;
#[path = "../../examples/placement_quality/parallel.rs"]
mod parallel;
use benchmark::{ENGINES, EngineConfig, Length, MIXES, Mix, NamedMachine, machines};
use std::path::Path;

/// With SMT and without, one NUMA node and many, caches as large as nodes, four threads per core.
const MACHINES: [&str; 5] = [
    "epyc-7702p-64c-smt-nps4",
    "2p-epyc-7303-32c-smt-nps1",
    "ampere-altra-128c",
    "power9-2s-smt4",
    "epyc-7702p-64c-smt-l3-as-numa",
];
const LOAD: u64 = 95;
const SEED: u64 = 1;
const LENGTH: Length = Length { arrivals: 200, warm_up: 80 };

#[test]
fn figures_equal_the_saved_ones() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut machines = machines(&vectors).unwrap();
    machines.retain(|machine| MACHINES.contains(&machine.name.as_str()));
    let mut jobs: Vec<(&Mix, &NamedMachine, &EngineConfig)> = Vec::new();
    for mix in &MIXES {
        for machine in &machines {
            let engines = ENGINES.iter().filter(|engine| engine.is_for(mix));
            jobs.extend(engines.map(|engine| (mix, machine, engine)));
        }
    }
    let run = |&(mix, machine, engine): &(&Mix, &NamedMachine, &EngineConfig)| {
        benchmark::run(machine, (mix, LOAD), engine, SEED, LENGTH)
    };
    let mut lines = Vec::new();
    parallel::each(&jobs, run, |(mix, machine, engine), figures| {
        assert_eq!(figures.live.samples, 120);
        lines.push(format!("{} {} {} {figures}\n", mix.name, machine.name, engine.name));
    });
    lines.sort_unstable();
    let now = lines.concat();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement_quality.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let saved = std::fs::read_to_string(&file).unwrap();
    let changed: Vec<&str> = now.lines().filter(|line| !saved.contains(line)).collect();
    assert!(
        saved == now,
        "UPDATE=1 cargo test --test it placement_quality saves the new figures:\n{}",
        changed.join("\n")
    );
}
