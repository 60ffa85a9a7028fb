//! `nri-cpu-manager kubelet-state`: the assignments as the kubelet's CPU manager and Memory Manager
//! store them.
//!
//! A kubelet that starts with its static policies and these files leaves every running container on its
//! CPUs and memory nodes. Without the files it would reassign all of them.

use super::input;
use super::machine::{self, LoadedMachine, NodeArgs};
use super::output::show;
use crate::checkpoint;
use crate::kubelet::{MemoryStateFile, StateFile};
use clap::Args;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub struct KubeletStateArgs {
    /// Write the Memory Manager's file, memory_manager_state, instead of the CPU manager's
    #[arg(long)]
    pub memory: bool,
    /// The plugin's configuration file, - for standard input
    #[arg(long, value_name = "FILE", default_value = "/etc/nri-cpu-manager/config.yaml")]
    pub config: PathBuf,
    #[command(flatten)]
    pub node: NodeArgs,
    /// The plugin's state directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
}

/// Writes a state file of the kubelet to `out`. The plugin may be running.
pub fn run(args: &KubeletStateArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let LoadedMachine { topology, sizes, .. } = machine::read(&args.sysfs_root)?;
    let settings =
        input::config(&args.config)?.for_node(&args.node.identity())?.resolve(&topology)?;
    let advice = "Only this file has the assignments: check --state-dir";
    let claims = checkpoint::read(&args.state_dir).map_err(|error| format!("{error}. {advice}"))?;
    let Some(claims) = claims else {
        let dir = args.state_dir.display();
        return Err(format!("no {} in {dir}. {advice}", checkpoint::FILE).into());
    };
    let text = if args.memory {
        let Some(capacity) = &settings.memory else {
            let file = args.config.display();
            let why = "the plugin counts no memory, so there is none for the kubelet to take over";
            return Err(format!("memoryManagerPolicy is not Static in {file}: {why}").into());
        };
        MemoryStateFile::of(&claims.memory, capacity, &sizes)?.to_json()
    } else {
        StateFile::of(claims.cpus, topology.online(), &settings.placement).to_json()
    };
    Ok(show(out, &text)?)
}
