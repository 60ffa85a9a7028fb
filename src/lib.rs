//! The program on a node: the plugin, and the commands that ask it or clean up after it.

mod explain;
mod kubelet_state;
mod log;
mod noise;
mod run;
pub mod status;
pub mod uninstall;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use std::error::Error;
use std::io::Write;

/// Topology-aware CPU pinning for Kubernetes nodes.
#[derive(Debug, Parser)]
#[command(
    name = "nri-cpu-manager",
    version,
    max_term_width = 100,
    after_help = "Machines, configurations, simulations, and a node before the plugin is on it: cpuctl"
)]
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
    /// Write the current assignments as the kubelet's cpu_manager_state, to return to its static
    /// policy
    KubeletState(kubelet_state::KubeletStateArgs),
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

impl Command {
    /// Runs it. What it says goes to `out`, and what may be wrong to `warnings`.
    pub fn run(self, out: &mut dyn Write, warnings: &mut dyn Write) -> Result<(), Box<dyn Error>> {
        match self {
            Command::Run(args) => {
                log::start(args.log_format);
                run::run(args)
            }
            Command::Status(args) => status::run(&args, out),
            Command::Explain(args) => explain::run(&args, out),
            Command::Noise(args) => noise::run(&args, out, warnings),
            Command::KubeletState(args) => kubelet_state::run(&args, out),
            Command::Uninstall(args) => uninstall::run(&args, out),
        }
    }
}
