//! `nri-cpu-manager release`: undoes what the plugin has left in control groups, for its removal
//! from a node.

use crate::checkpoint::{self, StateDir, StateError};
use crate::exclusivity::{Hierarchy, Memory, Undone, undo};
use crate::kubelet;
use crate::ledger::Claim;
use crate::topology::sysfs;
use crate::wording::count;
use clap::Args;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `release`.
#[derive(Debug, Clone, Args)]
pub struct ReleaseArgs {
    /// Give running containers back what the runtime has set for them, too: all CPUs to every
    /// container of a pod, and their own CFS quotas to those that had exclusive CPUs
    #[arg(long)]
    pub containers: bool,
    /// Stay, once all is done, until SIGTERM or SIGINT: for a DaemonSet, whose pods must not end
    #[arg(long)]
    pub stay: bool,
    /// The directory of the plugin's state: it is locked while the plugin runs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
    /// The kubelet's directory: under its static policy, containers have CPUs of the kubelet's
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_state_dir: PathBuf,
    /// Where the node's control groups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroup_root: PathBuf,
    /// Where the machine is read from
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Where processes are
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_root: PathBuf,
}

/// Why something is left.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The plugin runs, and would do it all again.
    #[error("{0}. Remove the DaemonSet first: a running plugin would set all of it again")]
    Runs(StateError),
    /// Containers have the kubelet's CPUs.
    #[error(
        "the kubelet's static policy is active, by its state file in {}: containers have CPUs that the kubelet assigned. Leave out --containers", .0.display()
    )]
    Kubelet(PathBuf),
    /// Whose quotas were lifted is not known.
    #[error(
        "cannot use {}, which says whose CFS quota was lifted: {why}. Nothing was undone; without --containers everything else is", path.display()
    )]
    Claims {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There are no control groups.
    #[error("{} has no cpuset controller: is the host's cgroup file system mounted there?", .0.display())]
    NoHierarchy(PathBuf),
    /// The kernel refused something.
    #[error("{0} could not be undone, see above")]
    Left(String),
    /// The output cannot be written, or signals not be waited for.
    #[error("cannot say what was done, or stay: {0}")]
    Io(#[from] io::Error),
}

/// Undoes it, says what that was, and stays if that is asked for.
///
/// # Errors
/// If the plugin runs, or something could not be undone; everything else is by then.
pub fn run(args: &ReleaseArgs, out: &mut impl Write) -> Result<(), ReleaseError> {
    release(args, out)?;
    if args.stay { Ok(stay(out)?) } else { Ok(()) }
}

/// The lock of the state directory is given back with the return: a plugin that is installed again
/// can start.
fn release(args: &ReleaseArgs, out: &mut impl Write) -> Result<(), ReleaseError> {
    let _lock = match StateDir::open(&args.state_dir) {
        Err(error @ StateError::Locked { .. }) => return Err(ReleaseError::Runs(error)),
        // Without a state there is no plugin to disturb.
        other => other.ok(),
    };
    if args.containers && kubelet::is_active(&args.kubelet_state_dir) {
        return Err(ReleaseError::Kubelet(args.kubelet_state_dir.clone()));
    }
    let claims = if args.containers { Some(claims(&args.state_dir)?) } else { None };
    let hierarchy = Hierarchy::open(&args.cgroup_root)
        .ok_or_else(|| ReleaseError::NoHierarchy(args.cgroup_root.clone()))?;
    let memory = Memory::open(&args.state_dir, &args.proc_root);
    let widest = sysfs::possible(&args.sysfs_root).unwrap_or_else(|| hierarchy.free());
    let Undone { groups: pools, partitions, quotas, containers, errors } =
        undo(&hierarchy, memory, widest, claims.as_deref());
    writeln!(out, "shared pool: {} cleared", count(pools, "group"))?;
    writeln!(out, "partitions:  {} ended", count(partitions, "partition"))?;
    writeln!(out, "CFS quotas:  {} put back", count(quotas, "quota"))?;
    if args.containers {
        writeln!(out, "containers:  {} freed", count(containers, "container"))?;
    }
    for error in &errors {
        writeln!(out, "left:        {error}")?;
    }
    match errors.len() {
        0 => Ok(()),
        left => Err(ReleaseError::Left(count(left, "group"))),
    }
}

/// The claims in the state file; none without one.
fn claims(state_dir: &Path) -> Result<Vec<Claim>, ReleaseError> {
    let path = state_dir.join(checkpoint::FILE);
    let read = match fs::read(&path) {
        Ok(bytes) => checkpoint::decode(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    };
    read.map_err(|why| ReleaseError::Claims { path, why })
}

/// Says so only when signals are waited for: the first process of a container ignores them before.
fn stay(out: &mut impl Write) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        writeln!(out, "done; waiting for SIGTERM")?;
        out.flush()?;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        Ok(())
    })
}
