//! `nri-cpu-manager uninstall`: undoes the plugin's changes to cgroups, interrupts and latency
//! knobs, for its removal from a node.

use cgroups::{Hierarchy, Undone, undo};
use clap::Args;
use exclusivity::{lifted_quotas, open_records, open_steering, quiet_roots};
use kernel::Linux;
use quiet::Restored;
use state::checkpoint::{self, StateDir, StateError};
use state::disk::Disk;
use state::files;
use status::outlook::Outlook;
use status::socket::{CONTAINERS, SOCKET, TRY_UNINSTALL};
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use terminal::client;
use terminal::output::{show, stay, wrapped};
use topology::sysfs;
use wording::count;

#[derive(Debug, Clone, Args)]
pub struct UninstallArgs {
    /// Also undo what the runtime has set for running containers: allow all CPUs to every pod's
    /// containers, and restore the CFS quotas of those that had exclusive CPUs
    #[arg(long)]
    pub containers: bool,
    /// Change nothing: ask the plugin that runs on this node what would change for its containers
    #[arg(long, conflicts_with = "stay")]
    pub dry_run: bool,
    /// Wait for SIGTERM or SIGINT after the work is done: for a DaemonSet, whose pods must not end
    #[arg(long)]
    pub stay: bool,
    /// The plugin's state directory; a running plugin locks it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// The kubelet's directory, to check that its static policy is not active
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_state_dir: PathBuf,
    /// Where the node's cgroups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroup_root: PathBuf,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_root: PathBuf,
    /// In a container: the directory with the host's proc/irq, sys and run, to restore interrupts and
    /// latency knobs
    #[arg(long, value_name = "DIR", env = "HOST_ROOT")]
    pub host_root: Option<PathBuf>,
}

pub fn run(args: &UninstallArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    if args.dry_run {
        return dry_run(args, out);
    }
    uninstall(args, out)?;
    if args.stay { Ok(stay(out)?) } else { Ok(()) }
}

fn dry_run(args: &UninstallArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let query = if args.containers { format!("?{CONTAINERS}") } else { String::new() };
    let answer = client::ask(&args.state_dir, &format!("{TRY_UNINSTALL}{query}"))?;
    let outlook: Outlook = client::read(&answer)?;
    Ok(show(out, &wrapped(&outlook.to_string()))?)
}

/// What a plugin that was killed leaves in its state directory, and only a running one needs.
const OF_RUNNING: [&str; 3] = [SOCKET, "pod-resources/kubelet.sock", "pod-resources/config.yaml"];

/// The lock of the state directory is released with the return, so that a reinstalled plugin can
/// start.
fn uninstall(args: &UninstallArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    if !args.state_dir.is_dir() {
        let why = format!(
            "no directory {}, nothing was undone: the plugin's --state-dir has the records of what it changed. If it \
             was deleted, create it: without records, only partitions are ended",
            args.state_dir.display()
        );
        return Err(why.into());
    }
    let disk = Disk::start()?;
    let _lock = match StateDir::open(&args.state_dir, &disk) {
        Err(error @ StateError::Locked { .. }) => {
            let advice = "Remove the DaemonSet first: a running plugin would redo its changes";
            return Err(format!("{error}. {advice}").into());
        }
        // Without a state there is no plugin to disturb.
        other => other.ok(),
    };
    if args.containers && kubelet::is_active(&args.kubelet_state_dir) {
        let dir = args.kubelet_state_dir.display();
        let why = format!(
            "the kubelet's static policy is active (state file in {dir}): it has assigned the containers' CPUs. Omit --containers"
        );
        return Err(why.into());
    }
    let claims = if args.containers {
        let advice = "It records whose CFS quota was lifted. Nothing was undone; without --containers, \
                      everything else is";
        let claims = checkpoint::read(&args.state_dir);
        Some(claims.map_err(|error| format!("{error}. {advice}"))?.unwrap_or_default())
    } else {
        None
    };
    let Some(hierarchy) = Hierarchy::open(&args.cgroup_root) else {
        let root = args.cgroup_root.display();
        let advice = "is the host's cgroup file system mounted there?";
        return Err(format!("{root} has no cpuset controller: {advice}").into());
    };
    let disk = Arc::new(disk);
    let records = open_records(&args.state_dir, disk.clone(), &Linux, &args.proc_root);
    let widest = sysfs::possible(&Linux, &args.sysfs_root).unwrap_or_else(|| hierarchy.free());
    let quotas = claims.as_ref().map(|claims| lifted_quotas(&claims.cpus));
    let Undone { groups: pools, partitions, quotas, containers, errors } =
        undo(&hierarchy, records, widest, quotas.as_ref());
    writeln!(out, "shared pool: {} restored", count(pools, "cgroup"))?;
    writeln!(out, "partitions:  {} ended", count(partitions, "partition"))?;
    writeln!(out, "CFS quotas:  {} restored", count(quotas, "quota"))?;
    if args.containers {
        writeln!(out, "containers:  {} freed", count(containers, "container"))?;
    }
    for error in &errors {
        writeln!(out, "not undone:  {error}")?;
    }
    // After the partitions: until they end, the kernel keeps its workers off their CPUs.
    let mut left = restore(args, disk, out)?;
    for name in OF_RUNNING {
        let path = args.state_dir.join(name);
        if let Err(error) = files::remove(&path) {
            writeln!(out, "not undone:  cannot remove {}: {error}", path.display())?;
            left += 1;
        }
    }
    match errors.len() + left {
        0 => Ok(()),
        left => Err(format!("{} could not be undone, see above", count(left, "change")).into()),
    }
}

/// Restores interrupts and latency knobs. Returns how many could not be.
fn restore(
    args: &UninstallArgs,
    disk: Arc<Disk>,
    out: &mut dyn Write,
) -> Result<usize, Box<dyn Error>> {
    let host = args.host_root.as_deref();
    let roots = quiet_roots(host, &args.proc_root, &args.sysfs_root);
    let mut steering = open_steering(&args.state_dir, disk, &Linux, &args.proc_root, roots, host);
    if steering.is_unused() {
        return Ok(0);
    }
    let Restored { files, irqbalance, left, errors } = steering.restore(&Linux);
    writeln!(out, "interrupts and latency knobs: {} restored", count(files, "file"))?;
    if irqbalance {
        writeln!(out, "irqbalance:  restored its list of banned CPUs")?;
    }
    for (setting, why) in &left {
        writeln!(out, "not undone:  {setting}: {why}")?;
    }
    for error in &errors {
        writeln!(out, "not undone:  {error}")?;
    }
    if !left.is_empty() && host.is_none() {
        writeln!(out, "in a container, --host-root names the directory with the host's files")?;
    }
    Ok(left.len() + errors.len())
}
