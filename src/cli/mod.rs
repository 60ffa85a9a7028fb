//! The command line: one file a subcommand.

pub mod bench_gain;
pub mod check_config;
pub mod client;
pub mod doctor;
pub mod enable_nri;
pub mod explain;
mod input;
pub mod kubelet_state;
pub mod log;
pub mod machine;
pub mod noise;
pub mod output;
pub mod run;
pub mod simulate;
pub mod status;
pub mod topology;
pub mod uninstall;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use std::error::Error;

/// Topology-aware CPU pinning for Kubernetes nodes.
#[derive(Debug, Parser)]
#[command(name = "nri-cpu-manager", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the plugin; the default when the runtime launches it
    Run(run::RunArgs),
    /// Show the node as the running plugin sees it: CPUs, containers, refusals, problems
    Status(status::StatusArgs),
    /// Explain why a pod's containers have their CPUs, or have none
    Explain(explain::ExplainArgs),
    /// Observe exclusive CPUs, and report what runs or fires there besides their containers
    Noise(noise::NoiseArgs),
    /// Check a configuration file: the settings on this node and others, and the effect on running
    /// containers
    CheckConfig(check_config::CheckConfigArgs),
    /// Show a machine: sockets, NUMA nodes, uncore caches, cores and CPUs
    Topology(topology::TopologyArgs),
    /// Simulate pods on a machine with one or several configurations
    Simulate(simulate::SimulateArgs),
    /// Write the current assignments as the kubelet's cpu_manager_state, to return to its static
    /// policy
    KubeletState(kubelet_state::KubeletStateArgs),
    /// Say what this node allows, what the plugin will do there, and what to change
    Doctor(doctor::DoctorArgs),
    /// Enable NRI in containerd's configuration; needed once on nodes with containerd 1.7
    EnableNri(enable_nri::EnableNriArgs),
    /// Measure what pinning gains on this machine: latency next to bursting neighbours, without pinning
    /// and with each mechanism. Needs root, two CPUs and no plugin; takes five minutes
    BenchGain(bench_gain::BenchGainArgs),
    /// Undo the plugin's changes to cgroups, before it is removed from the node
    Uninstall(uninstall::UninstallArgs),
}

/// The namespaces that `status`, `explain` and `noise` are about.
#[derive(Debug, Clone, Default, Args)]
pub struct NamespaceArgs {
    /// Show only containers of these namespaces; repeat it, or separate several with commas
    #[arg(
        long = "namespace",
        short,
        value_name = "NAMESPACE,...",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub namespaces: Vec<String>,
    /// Show containers of all namespaces; this is the default
    #[arg(long, short = 'A', conflicts_with = "namespaces")]
    pub all_namespaces: bool,
}

impl NamespaceArgs {
    /// Without `--namespace`, every namespace.
    fn includes(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace)
    }
}

/// A mistake on the command line that shows only after parsing: options that contradict each other,
/// or one that another needs. The exit status is that of clap's own errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}. See --help")]
pub struct UsageError(pub String);

/// The exit status of a command that failed.
pub fn exit_status(error: &(dyn Error + 'static)) -> u8 {
    if error.is::<UsageError>() {
        2
    } else if error.is::<bench_gain::Interrupted>() {
        // As a shell reports a program that SIGINT ended.
        130
    } else {
        1
    }
}

impl Cli {
    /// Reads the command line. A runtime that launches the plugin gives no arguments, and means
    /// `run`.
    pub fn from_process() -> Cli {
        if std::env::args_os().len() <= 1 && std::env::var_os("NRI_PLUGIN_SOCKET").is_some() {
            return Cli::parse_from(["nri-cpu-manager", "run"]);
        }
        Cli::parse()
    }
}
