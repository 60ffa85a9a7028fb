//! The daemon: one task owns the ledger; everything else sends it messages.
//!
//! ```text
//!   edge ── Message ──► owner: ledger decides ──► checkpoint on disk ──► cgroups ──► answer ──► edge
//!                         ▲                                                           │
//!                         └──────────────────────────── sent ◄────────────────────────┘
//! ```
//!
//! A decision is on disk before the runtime gets it. Another thread writes the disk than the one
//! that serves the connection, and only if claims have changed: never for a shared container. A disk
//! that fails or does not respond keeps out new exclusive containers, and nothing else.
//!
//! [`Owner`] is the only one that acts. The parts beside it (`kubelet`, `reload`, `hotplug`,
//! `orphans`, `checks`, `drift`) report: they return events for the ledger, or what to repair, and
//! know nothing of each other. `enforcement` has cgroups written and `delivery` calls the runtime,
//! both when the owner says so.

mod balance;
mod checks;
mod complete;
mod decision_log;
mod deliver;
mod delivery;
mod drift;
mod enforcement;
mod expose;
mod exposed_files;
mod follow;
mod hotplug;
mod kubelet;
mod main_loop;
mod notice;
mod orphans;
mod owner;
mod pace;
mod persist;
mod poller;
mod quotas;
mod rebalance;
mod reload;
mod repair;
mod report;
mod start;
mod suspects;
mod validation;

pub use main_loop::serve;
pub use owner::Owner;

use crate::checkpoint::StateError;
use crate::config::{ConfigError, NodeIdentity, PodResources};
use crate::topology::{TopologyError, sysfs};
use std::future::pending;
use std::path::PathBuf;
use tokio::task::{JoinError, JoinHandle};

/// The daemon's files, and its node.
#[derive(Debug, Clone)]
pub struct Paths {
    pub node: NodeIdentity,
    /// The configuration file; `None` if the runtime hands the configuration over.
    pub config: Option<PathBuf>,
    /// The directory of the state file.
    pub state_dir: PathBuf,
    /// Where podresources are served if the configuration does not say where.
    pub pod_resources: Option<PodResources>,
    /// Usually `/sys`.
    pub sysfs_root: PathBuf,
    /// Usually `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// Usually `/proc`.
    pub proc_root: PathBuf,
}

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Machine(#[from] sysfs::ReadError),
    #[error("the machine in {0} cannot be understood: {1}")]
    Facts(PathBuf, TopologyError),
}

/// Does work that may block on another thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    result_of(&mut tokio::task::spawn_blocking(work)).await
}

/// What a task returns; its panic is the daemon's. Cancel safe.
async fn result_of<T>(task: &mut JoinHandle<T>) -> T {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Nobody cancels it but a runtime that ends, and the daemon with it.
        Err(Err(_)) => pending().await,
    }
}
