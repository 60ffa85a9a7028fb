//! `nri-cpu-manager kubelet-state`: the assignments as the kubelet's CPU manager stores them.
//!
//! A kubelet that starts with its static policy and this file leaves every running container on its
//! CPUs. Without the file it would reassign all of them.

use clap::Args;
use kernel::Linux;
use kubelet::StateFile;
use state::checkpoint;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use terminal::NodeArgs;
use terminal::input;
use terminal::output::show;
use topology::{Topology, sysfs};

#[derive(Debug, Clone, Args)]
pub struct KubeletStateArgs {
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

/// Writes the kubelet's state file to `out`. The plugin may be running.
pub(crate) fn run(args: &KubeletStateArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let root = &args.sysfs_root;
    let topology = Topology::build(sysfs::read(&Linux, root)?.facts)
        .map_err(|error| format!("{} does not describe a machine: {error}", root.display()))?;
    let settings =
        input::config(&args.config)?.for_node(&args.node.identity())?.resolve(&topology)?;
    let advice = "Only this file has the assignments: check --state-dir";
    let claims = checkpoint::read(&args.state_dir).map_err(|error| format!("{error}. {advice}"))?;
    let Some(claims) = claims else {
        let dir = args.state_dir.display();
        return Err(format!("no {} in {dir}. {advice}", checkpoint::FILE).into());
    };
    let file = StateFile::of(claims.cpus, topology.online(), &settings.placement);
    Ok(show(out, &file.to_json())?)
}
