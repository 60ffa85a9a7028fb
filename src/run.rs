//! `nri-cpu-manager run`: the plugin itself.

use super::log::LogFormat;
use clap::Args;
use config::{Config, PodResources};
use daemon::{self, Paths, Start, Threads};
use nri::{Endpoint, Identity, Launched};
use serve::endpoint::{self, Address};
use serve::questions;
use std::error::Error;
use std::path::PathBuf;
use terminal::NodeArgs;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The configuration file; a plugin launched by the runtime gets its configuration from the
    /// runtime instead
    #[arg(long, value_name = "FILE", default_value = "/etc/nri-cpu-manager/config.yaml")]
    config: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
    /// The state directory; each instance needs its own
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nri-cpu-manager")]
    state_dir: PathBuf,
    /// The directory in which to serve podresources, if the configuration has no `podResources`
    #[arg(long, value_name = "DIR", env = "POD_RESOURCES_LISTEN", value_parser = PodResources::in_directory)]
    pod_resources_listen: Option<PodResources>,
    /// The runtime's NRI socket
    #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
    socket: PathBuf,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs_root: PathBuf,
    /// Where cgroups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
    /// In a container: the directory with the host's proc/irq, sys and run, to move interrupts and set
    /// latency knobs
    #[arg(long, value_name = "DIR", env = "HOST_ROOT")]
    host_root: Option<PathBuf>,
    /// The name to register with the runtime
    #[arg(long, default_value = "cpu-manager")]
    name: String,
    /// The index to register with the runtime, 00 to 99: it calls plugins in this order
    #[arg(long, default_value = "90")]
    index: String,
    /// The HTTP address of metrics, health and the status page, or "none"
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9479")]
    metrics_address: Address,
    /// The format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Runs until SIGTERM or SIGINT. A plugin that the runtime launched also ends with its connection.
///
/// # Errors
/// If the start fails, before any container is touched, or the runtime cannot be reached.
pub(crate) fn run(args: RunArgs) -> Result<(), Box<dyn Error>> {
    let node = args.node.identity();
    let on_node = node.name.as_ref().map_or_else(String::new, |name| format!(" on node {name}"));
    log::info!("nri-cpu-manager {}{on_node}", env!("CARGO_PKG_VERSION"));
    daemon::check_addresses()?;
    let threads = Threads::start()?;
    let runtime = daemon::runtime()?;
    let launched = Launched::from_environment(|name| std::env::var_os(name))?;
    let paths = Paths {
        node,
        // The runtime gives a launched plugin its configuration.
        config: if launched.is_some() { None } else { Some(args.config.clone()) },
        state_dir: args.state_dir,
        pod_resources: args.pod_resources_listen,
        sysfs_root: args.sysfs_root,
        cgroup_root: args.cgroup_root,
        proc_root: args.proc_root,
        host_root: args.host_root,
    };
    let (endpoint, identity, start) = match launched {
        Some(launched) => {
            (Endpoint::Launched(launched.connection()?), launched.identity, Start::Configured)
        }
        None => {
            let identity = Identity::new(&args.name, &args.index)?;
            let config = Config::read(&args.config)?;
            (Endpoint::Socket(args.socket), identity, Start::new(&paths, config, &threads)?)
        }
    };
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let shutdown = async {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            log::info!("{name}: stopping; containers keep their CPUs");
        };
        let (observer, asked) = questions();
        let listening = threads.clients.spawn(endpoint::listen(args.metrics_address));
        if let Some(listener) = listening.await?? {
            let pages = threads.pages.clone();
            threads.clients.spawn(endpoint::serve(listener, observer.clone(), pages));
        }
        let (outbox, inbox) = mpsc::unbounded_channel();
        let edge = edge::nri::run(endpoint, &identity, outbox, shutdown);
        // The edge ends first and drops the last sender. The owner ends after the last message.
        let served = daemon::serve(inbox, (observer, asked), &paths, &threads, start);
        tokio::try_join!(async { edge.await.map_err(Box::<dyn Error>::from) }, async {
            served.await.map_err(Box::from)
        })?;
        log::info!("stopped");
        Ok(())
    })
}
