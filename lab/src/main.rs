//! The lab's command: arguments to subcommand to exit code.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real containerd and virtual many-cache servers for nri-cpu-manager.
#[derive(Parser)]
#[command(name = "lab")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// KEP-4800's example on a virtual 32-CPU server, drawn.
    Demo(lab::demo::Options),
    /// Pods churn, the plugin is killed at random moments, and nothing may go wrong.
    Chaos(lab::chaos::command::Options),
    /// How long an exclusive container takes to start beside many shared ones.
    Latency(lab::latency::Options),
    /// The plugin's model of cgroups, held against the kernel of a virtual server.
    Cgroups(lab::cgroup_model::command::Options),
    /// Scenarios on machines.
    Run(lab::suite::Run),
    /// Every scenario on every machine, with both generations of containerd.
    All(lab::suite::All),
    /// A prompt on a virtual server with the plugin running.
    Shell(lab::shell::Options),
    /// The machines and the scenarios.
    List,
    /// The plugin's image as an OCI archive, without Docker.
    Image(lab::image::shipped::Options),
    /// Fetches and makes what servers and containers need, so that the first of them does not have
    /// to wait.
    Prepare,
    /// How much memory and disk the plugin needs.
    Measure,
    /// Inside a virtual server: plays what the host has asked for.
    #[command(hide = true)]
    Guest,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => lab::demo::run(&options),
        Command::Chaos(options) => lab::chaos::command::run(&options),
        Command::Latency(options) => lab::latency::run(&options),
        Command::Cgroups(options) => lab::cgroup_model::command::run(&options),
        Command::Run(options) => lab::suite::run(&options),
        Command::All(options) => lab::suite::all(&options),
        Command::Shell(options) => lab::shell::start(&options),
        Command::List => lab::suite::list(),
        Command::Image(options) => lab::image::shipped::run(&options),
        Command::Prepare => lab::prepare(),
        Command::Measure => lab::measure::run(),
        Command::Guest => lab::guest::main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
