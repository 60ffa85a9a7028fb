//! `nri-cpu-manager kubelet-state`: the assignments in the form of the kubelet's CPU manager.
//!
//! For the way back: a kubelet that starts with its static policy and this file keeps every running
//! container on its CPUs. Without the file it would assign all CPUs anew.

use super::machine::{self, MachineError};
use super::node::NodeArgs;
use crate::checkpoint;
use crate::config::{Config, ConfigError};
use crate::kubelet::StateFile;
use crate::ledger::{KubeletClaim, Named};

use clap::Args;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `kubelet-state`.
#[derive(Debug, Clone, Args)]
pub struct KubeletStateArgs {
    /// The plugin's configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/nri-cpu-manager/config.yaml")]
    pub config: PathBuf,
    /// Which node it is
    #[command(flatten)]
    pub node: NodeArgs,
    /// The directory of the plugin's state file
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Where the machine is read from
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
}

/// Why the file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum KubeletStateError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no machine to read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The plugin's state file cannot be used.
    #[error("cannot use {}: {why}. Only this file says what is assigned; is --state-dir right?", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The output cannot be written.
    #[error("cannot write the kubelet's state: {0}")]
    Write(#[from] io::Error),
}

/// Writes the kubelet's state file to `out`. The plugin may run or not.
///
/// # Errors
/// If the configuration, the machine or the plugin's state cannot be read, or `out` cannot be
/// written.
pub fn run(args: &KubeletStateArgs, out: &mut dyn Write) -> Result<(), KubeletStateError> {
    let topology = machine::read(&args.sysfs_root)?.topology;
    let placement =
        Config::read(&args.config)?.for_node(&args.node.identity())?.resolve(&topology)?.placement;
    let path = args.state_dir.join(checkpoint::FILE);
    let claims = fs::read(&path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| checkpoint::decode(&bytes))
        .map_err(|why| KubeletStateError::State { path, why })?;
    let mut shared = topology.online();
    if placement.options.strict_cpu_reservation {
        shared -= placement.reserved;
    }
    for claim in &claims {
        shared -= claim.cpus;
    }
    let claims = claims
        .into_iter()
        .map(|claim| KubeletClaim {
            of: Named::Container(claim.pod_uid, claim.container),
            cpus: claim.cpus,
        })
        .collect();
    let state = StateFile { policy: "static".to_owned(), shared, claims, pods: Vec::new() };
    Ok(out.write_all(state.to_json().as_bytes())?)
}
