//! The command line: one file a subcommand.

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
    /// Show the machine: sockets, NUMA nodes, uncore caches, cores and CPUs
    Topology(topology::TopologyArgs),
}
