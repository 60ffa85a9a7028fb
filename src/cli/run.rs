//! `nri-cpu-manager run`: the plugin itself.

use super::node::NodeArgs;
use crate::config::Config;
use crate::daemon::{self, Owner, Paths};
use crate::edge::nri::{self, Endpoint, Identity, Launched};
use crate::serve::endpoint::{self, Address};
use crate::serve::questions;
use clap::Args;
use std::error::Error;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The configuration file. A plugin launched by the runtime gets its configuration from there
    /// instead.
    #[arg(long, value_name = "FILE", default_value = "/etc/nri-cpu-manager/config.yaml")]
    config: PathBuf,
    /// Which node it is.
    #[command(flatten)]
    node: NodeArgs,
    /// The directory of the state file; one for each instance.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    state_dir: PathBuf,
    /// The runtime's NRI socket.
    #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
    socket: PathBuf,
    /// Where the machine is read from.
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs_root: PathBuf,
    /// Where control groups are.
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// Where processes are.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
    /// The name to register under.
    #[arg(long, default_value = "cpu-manager")]
    name: String,
    /// The runtime calls plugins in the order of their index, 00 to 99.
    #[arg(long, default_value = "90")]
    index: String,
    /// Where metrics and health are to be had, over HTTP; none for nowhere.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9479")]
    metrics_address: Address,
}

/// Runs until SIGTERM or SIGINT. A plugin that the runtime launched also ends with its connection.
///
/// # Errors
/// If the start fails (before any container is touched), or the runtime cannot be reached.
pub fn run(args: RunArgs) -> Result<(), Box<dyn Error>> {
    log::info!("nri-cpu-manager {}", env!("CARGO_PKG_VERSION"));
    let launched = Launched::from_environment(|name| std::env::var_os(name))?;
    let mut paths = Paths {
        node: args.node.identity(),
        config: Some(args.config),
        state_dir: args.state_dir,
        sysfs_root: args.sysfs_root,
        cgroup_root: args.cgroup_root,
        proc_root: args.proc_root,
    };
    let (endpoint, identity, owner) = match launched {
        Some(launched) => {
            paths.config = None;
            (Endpoint::Launched(launched.connection()?), launched.identity, None)
        }
        None => {
            let identity = Identity::new(&args.name, &args.index)?;
            let config = Config::read(paths.config.as_deref().unwrap_or(&PathBuf::new()))?;
            (Endpoint::Socket(args.socket), identity, Some(Owner::start(&paths, &config)?))
        }
    };
    // One thread: its work takes microseconds; what takes longer (the disk) has its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = async {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            log::info!("{name}: stopping; containers keep their CPUs");
        };
        let (observer, asked) = questions();
        if let Some(listener) = endpoint::listen(args.metrics_address).await? {
            tokio::spawn(endpoint::serve(listener, observer.clone()));
        }
        let (outbox, inbox) = mpsc::unbounded_channel();
        let edge = nri::run(endpoint, &identity, outbox, shutdown);
        // The edge ends first and drops the last sender. The owner ends after the last message.
        let (result, ()) =
            tokio::join!(edge, daemon::serve(inbox, (observer, asked), &paths, owner));
        result?;
        log::info!("stopped");
        Ok(())
    })
}
