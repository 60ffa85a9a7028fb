//! The command line: one file a subcommand.

pub mod check_config;
pub mod client;
pub mod drawing;
pub mod enable_nri;
pub mod explain;
pub mod kubelet_state;
pub mod log;
pub mod machine;
pub mod node;
pub mod release;
pub mod run;
pub mod simulate;
pub mod status;
pub mod topology;

use clap::{Parser, Subcommand};

/// Topology-aware CPU pinning for Kubernetes nodes.
#[derive(Debug, Parser)]
#[command(name = "nri-cpu-manager", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the plugin; also what happens without a subcommand when the runtime launches it
    Run(run::RunArgs),
    /// Show the node as the running plugin sees it: CPUs, containers, what was refused, what is not
    /// as it should be
    Status(status::StatusArgs),
    /// Say why a pod's containers have the CPUs they have, or have none
    Explain(explain::ExplainArgs),
    /// Check a configuration file: what would be in force, here and on other nodes, and what would
    /// change for containers
    CheckConfig(check_config::CheckConfigArgs),
    /// Show the machine: sockets, NUMA nodes, uncore caches, cores and CPUs
    Topology(topology::TopologyArgs),
    /// Try out pods on a described machine: what would be decided, with one configuration or
    /// several
    Simulate(simulate::SimulateArgs),
    /// Write down what is assigned as the kubelet's cpu_manager_state, for the way back to its
    /// static policy
    KubeletState(kubelet_state::KubeletStateArgs),
    /// Switch NRI on in containerd's configuration; needed once on nodes with containerd 1.7
    EnableNri(enable_nri::EnableNriArgs),
    /// Undo what the plugin has left in control groups, before it is gone from a node for good
    Release(release::ReleaseArgs),
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
