//! Times placement on the requests that the kubelet's own code was timed with.
//!
//! `cargo run --release --example placement_bench -- FILE` reads one request a line (`take`,
//! `hints`, `merge` or `admit`; plain or gzipped) and prints one JSON line for each:
//! `{"id","min_ns","median_ns"}`, nanoseconds per call. With `--against OTHER`, such lines of
//! another implementation, it prints a table of ratios instead. `--requests` prints requests to
//! time, and times nothing.
//!
//! With `--engine compact`, `take` is a whole decision of that engine (which ignores the strategy
//! of a request), and `admit` is decided by it; `hints` and `merge` are the kubelet's engine alone.
//!
//! The calls:
//!
//! * `take`: one allocation from a set of free CPUs. The machine is built before; nothing else is
//!   reused between calls.
//! * `hints`: from the same input to the hint that the topology manager chooses. The kubelet lists all
//!   hints first; admission here needs no list.
//! * `merge`: one hint from lists of hints.
//! * `admit`: the last pod of a sequence, on a node where the others run: from the pod's first
//!   event to its container's CPUs. Not timed: the copy of the node before each call; writing the
//!   checkpoint; what the kubelet's admission does not do either (sandbox, runtime, protocol).

use clap::Parser;
use cpuset::CpuSet;
use placement::kubelet::{Demand, merge, take};
use placement::{
    self, DeviceNodes, Distribution, EngineKind, NumaNodes, PlacementSettings, PodOptions, Reuse,
    Strategy, TopologyManager, TopologyPolicy, UncoreOrder, place,
};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::hint::black_box;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use topology::Topology;

#[path = "placement_bench/admission.rs"]
mod admission;
#[path = "placement_bench/against.rs"]
mod against;
#[path = "placement_bench/requests.rs"]
mod requests;
#[allow(dead_code, reason = "shared with the conformance example, which uses the rest")]
#[path = "conformance/runner.rs"]
mod runner;
#[path = "placement_bench/timing.rs"]
mod timing;

use runner::merge::Question;
use timing::{Timing, time};

/// Times placement, on requests as JSON lines.
#[derive(Parser)]
struct Args {
    /// The requests, gzipped or not.
    #[arg(required_unless_present = "requests")]
    file: Option<PathBuf>,
    /// Print requests to time.
    #[arg(long, conflicts_with_all = ["file", "against"])]
    requests: bool,
    /// Results of another implementation for the same requests: prints a table of how many times as
    /// long it took.
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// What decides: kubelet or compact.
    #[arg(long, value_name = "ENGINE", default_value = "kubelet", value_parser = engine)]
    engine: EngineKind,
}

fn engine(name: &str) -> Result<EngineKind, String> {
    let named = EngineKind::ALL.into_iter().find(|engine| engine.name() == name);
    named.ok_or_else(|| "expected kubelet or compact".to_owned())
}

#[derive(Deserialize)]
struct Request {
    id: String,
    op: String,
    topo: Option<Topo>,
    /// The NUMA nodes of a merge, which has no machine.
    #[serde(default)]
    nodes: Vec<usize>,
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

/// The time of one request.
#[derive(Serialize, Deserialize)]
struct RequestTime {
    id: String,
    #[serde(flatten)]
    timing: Timing,
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
    let Some(file) = &args.file else {
        requests::requests()?.iter().for_each(|request| println!("{request}"));
        return Ok(());
    };
    let mut table = args.against.as_deref().map(against::Table::read).transpose()?;
    for line in runner::open(file)?.lines() {
        let line = line?;
        let request: Request = serde_json::from_str(&line)?;
        let timing = call(&request, &line, args.engine)
            .map_err(|error| format!("{}: {error}", request.id))?;
        match &mut table {
            Some(table) => table.add(&request, timing)?,
            None => {
                let answer = RequestTime { id: request.id, timing };
                println!("{}", serde_json::to_string(&answer)?);
            }
        }
    }
    if let Some(table) = table {
        print!("{table}");
    }
    Ok(())
}

fn call(request: &Request, line: &str, engine: EngineKind) -> Result<Timing, Box<dyn Error>> {
    match request.op.as_str() {
        "take" if engine == EngineKind::Compact => time_place(request, engine),
        "take" => time_take(request),
        "hints" => time_hints(request),
        "merge" => time_merge(line),
        "admit" => admission::time_admission(&topology(request)?, line, engine),
        other => Err(format!("unknown operation {other}").into()),
    }
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
        _ if request.distribute => Strategy::AcrossNuma(Distribution {
            group: request.group,
            min_nodes: 0,
            align_by_socket: request.align_by_socket,
        }),
        _ => Strategy::Packed { uncore: request.uncore.then_some(UncoreOrder::FewestFree) },
    };
    Ok(time(|| take(&topology, black_box(&available), request.n, strategy)))
}

fn time_place(request: &Request, engine: EngineKind) -> Result<Timing, Box<dyn Error>> {
    let topology = topology(request)?;
    let request = placement::Request {
        cpus: request.n,
        free: request.available.parse()?,
        reuse: Reuse::NONE,
        promised: 0,
        pod: None,
        pod_options: PodOptions::NONE,
        devices: DeviceNodes::NONE,
        memory: None,
        settings: PlacementSettings { engine, ..PlacementSettings::default() },
    };
    Ok(time(|| place(&topology, black_box(&request))))
}

fn time_hints(request: &Request) -> Result<Timing, Box<dyn Error>> {
    let topology = topology(request)?;
    let available: CpuSet = request.available.parse()?;
    let reusable: CpuSet = request.reusable.parse()?;
    let align = request.align_by_socket;
    let manager = TopologyManager::default();
    Ok(time(|| {
        let demand = Demand::new(&topology, black_box(&available), &reusable, request.n, align);
        demand.best(TopologyPolicy::BestEffort, &NumaNodes::of(&topology, &manager))
    }))
}

fn time_merge(line: &str) -> Result<Timing, Box<dyn Error>> {
    let vector: runner::merge::Vector = serde_json::from_str(line)?;
    let question = vector.question().ok_or("a merge without a known policy")?;
    let Question { policy, numa, resources } = question;
    Ok(time(|| merge(policy, &numa, black_box(&resources))))
}
