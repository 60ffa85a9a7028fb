//! The program for people: what a machine looks like, what a configuration would do, and what a node
//! needs before the plugin is on it.

mod bench_gain;
mod check_config;
mod completion;
pub mod doctor;
mod enable_nri;
pub mod machine;
mod schema;
mod simulate;
mod topology;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::io::Write;

/// CPU pinning for Kubernetes nodes with nri-cpu-manager: machines, configurations, nodes.
#[derive(Debug, Parser)]
#[command(
    name = "cpuctl",
    version,
    max_term_width = 100,
    after_help = "The status of a node, and why a pod has its CPUs: nri-cpu-manager status, explain, noise"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a configuration file: the settings on this node and others, and the effect on running
    /// containers
    CheckConfig(check_config::CheckConfigArgs),
    /// Show a machine: sockets, NUMA nodes, uncore caches, cores and CPUs
    Topology(topology::TopologyArgs),
    /// Simulate pods on a machine with one or several configurations
    Simulate(simulate::SimulateArgs),
    /// Say what this node allows, what the plugin will do there, and what to change
    Doctor(doctor::DoctorArgs),
    /// Enable NRI in containerd's configuration; needed once on nodes with containerd 1.7
    EnableNri(enable_nri::EnableNriArgs),
    /// Measure what pinning gains on this machine: latency next to bursting neighbours, without pinning
    /// and with each mechanism. Needs root, two CPUs and no plugin; takes five minutes
    BenchGain(bench_gain::BenchGainArgs),
    /// Write the JSON schema of the configuration or of the status
    Schema(schema::SchemaArgs),
    /// Write the completions of this program for a shell
    Completion(completion::CompletionArgs),
}

/// The exit status of a command that failed.
pub fn exit_status(error: &(dyn Error + 'static)) -> u8 {
    if error.is::<bench_gain::Interrupted>() {
        // As a shell reports a program that SIGINT ended.
        130
    } else {
        terminal::exit_status(error)
    }
}

impl Command {
    /// Runs it. What it says goes to `out`, and what may be wrong to `warnings`.
    pub fn run(self, out: &mut dyn Write, warnings: &mut dyn Write) -> Result<(), Box<dyn Error>> {
        match self {
            Command::CheckConfig(args) => check_config::run(&args, out, warnings),
            Command::Topology(args) => topology::run(&args, out, warnings),
            Command::Simulate(args) => simulate::run(&args, out, warnings),
            Command::Doctor(args) => doctor::run(&args, out),
            Command::EnableNri(args) => enable_nri::run(&args, out),
            Command::BenchGain(args) => bench_gain::run(&args, out),
            Command::Schema(args) => schema::run(&args, out),
            Command::Completion(args) => completion::run(&args, out),
        }
    }
}
