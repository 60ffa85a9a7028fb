//! How long placement takes, on the questions the kubelet's own code was timed with.
//!
//! `cargo run --release --example placement_bench -- FILE` reads one request a line (`take`, `hints` or `merge`; plain or
//! gzipped) and prints one JSON line for each: `{"id","min_ns","median_ns"}`, nanoseconds per call.
//!
//! A call starts from the set of free CPUs and keeps nothing for the next one; only the machine is built before. For
//! `hints` a call ends with the hint the topology manager would choose, as admission needs no list of all hints.

use nri_cpu_manager::cpuset::CpuSet;
use nri_cpu_manager::placement::{
    Demand, Numa, Strategy, TopologyManager, TopologyPolicy, UncoreOrder, merge, take,
};
use nri_cpu_manager::topology::Topology;
use serde::Deserialize;
use std::error::Error;
use std::hint::black_box;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "shared with the conformance example, which uses the rest")]
#[path = "conformance/runner.rs"]
mod runner;

use runner::merge::Question;

#[derive(Deserialize)]
struct Request {
    id: String,
    op: String,
    topo: Option<Topo>,
    #[serde(default)]
    available: String,
    #[serde(default)]
    reusable: String,
    #[serde(default)]
    n: usize,
    #[serde(default)]
    strategy: String,
    #[serde(default)]
    uncore: bool,
    #[serde(default)]
    distribute: bool,
    #[serde(default)]
    group: usize,
    #[serde(default)]
    align_by_socket: bool,
}

#[derive(Deserialize)]
struct Topo {
    cpus: Vec<[usize; 5]>,
}

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: placement_bench FILE, requests as JSON lines, gzipped or not");
        return ExitCode::from(64);
    };
    match run(Path::new(&file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(file: &Path) -> Result<(), Box<dyn Error>> {
    for line in runner::open(file)?.lines() {
        let line = line?;
        let request: Request = serde_json::from_str(&line)?;
        let timing = match request.op.as_str() {
            "take" => time_take(&request)?,
            "hints" => time_hints(&request)?,
            "merge" => time_merge(&line)?,
            // Admission is the ledger's to time.
            _ => continue,
        };
        let Timing { min, median } = timing;
        println!("{}", serde_json::json!({"id": request.id, "min_ns": min, "median_ns": median}));
    }
    Ok(())
}

fn topology(request: &Request) -> Result<Topology, Box<dyn Error>> {
    let topo = request.topo.as_ref().ok_or("a request without a machine")?;
    Ok(runner::topologies::build(&topo.cpus)?)
}

fn time_take(request: &Request) -> Result<Timing, Box<dyn Error>> {
    let topology = topology(request)?;
    let available: CpuSet = request.available.parse()?;
    let strategy = match request.strategy.as_str() {
        "spread" => Strategy::Spread,
        _ if request.distribute => Strategy::AcrossNuma { group: request.group },
        _ => Strategy::Packed { uncore: request.uncore.then_some(UncoreOrder::FewestFree) },
    };
    Ok(time(|| take(&topology, black_box(&available), request.n, strategy)))
}

fn time_hints(request: &Request) -> Result<Timing, Box<dyn Error>> {
    let topology = topology(request)?;
    let available: CpuSet = request.available.parse()?;
    let reusable: CpuSet = request.reusable.parse()?;
    let align = request.align_by_socket;
    let manager = TopologyManager::default();
    Ok(time(|| {
        let demand = Demand::new(&topology, black_box(&available), &reusable, request.n, align);
        demand.best(TopologyPolicy::BestEffort, &Numa::of(&topology, &manager))
    }))
}

fn time_merge(line: &str) -> Result<Timing, Box<dyn Error>> {
    let vector: runner::merge::Vector = serde_json::from_str(line)?;
    let question = vector.question().ok_or("a merge without a known policy")?;
    let Question { policy, numa, resources } = question;
    Ok(time(|| merge(policy, &numa, black_box(&resources))))
}

/// Nanoseconds per call.
struct Timing {
    min: u128,
    median: u128,
}

/// Times calls in rounds long enough for the clock, for a tenth of a second and at least ten rounds.
fn time<T>(mut call: impl FnMut() -> T) -> Timing {
    let mut round = |calls: u32| {
        let started = Instant::now();
        (0..calls).for_each(|_| drop(black_box(call())));
        started.elapsed()
    };
    round(3);
    let once = round(1).max(Duration::from_nanos(50));
    let calls = (20_000 / once.as_nanos()).clamp(1, 400) as u32;
    let started = Instant::now();
    let mut rounds: Vec<u128> = Vec::new();
    while rounds.len() < 10 || started.elapsed() < Duration::from_millis(100) {
        rounds.push(round(calls).as_nanos() / u128::from(calls));
    }
    rounds.sort_unstable();
    let at = |index: usize| rounds.get(index).copied().unwrap_or(0);
    Timing { min: at(0), median: at(rounds.len() / 2) }
}
