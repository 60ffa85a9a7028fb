//! `nri-cpu-manager release`: undoes what the plugin has left in control groups, for its removal
//! from a node.

use crate::checkpoint::{StateDir, StateError};
use crate::exclusivity::{Hierarchy, Memory, Undone, undo};
use crate::topology::sysfs;
use crate::wording::count;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `release`.
#[derive(Debug, Clone, Args)]
pub struct ReleaseArgs {
    /// The directory of the plugin's state: it is locked while the plugin runs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    pub state_dir: PathBuf,
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
    /// There are no control groups.
    #[error("{} has no cpuset controller: is the host's cgroup file system mounted there?", .0.display())]
    NoHierarchy(PathBuf),
    /// The kernel refused something.
    #[error("{0} could not be undone, see above")]
    Left(String),
    /// The output cannot be written.
    #[error("cannot say what was done: {0}")]
    Write(#[from] io::Error),
}

/// Undoes it, and says what that was.
///
/// # Errors
/// If the plugin runs, or something could not be undone; everything else is by then.
pub fn run(args: &ReleaseArgs, out: &mut impl Write) -> Result<(), ReleaseError> {
    let _lock = match StateDir::open(&args.state_dir) {
        Err(error @ StateError::Locked { .. }) => return Err(ReleaseError::Runs(error)),
        // Without a state there is no plugin to disturb.
        other => other.ok(),
    };
    let hierarchy = Hierarchy::open(&args.cgroup_root)
        .ok_or_else(|| ReleaseError::NoHierarchy(args.cgroup_root.clone()))?;
    let memory = Memory::open(&args.state_dir, &args.proc_root);
    let widest = sysfs::possible(&args.sysfs_root).unwrap_or_else(|| hierarchy.free());
    let Undone { pools, partitions, quotas, errors } = undo(&hierarchy, memory, widest);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    writeln!(out, "shared pool: {} cleared", count(number(pools), "group"))?;
    writeln!(out, "partitions:  {} ended", count(number(partitions), "partition"))?;
    writeln!(out, "CFS quotas:  {} put back", count(number(quotas), "quota"))?;
    for error in &errors {
        writeln!(out, "left:        {error}")?;
    }
    match errors.len() {
        0 => Ok(()),
        left => Err(ReleaseError::Left(count(left, "group"))),
    }
}
